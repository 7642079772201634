/* ceiling.c: the loops that show what the machine can do. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "measurement/ceiling.h"
#include "problem/host_memory.h"
#include "vector/vexp.h"

#define MAX_THREADS 1024                         /* results kept for thread counts below */
#define EXP_FLOATS 4096                          /* x and y together 32 KiB: L1 */
#define MEMORY_FLOATS ((size_t)1 << 26)          /* 256 MiB each, beyond every cache */
#define SECONDS 0.25

/* What the loops work on. */
struct scene {
    int threads;
    const float *x;
    float *y;
    size_t n;           /* floats in each, over all threads */
    double (*products)(void); /* of a matrix unit */
};

static volatile float sink; /* keeps results that nobody reads */

/* Thread t's share of n floats, in whole cache lines. */
static void share(size_t n, int t, int threads, size_t *begin, size_t *end)
{
    *begin = n / 16 * (size_t)t / (size_t)threads * 16;
    *end = n / 16 * (size_t)(t + 1) / (size_t)threads * 16;
}

/* Each kernel does one repeat on one thread and returns the work it did. */
typedef double kernel_function(const struct scene *s, int t);

static double copy_plain(const struct scene *s, int t)
{
    size_t begin, end;
    share(s->n, t, s->threads, &begin, &end);
    for (size_t j = begin; j < end; j += LANES) vstore(s->y + j, vload(s->x + j));
    return 12.0 * (double)(end - begin);
}

static double copy_streaming(const struct scene *s, int t)
{
    size_t begin, end;
    share(s->n, t, s->threads, &begin, &end);
    for (size_t j = begin; j < end; j += LANES) vstream(s->y + j, vload(s->x + j));
    vstream_end();
    return 8.0 * (double)(end - begin);
}

/* Four streams a thread: a core fetches ahead in each of them. */
static vfloat sum_of(const float *x, size_t n)
{
    vfloat sum[4] = {{0}};
    size_t quarter = n / 64 * 16;
    for (size_t j = 0; j < quarter; j += 16)
        for (int stream = 0; stream < 4; stream++)
            for (int a = 0; a < 16; a += LANES)
                sum[stream] += vload(x + (size_t)stream * quarter + j + a);
    for (size_t j = 4 * quarter; j + LANES <= n; j += LANES) sum[0] += vload(x + j);
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static double read_sum(const struct scene *s, int t)
{
    size_t begin, end;
    share(s->n, t, s->threads, &begin, &end);
    sink = vsum(sum_of(s->x + begin, end - begin));
    return 4.0 * (double)(end - begin);
}

/* Independent chains of multiply-adds, one instruction each: as many as fit the registers.
 * A core that starts two in a cycle, each of which takes four, needs eight; an ARM core that
 * starts four needs sixteen. */
#if LANES == 16 || defined __aarch64__
#define CHAINS 16
#else
#define CHAINS 12
#endif
#define FMA_ROUNDS 400000 /* a millisecond, next to which starting threads is nothing */
static double fma_chains(const struct scene *s, int t)
{
    (void)s, (void)t;
    vfloat c[UNROLL_MOST], d[UNROLL_MOST], a = vset(0.5f), b = vset(0.25f), sum = vset(0);
    UNROLL(i, 8, c[i] = vset((float)i));
    UNROLL(i, CHAINS - 8, d[i] = vset((float)i + 8));
    for (int k = 0; k < FMA_ROUNDS; k++) {
        UNROLL(i, 8, c[i] = vfma(c[i], a, b));
        UNROLL(i, CHAINS - 8, d[i] = vfma(d[i], a, b));
    }
    UNROLL(i, 8, sum += c[i]);
    UNROLL(i, CHAINS - 8, sum += d[i]);
    sink = vsum(sum);
    return 2.0 * LANES * CHAINS * FMA_ROUNDS;
}

static double matrix_products(const struct scene *s, int t)
{
    (void)t;
    return s->products();
}

#define EXP_ROUNDS 1000
static double exp_loop(const struct scene *s, int t)
{
    const float *x = s->x + (size_t)t * EXP_FLOATS;
    float *y = s->y + (size_t)t * EXP_FLOATS;
    for (int k = 0; k < EXP_ROUNDS; k++) {
        for (size_t j = 0; j < EXP_FLOATS; j += VEXP_AT_ONCE * LANES) {
            vfloat e[UNROLL_MOST];
            UNROLL(u, VEXP_AT_ONCE, e[u] = vload(x + j + u * LANES));
            vexp2_lockstep(VEXP_AT_ONCE, e);
            UNROLL(u, VEXP_AT_ONCE, vstore(y + j + u * LANES, e[u]));
        }
        __asm__ volatile("" ::: "memory");
    }
    return (double)EXP_ROUNDS * EXP_FLOATS;
}

/* Rate of a kernel on all threads, 10^9 units of work a second. */
static double rate_once(kernel_function *kernel, const struct scene *s)
{
    double work = 0, start = 0;
#pragma omp parallel num_threads(s->threads) reduction(+ : work)
    {
#pragma omp barrier
#pragma omp master
        start = omp_get_wtime();
        work += kernel(s, omp_get_thread_num());
    }
    return work / (omp_get_wtime() - start) * 1e-9;
}

/* The best of the repeats that fit into SECONDS, at least three; 0 when memory is short. */
static double best_rate(kernel_function *kernel, struct scene s)
{
    float *x = memory_new(s.n * sizeof *x), *y = memory_new(s.n * sizeof *y);
    double best = 0;
    for (size_t j = 0; x && y && j < s.n; j++) x[j] = -(float)(j % 64), y[j] = 0;
    s.x = x, s.y = y;
    double until = omp_get_wtime() + SECONDS;
    for (int repeat = 0; x && y && (repeat < 3 || omp_get_wtime() < until); repeat++)
        best = fmax(best, rate_once(kernel, &s));
    memory_free(x), memory_free(y);
    return best;
}

double ceiling(const char *kind, double (*products)(void), int threads)
{
    static const struct { const char *kind; kernel_function *kernel; size_t floats, of_thread; } of[] = {
        {"copy", copy_plain, MEMORY_FLOATS, 0}, {"copy", copy_streaming, MEMORY_FLOATS, 0},
        {"read", read_sum, MEMORY_FLOATS, 0},   {"exp", exp_loop, 0, EXP_FLOATS},
        {"fma", fma_chains, 0, 0},              {"gemm", matrix_products, 0, 0}};
    enum { N = sizeof of / sizeof *of };
    static double known[N][MAX_THREADS];
    double best = 0;
    if (threads >= MAX_THREADS) threads = MAX_THREADS - 1;
    for (int k = 0; k < N; k++) {
        double *rate = &known[k][threads];
        if (strcmp(of[k].kind, kind)) continue;
        if (*rate == 0)
            *rate = best_rate(of[k].kernel, (struct scene){
                .threads = threads, .n = of[k].floats + of[k].of_thread * (size_t)threads, .products = products});
        best = fmax(best, *rate);
    }
    return best;
}

const char *ceiling_exceeded(const char *kind, int on_gpu, double percent, double percent_once)
{
    if (!(percent > CEILING_MOST)) return NULL;
    if (on_gpu && !strcmp(kind, "gemm")) return "faster than the library's matrix product";
    if (percent_once <= CEILING_MOST) return "a cache served some of the passes";
    return "above its ceiling: an error until explained; measure again";
}
