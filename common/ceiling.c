/* ceiling.c: the loops that show what the machine can do. */
#include <omp.h>
#include <stdlib.h>

#include "ceiling.h"
#include "vexp.h"

#define MAX_THREADS 1024                         /* results kept for thread counts below */
#define MEMORY_FLOATS ((size_t)32 << 20)         /* 128 MiB, beyond a core's share of cache */
#define EXP_FLOATS 4096                          /* x and y together 32 KiB: L1 */
#define SECONDS 0.25

/* What the loops work on. */
struct scene {
    int threads;
    float *x, *y;       /* MEMORY_FLOATS, or EXP_FLOATS each thread; NULL for fma */
    size_t n;           /* floats in x over all threads */
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

static double read_sum(const struct scene *s, int t)
{
    size_t begin, end;
    share(s->n, t, s->threads, &begin, &end);
    vfloat sum[4] = {{0}};
    for (size_t j = begin; j < end; j += 16)
        for (int a = 0; a < 16; a += LANES)
            sum[a / LANES % 4] += vload(s->x + j + a);
    sink = vsum(sum[0] + sum[1] + (sum[2] + sum[3]));
    return 4.0 * (double)(end - begin);
}

/* 12 independent chains of multiply-adds, two a cycle with a latency of four fit. */
#define CHAINS 12
#define FMA_ROUNDS 20000
static double fma_chains(const struct scene *s, int t)
{
    (void)s, (void)t;
    vfloat c[CHAINS], a = vset(0.5f), b = vset(0.25f);
    for (int i = 0; i < CHAINS; i++) c[i] = vset((float)i);
    for (int k = 0; k < FMA_ROUNDS; k++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) c[i] = vfma(c[i], a, b);
    }
    for (int i = 1; i < CHAINS; i++) c[0] += c[i];
    sink = vsum(c[0]);
    return 2.0 * LANES * CHAINS * FMA_ROUNDS;
}

#define EXP_ROUNDS 50
static double exp_loop(const struct scene *s, int t)
{
    const float *x = s->x + (size_t)t * EXP_FLOATS;
    float *y = s->y + (size_t)t * EXP_FLOATS;
    for (int k = 0; k < EXP_ROUNDS; k++) {
        for (size_t j = 0; j < EXP_FLOATS; j += LANES) vstore(y + j, vexp(vload(x + j)));
        __asm__ volatile("" ::: "memory");
    }
    return (double)EXP_ROUNDS * EXP_FLOATS;
}

/* Best rate of a kernel on all threads, work per second: repeats it for SECONDS, at least
 * three times. */
static double best_rate(kernel_function *kernel, const struct scene *s)
{
    double best = 0, until = omp_get_wtime() + SECONDS;
    for (int repeat = 0; repeat < 3 || omp_get_wtime() < until; repeat++) {
        double work = 0, start = 0;
#pragma omp parallel num_threads(s->threads) reduction(+ : work)
        {
#pragma omp barrier
#pragma omp master
            start = omp_get_wtime();
            work += kernel(s, omp_get_thread_num());
        }
        double rate = work / (omp_get_wtime() - start);
        if (rate > best) best = rate;
    }
    return best;
}

/* Arrays written by the threads that will read them, so that each thread's part lies in
 * its own memory on machines with several. */
static int scene_new(struct scene *s, int threads, size_t n)
{
    *s = (struct scene){.threads = threads, .n = n};
    s->x = aligned_alloc(4096, n * sizeof(float));
    s->y = aligned_alloc(4096, n * sizeof(float));
    if (!s->x || !s->y) return 0;
#pragma omp parallel num_threads(threads)
    {
        size_t begin, end;
        share(n, omp_get_thread_num(), threads, &begin, &end);
        for (size_t j = begin; j < end; j++) {
            s->x[j] = -(float)(j % 64);
            s->y[j] = 0;
        }
    }
    return 1;
}

/* The rate of a kernel for a number of threads, in 10^9 a second, 0 when memory is short.
 *   known  [MAX_THREADS], what was measured before
 *   n      floats in x: MEMORY_FLOATS in all, EXP_FLOATS a thread, 0 for none */
static double ceiling(kernel_function *kernel, int threads, double *known, size_t n)
{
    if (threads <= 0) threads = omp_get_max_threads();
    if (threads >= MAX_THREADS) threads = MAX_THREADS - 1;
    if (known[threads] > 0) return known[threads];
    struct scene s = {.threads = threads};
    if (n == EXP_FLOATS) n *= (size_t)threads;
    if (n == 0 || scene_new(&s, threads, n)) known[threads] = best_rate(kernel, &s) * 1e-9;
    free(s.x);
    free(s.y);
    return known[threads];
}

double ceiling_copy_plain_gbps(int threads)
{
    static double known[MAX_THREADS];
    return ceiling(copy_plain, threads, known, MEMORY_FLOATS);
}

double ceiling_copy_streaming_gbps(int threads)
{
    static double known[MAX_THREADS];
    return ceiling(copy_streaming, threads, known, MEMORY_FLOATS);
}

double ceiling_copy_gbps(int threads)
{
    double plain = ceiling_copy_plain_gbps(threads);
    double streaming = ceiling_copy_streaming_gbps(threads);
    return plain > streaming ? plain : streaming;
}

double ceiling_read_gbps(int threads)
{
    static double known[MAX_THREADS];
    return ceiling(read_sum, threads, known, MEMORY_FLOATS);
}

double ceiling_fma_gflops(int threads)
{
    static double known[MAX_THREADS];
    return ceiling(fma_chains, threads, known, 0);
}

double ceiling_exp_gexps(int threads)
{
    static double known[MAX_THREADS];
    return ceiling(exp_loop, threads, known, EXP_FLOATS);
}
