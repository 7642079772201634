/* bench_measure.c: one measurement of bench, beside what the machine can do at most. */
#include "program/bench.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "measurement/ceiling.h"
#include "problem/execute.h"
#include "problem/host_memory.h"
#include "problem/random.h"
#include "problem/variant.h"
#include "verification/compare.h"

/* Inputs and outputs of one measurement, in host memory. */
struct data { struct outputs out; struct arrays a; };

/* Of 8 bits: four and a half standard deviations are the largest number. */
#define SCALE(dtype) (4.5f / dtypes[dtype].largest)

/* Normal random numbers, in 8 bits the largest as the type's largest.  Drawing 2^28 of them would
 * take longer than the measurement, so a block of 65 536 is repeated, each time in another order. */
static void fill(void *to, size_t n, enum dtype dtype, uint64_t seed)
{
    enum { BLOCK = 1 << 16 };
    struct random r = {seed};
    float unit = dtype_size(dtype) == 1 ? 1 / SCALE(dtype) : 1;
    for (size_t i = 0; i < n && i < BLOCK; i++)
        dtypes[dtype].store(to, i, unit * random_normal(&r));
    for (size_t i = BLOCK; i < n; i++) {
        size_t j = (i * 7919 + i / BLOCK) % BLOCK;
        dtype_set_bits(dtype, to, i, dtype_bits(dtype, to, j));
    }
}

static void data_free(struct data *d, const struct problem *p)
{
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_role(p, i) == INPUT) memory_free(array_of(&d->a, i));
    outputs_free(&d->out);
}

/* The reference and the data for it take a moment at most. */
static int is_verified(const struct problem *p)
{
    return problem_flops(p) <= 1.2e9 && (double)p->rows * (double)p->cols <= 1 << 21;
}

/* o and lse, where they are inputs: what the forward pass gives, or, where that would take too
 * long, an lse near which weights are small numbers. */
static void fill_forward(const struct problem *p, struct arrays *a)
{
    if (array_role(p, ARRAY_LSE) != INPUT) return;
    if (is_verified(p)) forward_answer(p, a);
    else
        for (size_t i = 0; i < array_count(p, ARRAY_LSE); i++)
            a->lse[i] = logf((float)p->seqlen_k) + 0.5f;
}

/* Random inputs of p, the same for every variant; 0 when memory is short. */
static int data_new(struct data *d, const struct problem *p)
{
    *d = (struct data){0};
    if (problem_bytes(p) > memory_available()) return 0;
    for (int i = 0; i < N_ARRAYS; i++) {
        if (array_role(p, i) != INPUT) continue;
        void *x = memory_new(array_bytes(p, i));
        if (!x) {
            data_free(d, p);
            return 0;
        }
        fill(x, array_count(p, i), array_dtype(p, i), (uint64_t)i + 1);
        for (size_t k = 0; i >= ARRAY_Q_SCALE && k < array_count(p, i); k++)
            ((float *)x)[k] = SCALE(array_dtype(p, ARRAY_Q + i - ARRAY_Q_SCALE));
        array_set(&d->a, i, x);
    }
    fill_forward(p, &d->a);
    d->out = outputs_new(p); /* its NaN filling touches every page before the clock starts */
    outputs_bind(&d->out, &d->a);
    return 1;
}

/* The reference for p, kept because every variant needs it on the same data; NULL when it
 * would take too long. */
static const struct standard *standard_for(const struct problem *p, const struct arrays *a)
{
    enum { MOST = 128 };
    static struct { struct problem p; struct standard *standard; } known[MOST];
    static size_t n_known;
    if (!is_verified(p)) return NULL;
    for (size_t i = 0; i < n_known; i++)
        if (!memcmp(&known[i].p, p, sizeof *p)) return known[i].standard;
    if (n_known == MOST) return NULL;
    known[n_known].p = *p;
    known[n_known].standard = standard_new(p, a);
    return known[n_known++].standard;
}

/* Compares the outputs with the reference; 1 if they are wrong. */
static int verify(const struct problem *p, struct data *d, double *err, double *allowed)
{
    const struct standard *standard = standard_for(p, &d->a);
    *err = *allowed = NAN;
    if (!standard) return 0;
    struct verdict verdict = compare(standard, &d->out);
    *err = verdict.err;
    *allowed = verdict.allowed;
    if (!verdict.ok) printf("WRONG: %s in %s\n", verdict.reason, verdict.array);
    return !verdict.ok;
}

/* The cache that this core shares in: the kernel knows it; sysconf may count that of cores
 * which a virtual machine does not have. */
static size_t cache_bytes(void)
{
    for (int level = 3; level >= 2; level--) {
        char path[80];
        size_t kib = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
        FILE *f = fopen(path, "r");
        int read = f && fscanf(f, "%zuK", &kib) == 1;
        if (f) fclose(f);
        if (read) return kib << 10;
    }
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return (size_t)(l3 > 0 ? l3 : l2 > 0 ? l2 : 32L << 20);
}

/* Few queries read every key once and compute little with it. */
static int is_decode(const struct problem *p)
{
    return on_heads(p) && p->heads_kv && p->seqlen_q * (p->heads_q / p->heads_kv) <= 16;
}

/* Exponentials that a softmax cannot do without: one per score. */
static double least_exps(const struct problem *p)
{
    if (!on_heads(p)) return (double)p->rows * (double)p->cols;
    return (double)p->batch * (double)p->heads_q * problem_pairs(p);
}

/* Which takes longer in 16 bits on a CPU: the products of a matrix unit or the exponentials? */
static const char *products_or_exps(const struct variant *v, const struct problem *p,
                                    int threads)
{
    if (!v->matrix_flops) return "exp";
    double products = problem_flops(p) / ceiling("gemm", v->matrix_flops, threads);
    return products > least_exps(p) / ceiling("exp", NULL, threads) ? "gemm" : "exp";
}

/* What the measurement runs against: "read", "copy", "exp", "gemm" or "fma". */
static const char *ceiling_kind(const struct variant *v, const struct problem *p, int threads,
                                double bytes)
{
    int gpu = v->device == ON_GPU, from_memory = gpu || bytes > (double)cache_bytes();
    if (is_decode(p) && from_memory) return "read";
    if (!on_heads(p)) return from_memory ? "copy" : "exp";
    if (!gpu && p->dtype != F32) return products_or_exps(v, p, threads);
    return gpu ? "gemm" : "fma";
}

static double ceiling_of(const char *kind, const struct variant *v, const struct problem *p,
                         int threads)
{
    if (v->device != ON_GPU) return ceiling(kind, v->matrix_flops, threads);
    if (!strcmp(kind, "read")) return gpu_read_gbps();
    return !strcmp(kind, "copy") ? gpu_copy_gbps() : gpu_gemm_gflops(p->dtype);
}

/* How much of the ceiling was reached. */
static void add_ceiling(struct measurement *m, double rfo_bytes)
{
    double reached = m->gflops;
    int gpu = m->device == ON_GPU;
    if (!strcmp(m->ceiling_kind, "read")) reached = m->gbps;
    if (!strcmp(m->ceiling_kind, "copy"))
        reached = m->gbps + (gpu ? 0 : rfo_bytes / m->median_s / 1e9);
    if (!strcmp(m->ceiling_kind, "exp")) reached = least_exps(&m->p) / m->median_s / 1e9;
    if (m->ceiling > 0) m->pct_ceiling = 100 * reached / m->ceiling;
    else m->ceiling = m->pct_ceiling = NAN;
}

void bench_describe(const struct problem *p, char *text, size_t size)
{
    if (!on_heads(p))
        snprintf(text, size, "%s [%zu, %zu] %s", op_name(p->op), p->rows, p->cols,
                 problem_types(p));
    else
        snprintf(text, size, "%s b%zu h%zu/%zu q%zu k%zu d%zu%s %s", op_name(p->op), p->batch,
                 p->heads_q, p->heads_kv, p->seqlen_q, p->seqlen_k, p->head_dim,
                 p->causal ? " causal" : "", problem_types(p));
}

/* The share of the ceiling if every array is moved once. */
static double percent_once(const struct measurement *m)
{
    if (strcmp(m->ceiling_kind, "copy")) return m->pct_ceiling;
    return 100 * (double)problem_bytes(&m->p) / m->median_s / 1e9 / m->ceiling;
}

static void print(const struct measurement *m, double spread, const char *more)
{
    char shape[128], speed[32];
    bench_describe(&m->p, shape, sizeof shape);
    if (m->flops > 0 && !is_decode(&m->p))
        snprintf(speed, sizeof speed, "%.1f GFLOP/s", m->gflops);
    else snprintf(speed, sizeof speed, "%.2f GB/s", m->gbps);
    const char *why = ceiling_exceeded(m->ceiling_kind, m->device == ON_GPU,
                                       m->pct_ceiling, percent_once(m));
    printf("%-23s %-46s %10.3f ms  min %9.3f  +-%3.0f%%  %17s  %5.1f%% of %s%s%s%s%s\n",
           m->variant, shape, m->median_s * 1e3, m->min_s * 1e3, 50 * spread, speed,
           m->pct_ceiling, m->ceiling_kind, why ? " (" : "", why ? why : "", why ? ")" : "", more);
    fflush(stdout);
}

const char *bench_report(struct measurement *m, const struct timing *t, double rfo_bytes,
                         const char *more, struct csv *csv)
{
    m->median_s = t->median_s, m->min_s = t->min_s, m->reps = t->reps;
    m->flops = problem_flops(&m->p);
    m->gbps = m->bytes_predicted / m->median_s / 1e9;
    m->gflops = m->flops / m->median_s / 1e9;
    add_ceiling(m, rfo_bytes);
    print(m, t->spread, more);
    return csv ? csv_write(csv, m) : NULL;
}

double bench_work(const struct problem *p)
{
    double flops = problem_flops(p);
    return flops > 0 ? flops : (double)p->rows * (double)p->cols;
}

static double baseline_memory(int gpu)
{
    if (gpu) {
        gpu_copy_gbps(); /* allocates, the first time, what flushes the L2 cache */
        return -(double)gpu_memory_free();
    }
    memory_peak_reset();
    return (double)memory_peak();
}

int bench_measure(const struct stage *stage, const struct variant *v, struct problem p,
                   double seconds, struct csv *csv, struct pace *pace)
{
    int gpu = v->device == ON_GPU;
    struct data d;
    const char *why = NULL;
    char shape[128];
    bench_describe(&p, shape, sizeof shape);
    double base = baseline_memory(gpu);
    struct execution *e = NULL;
    if (!data_new(&d, &p)) why = "memory is short";
    else e = execution_new(v, &p, &d.a, &why);
    if (!e) {
        printf("%-23s %-46s not measured: %s\n", v->name, shape, why);
        data_free(&d, &p);
        return 77;
    }
    struct cost cost = v->cost ? v->cost(&p) : (struct cost){0};
    int threads = gpu ? 0
                  : v->all_cores || v->device == GPU_ON_CPU ? omp_get_max_threads() : 1;
    const char *kind = ceiling_kind(v, &p, threads, cost.bytes);
    struct timing t = time_execution(e, gpu, seconds);
    double peak = (gpu ? -(double)gpu_memory_free() : (double)memory_peak()) - base;
    double err, allowed;
    execution_fetch(e);
    execution_free(e);
    int wrong = verify(&p, &d, &err, &allowed);
    data_free(&d, &p);
    struct measurement m = {
        .stage = stage->name, .variant = v->name, .p = p, .device = v->device,
        .threads = threads, .ceiling_kind = kind,
        .ceiling = ceiling_of(kind, v, &p, threads),
        .bytes_predicted = cost.bytes, .bytes_measured = NAN, .peak_bytes = peak,
        .max_err = err, .allowed_err = allowed,
    };
    *pace = (struct pace){t.min_s, bench_work(&p)};
    why = bench_report(&m, &t, cost.rfo_bytes, "", csv);
    if (why) fprintf(stderr, "%s: --csv: cannot write: %s\n", stage->name, why);
    return wrong || why;
}
