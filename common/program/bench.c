/* bench.c: measure the variants of a stage beside what the machine can do at most. */
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measurement/ceiling.h"
#include "verification/compare.h"
#include "measurement/csv.h"
#include "problem/execute.h"
#include "gpu/gpu.h"
#include "problem/half.h"
#include "problem/host_memory.h"
#include "program/options.h"
#include "problem/random.h"
#include "measurement/timing.h"
#include "problem/variant.h"

/* Where a shape is measured; FAST: only by variants that need little time for it. */
enum { CPU = 1, GPU = 2, EXECUTED = 4, QUICK = 8, SIXTEEN = 16, THIRTYTWO = 32, FAST = 64 };

struct shape { unsigned where; struct problem p; };

/* Softmax of n numbers in rows of `c`; attention of `b` batches, `h` heads of width `w`. */
#define ROWS(flags, n, c)                                                                  \
    {flags, {.op = OP_SOFTMAX, .rows = ((size_t)(n)) / (c), .cols = (c)}}
#define HEADS(flags, b, h, hk, nq, nk, w, mask)                                            \
    {flags, {.op = OP_ATTENTION, .batch = b, .heads_q = h, .heads_kv = hk, .seqlen_q = nq, \
             .seqlen_k = nk, .head_dim = w, .head_dim_v = w, .causal = mask}}
#define SQUARE(flags, n, w, mask) HEADS(flags, 1, 1, 1, n, n, w, mask)
/* 16k tokens, 2048 wide in all: the shapes that attention kernels are compared on. */
#define TOKENS(flags, n, w, mask) HEADS(flags, 16384 / n, 2048 / w, 2048 / w, n, n, w, mask)
#define LADDER(flags, w, mask)                                                             \
    TOKENS(flags, 512, w, mask), TOKENS(flags, 1024, w, mask),                             \
    TOKENS(flags, 2048, w, mask), TOKENS(flags, 4096, w, mask),                            \
    TOKENS(flags, 8192, w, mask), TOKENS(flags, 16384, w, mask)

static const struct shape shapes[] = {
    /* rows that stay in the cache, then rows that come from main memory */
    ROWS(CPU, 1 << 16, 64), ROWS(CPU, 1 << 16, 256), ROWS(CPU, 1 << 16, 1024),
    ROWS(CPU | QUICK | EXECUTED, 1 << 16, 4096), ROWS(CPU, 1 << 16, 16384),
    ROWS(CPU, 1 << 16, 65536),
    ROWS(CPU, 1 << 25, 1024), ROWS(CPU, 1 << 25, 65536), ROWS(CPU | QUICK, 1 << 25, 1 << 20),
    ROWS(CPU, 1 << 25, 1 << 25), ROWS(CPU, 1 << 26, 1 << 26),
    ROWS(GPU, 1 << 28, 256), ROWS(GPU, 1 << 28, 512), ROWS(GPU, 1 << 28, 1024),
    ROWS(GPU, 1 << 28, 2048), ROWS(GPU | QUICK, 1 << 28, 4096), ROWS(GPU, 1 << 28, 8192),
    ROWS(GPU, 1 << 28, 16384), ROWS(GPU, 1 << 28, 32768), ROWS(GPU, 1 << 28, 65536),
    ROWS(GPU, 1 << 28, 131072), ROWS(GPU, 1 << 28, 1 << 20), ROWS(GPU, 1 << 26, 1 << 26),
    /* one head: the work that all five stages share */
    SQUARE(EXECUTED, 64, 64, 0), SQUARE(CPU | EXECUTED, 128, 64, 0),
    SQUARE(CPU | GPU | QUICK | EXECUTED | THIRTYTWO, 256, 64, 0),
    SQUARE(CPU | GPU | THIRTYTWO, 512, 64, 0),
    SQUARE(CPU | GPU | QUICK | THIRTYTWO, 1024, 64, 0),
    SQUARE(CPU | GPU | THIRTYTWO, 2048, 64, 0),
    SQUARE(CPU | GPU | THIRTYTWO, 4096, 64, 0), SQUARE(CPU, 8192, 64, 0),
    SQUARE(CPU | FAST, 16384, 64, 0),
    SQUARE(CPU | FAST, 2048, 128, 0), SQUARE(CPU | FAST, 4096, 128, 0), SQUARE(CPU | FAST, 8192, 128, 0),
    SQUARE(CPU | FAST, 512, 64, 1), SQUARE(CPU | FAST, 1024, 64, 1), SQUARE(CPU | FAST, 2048, 64, 1),
    SQUARE(CPU | FAST, 4096, 64, 1), SQUARE(CPU | FAST, 8192, 64, 1), SQUARE(CPU | FAST, 4096, 128, 1),
    SQUARE(CPU | FAST, 8192, 128, 1),
    HEADS(CPU, 1, 16, 16, 1, 8192, 128, 0), HEADS(CPU, 1, 16, 16, 1, 32768, 128, 0),
    /* f32 on the GPU: 16 heads of 4096; one query */
    HEADS(GPU | THIRTYTWO | QUICK, 1, 16, 16, 4096, 4096, 64, 0),
    HEADS(GPU | THIRTYTWO, 1, 16, 16, 4096, 4096, 128, 0),
    HEADS(GPU | THIRTYTWO, 1, 16, 16, 4096, 4096, 64, 1),
    HEADS(GPU | THIRTYTWO, 16, 16, 16, 1, 8192, 128, 0),
    HEADS(GPU | THIRTYTWO, 1, 16, 16, 1, 8192, 128, 0),
    LADDER(GPU | SIXTEEN, 64, 0), LADDER(GPU | SIXTEEN, 64, 1),
    LADDER(GPU | SIXTEEN, 128, 0), LADDER(GPU | SIXTEEN, 128, 1),
    LADDER(GPU | SIXTEEN, 256, 0), LADDER(GPU | SIXTEEN, 256, 1),
    TOKENS(GPU | SIXTEEN | QUICK, 4096, 128, 0),
    /* one query, many keys */
    HEADS(GPU | SIXTEEN, 16, 16, 16, 1, 8192, 128, 0),
    HEADS(GPU | SIXTEEN, 16, 16, 16, 1, 65536, 128, 0),
    HEADS(GPU | SIXTEEN, 1, 16, 16, 1, 8192, 128, 0),
    HEADS(GPU | SIXTEEN, 1, 16, 16, 1, 65536, 128, 0),
    HEADS(GPU | SIXTEEN, 16, 32, 4, 1, 8192, 128, 0),
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Inputs and outputs of one measurement, in host memory. */
struct data { void *x, *w, *q, *k, *v; struct outputs out; struct arrays a; };

/* Normal random numbers.  Drawing 2^28 of them would take longer than the measurement, so
 * a block of 65 536 is repeated, each time in another order. */
static void fill(void *to, size_t n, enum dtype dtype, uint64_t seed)
{
    enum { BLOCK = 1 << 16 };
    struct random r = {seed};
    float *f = to;
    uint16_t *h = to;
    for (size_t i = 0; i < n; i++) {
        size_t j = (i * 7919 + i / BLOCK) % BLOCK;
        float x = i < BLOCK ? random_normal(&r) : 0;
        if (dtype == F32) f[i] = i < BLOCK ? x : f[j];
        else if (i >= BLOCK) h[i] = h[j];
        else h[i] = dtype == F16 ? float_to_half(x) : float_to_bfloat(x);
    }
}

static void *new_input(size_t n, enum dtype dtype, uint64_t seed, int *short_of_memory)
{
    if (n == 0) return NULL;
    void *x = memory_new(size_times(n, dtype_size(dtype)));
    if (x) fill(x, n, dtype, seed);
    else *short_of_memory = 1;
    return x;
}

static void data_free(struct data *d)
{
    memory_free(d->x), memory_free(d->w), memory_free(d->q), memory_free(d->k);
    memory_free(d->v);
    outputs_free(&d->out);
}

/* Random inputs of p, the same for every variant; 0 when memory is short. */
static int data_new(struct data *d, const struct problem *p)
{
    struct sizes n = problem_sizes(p);
    size_t size = dtype_size(p->dtype), all = size_plus(size_times(n.x + n.y, size),
                                                        size_times(n.q + n.k + n.v + n.o, size));
    int lacking = all > memory_available();
    *d = (struct data){0};
    if (lacking) return 0;
    d->x = new_input(n.x, p->dtype, 1, &lacking);
    d->w = new_input(n.w, p->dtype, 2, &lacking);
    d->q = new_input(n.q, p->dtype, 3, &lacking);
    d->k = new_input(n.k, p->dtype, 4, &lacking);
    d->v = new_input(n.v, p->dtype, 5, &lacking);
    if (lacking) {
        data_free(d);
        return 0;
    }
    d->out = outputs_new(p); /* its NaN filling touches every page before the clock starts */
    d->a = (struct arrays){.x = d->x, .w = d->w, .q = d->q, .k = d->k, .v = d->v};
    outputs_bind(&d->out, &d->a);
    return 1;
}

/* The reference for p, kept because every variant needs it on the same data; NULL when it
 * would take too long. */
static const struct standard *standard_for(const struct problem *p, const struct arrays *a)
{
    static struct { struct problem p; struct standard *standard; } known[N_SHAPES];
    static size_t n_known;
    double work = problem_flops(p);
    if (work > 1.2e9 || (double)p->rows * (double)p->cols > 1 << 21) return NULL;
    for (size_t i = 0; i < n_known; i++)
        if (!memcmp(&known[i].p, p, sizeof *p)) return known[i].standard;
    if (n_known == N_SHAPES) return NULL;
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
    return p->op != OP_SOFTMAX && p->op != OP_LOGSOFTMAX && p->heads_kv &&
           p->seqlen_q * (p->heads_q / p->heads_kv) <= 16;
}

/* What the measurement runs against: "read", "copy", "exp", "gemm" or "fma". */
static const char *ceiling_kind(const struct problem *p, int gpu, double bytes)
{
    int rows = p->op == OP_SOFTMAX || p->op == OP_LOGSOFTMAX;
    int from_memory = gpu || bytes > (double)cache_bytes();
    if (is_decode(p) && from_memory) return "read";
    if (rows) return from_memory ? "copy" : "exp";
    if (!gpu && p->dtype != F32) return "exp"; /* a matrix unit leaves the exponential */
    return gpu ? "gemm" : "fma";
}

/* The arrays that a measurement against memory on the CPU moves. */
static struct ceiling_memory memory_of(const char *kind, const struct problem *p,
                                       const struct data *d, int threads)
{
    struct sizes n = problem_sizes(p);
    size_t floats = sizeof(float) / dtype_size(p->dtype);
    if (strcmp(kind, "read"))
        return (struct ceiling_memory){.x = d->x, .y = d->a.y, .n = n.y / floats,
                                       .threads = threads};
    return (struct ceiling_memory){.x = d->k, .n = n.k / floats, .more = d->v,
                                   .n_more = n.v / floats, .threads = threads};
}

static double ceiling_of(const char *kind, const struct problem *p, int gpu, int threads,
                         struct ceiling_memory *memory)
{
    if (!strcmp(kind, "read")) return gpu ? gpu_read_gbps() : ceiling_memory_gbps(memory);
    if (!strcmp(kind, "copy")) return gpu ? gpu_copy_gbps() : ceiling_memory_gbps(memory);
    if (!strcmp(kind, "exp")) return ceiling_exp_gexps(threads);
    return gpu ? gpu_gemm_gflops(p->dtype) : ceiling_fma_gflops(threads);
}

/* How much of the ceiling was reached. */
static void add_ceiling(struct measurement *m, const struct cost *cost)
{
    double reached = m->gflops;
    int gpu = m->device == ON_GPU;
    if (!strcmp(m->ceiling_kind, "read")) reached = m->gbps;
    if (!strcmp(m->ceiling_kind, "copy"))
        reached = m->gbps + (gpu ? 0 : cost->rfo_bytes / m->median_s / 1e9);
    if (!strcmp(m->ceiling_kind, "exp")) {
        double heads = (double)m->p.batch * (double)m->p.heads_q;
        double scores = m->p.op == OP_ATTENTION ? heads * problem_pairs(&m->p)
                                                : (double)m->p.rows * (double)m->p.cols;
        reached = scores / m->median_s / 1e9;
    }
    if (m->ceiling > 0) m->pct_ceiling = 100 * reached / m->ceiling;
    else m->ceiling = m->pct_ceiling = NAN;
}

static void describe(const struct problem *p, char *text, size_t size)
{
    if (p->op == OP_SOFTMAX || p->op == OP_LOGSOFTMAX)
        snprintf(text, size, "%s [%zu, %zu] %s", op_name(p->op), p->rows, p->cols,
                 dtype_name(p->dtype));
    else
        snprintf(text, size, "%s b%zu h%zu/%zu q%zu k%zu d%zu%s %s", op_name(p->op), p->batch,
                 p->heads_q, p->heads_kv, p->seqlen_q, p->seqlen_k, p->head_dim,
                 p->causal ? " causal" : "", dtype_name(p->dtype));
}

/* The share of the ceiling if every array is moved once. */
static double percent_once(const struct measurement *m)
{
    struct sizes n = problem_sizes(&m->p);
    double bytes = (double)(n.x + n.w + n.y) * (double)dtype_size(m->p.dtype);
    if (strcmp(m->ceiling_kind, "copy")) return m->pct_ceiling;
    return 100 * bytes / m->median_s / 1e9 / m->ceiling;
}

/* Once for each number of threads: is the ceiling what the clock says? */
static void print_units(const char *kind, int threads)
{
    static int known;
    if (strcmp(kind, "fma") || known == threads) return;
    known = threads;
    double units = ceiling_fma_units(threads);
    if (units <= 0) return;
    printf("fma ceiling, %d thread%s: %.1f GFLOP/s, %.2f vectors per cycle of a core%s\n",
           threads, threads > 1 ? "s" : "", ceiling_fma_gflops(threads), units,
           ceiling_units_are_whole(units) ? ""
           : "; not a whole number: is another program running?");
}

static void print_measurement(const struct measurement *m, double spread)
{
    char shape[128], speed[32];
    describe(&m->p, shape, sizeof shape);
    if (m->flops > 0 && !is_decode(&m->p))
        snprintf(speed, sizeof speed, "%.1f GFLOP/s", m->gflops);
    else snprintf(speed, sizeof speed, "%.2f GB/s", m->gbps);
    const char *why = ceiling_exceeded(m->pct_ceiling, percent_once(m));
    printf("%-18s %-46s %10.3f ms  min %9.3f  +-%3.0f%%  %17s  %5.1f%% of %s%s%s%s\n",
           m->variant, shape, m->median_s * 1e3, m->min_s * 1e3, 50 * spread, speed,
           m->pct_ceiling, m->ceiling_kind, why ? " (" : "", why ? why : "", why ? ")" : "");
    fflush(stdout);
}

/* What is left of the state between two shapes of the same variant: its last speed, by
 * which the next time is foretold. */
struct pace { double seconds, work; };

static double work_of(const struct problem *p)
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

/* Measures one shape; 0 done, 1 the result is wrong or a line could not be written, 77
 * memory is short. */
static int measure(const struct stage *stage, const struct variant *v, struct problem p,
                   double seconds, struct csv *csv, struct pace *pace)
{
    int gpu = v->device == ON_GPU;
    struct data d;
    const char *why = NULL;
    char shape[128];
    describe(&p, shape, sizeof shape);
    double base = baseline_memory(gpu);
    struct execution *e = NULL;
    if (!data_new(&d, &p)) why = "memory is short";
    else e = execution_new(v, &p, &d.a, &why);
    if (!e) {
        printf("%-18s %-46s not measured: %s\n", v->name, shape, why);
        data_free(&d);
        return 77;
    }
    struct cost cost = v->cost ? v->cost(&p) : (struct cost){0};
    const char *kind = ceiling_kind(&p, gpu, cost.bytes);
    int threads = gpu ? 0
                  : v->all_cores || v->device == GPU_ON_CPU ? omp_get_max_threads() : 1;
    struct ceiling_memory memory = memory_of(kind, &p, &d, threads);
    int of_memory = !gpu && (!strcmp(kind, "read") || !strcmp(kind, "copy"));
    struct timing t = time_execution(e, gpu, seconds, of_memory ? ceiling_memory_look : NULL,
                                     &memory);
    double peak = (gpu ? -(double)gpu_memory_free() : (double)memory_peak()) - base;
    double err, allowed;
    execution_fetch(e);
    execution_free(e);
    int wrong = verify(&p, &d, &err, &allowed);
    data_free(&d);
    struct measurement m = {
        .stage = stage->name, .variant = v->name, .p = p, .device = v->device,
        .threads = threads, .ceiling_kind = kind, 
        .ceiling = ceiling_of(kind, &p, gpu, threads, &memory),
        .median_s = t.median_s, .min_s = t.min_s, .reps = t.reps,
        .bytes_predicted = cost.bytes, .bytes_measured = NAN, .flops = problem_flops(&p),
        .gbps = cost.bytes / t.median_s / 1e9, .peak_bytes = peak,
        .max_err = err, .allowed_err = allowed,
    };
    m.gflops = m.flops / t.median_s / 1e9;
    add_ceiling(&m, &cost);
    if (!gpu) print_units(kind, threads);
    print_measurement(&m, t.spread);
    *pace = (struct pace){t.min_s, work_of(&p)};
    why = csv ? csv_write(csv, &m) : NULL;
    if (why) fprintf(stderr, "%s: --csv: cannot write: %s\n", stage->name, why);
    return wrong || why != NULL;
}

/* Does the standard list ask for this shape of this variant, and in which type? */
static int wanted(const struct shape *s, const struct variant *v, const struct options *opt,
                  struct problem *p)
{
    unsigned here = v->device == ON_GPU ? GPU : v->device == ON_CPU ? CPU : EXECUTED;
    if (!(s->where & here) || (opt->quick && !(s->where & QUICK))) return 0;
    *p = s->p;
    p->scale = p->head_dim ? 1 / sqrtf((float)p->head_dim) : 1;
    if (opt->has_op) p->op = opt->op;
    if ((s->p.op == OP_ATTENTION) != (p->op == OP_ATTENTION)) return 0;
    p->dtype = s->where & SIXTEEN ? BF16 : F32;
    if (opt->has_dtype) p->dtype = opt->dtype;
    else if (s->where & THIRTYTWO && here != GPU) p->dtype = F32;
    else if (here != GPU && !(v->types & TYPE(p->dtype))) p->dtype = v->types & TYPE(F16) ? F16 : BF16;
    return !variant_refuses(v, p);
}

static int asks_rows(const struct options *opt)
{
    return opt->rows || opt->cols;
}

static int asks_heads(const struct options *opt)
{
    return opt->batch || opt->heads_q || opt->heads_kv || opt->seqlen_q || opt->seqlen_k ||
           opt->head_dim || opt->head_dim_v || opt->causal;
}

/* The shape given on the command line, if any. */
static int own_shape(const struct options *opt, struct shape *s)
{
    int rows = asks_rows(opt), heads = asks_heads(opt);
    if (!rows && !heads) return 0;
    struct problem *p = &s->p;
    *s = (struct shape){.where = CPU | GPU | EXECUTED | QUICK};
    p->op = rows ? OP_SOFTMAX : OP_ATTENTION;
    p->rows = rows && !opt->rows ? 1 : opt->rows;
    p->cols = rows && !opt->cols ? 1 : opt->cols;
    if (heads) {
        p->batch = opt->batch ? opt->batch : 1;
        p->heads_q = opt->heads_q ? opt->heads_q : opt->heads_kv ? opt->heads_kv : 1;
        p->heads_kv = opt->heads_kv ? opt->heads_kv : p->heads_q;
        p->seqlen_q = opt->seqlen_q ? opt->seqlen_q : opt->seqlen_k ? opt->seqlen_k : 1024;
        p->seqlen_k = opt->seqlen_k ? opt->seqlen_k : p->seqlen_q;
        p->head_dim = opt->head_dim ? opt->head_dim : 64;
        p->head_dim_v = opt->head_dim_v ? opt->head_dim_v : p->head_dim;
        p->causal = opt->causal;
    }
    return 1;
}

/* Do the options fit together, and their arrays into memory? */
static int validate(const struct stage *stage, const struct options *opt,
                    const struct problem *own)
{
    int softmax = opt->op == OP_SOFTMAX || opt->op == OP_LOGSOFTMAX;
    if (opt->has_op && !softmax && opt->op != OP_ATTENTION)
        return complain(stage, "--op: bench measures softmax, logsoftmax or attention, not %s",
                        op_name(opt->op));
    if (asks_rows(opt) && asks_heads(opt))
        return complain(stage, "--rows, --cols (softmax) cannot go with the sizes of "
                        "attention or --causal");
    if (opt->has_op && (softmax ? asks_heads(opt) : asks_rows(opt)))
        return complain(stage, "--op: %s takes %s", op_name(opt->op), softmax ?
                        "--rows and --cols" : "--seqlen-q, --seqlen-k, --head-dim and so on");
    if (!own) return 0;
    if (own->op == OP_ATTENTION && own->heads_q % own->heads_kv)
        return complain(stage, "--heads-q: %zu is not a multiple of --heads-kv %zu",
                        own->heads_q, own->heads_kv);
    double rows = (double)own->heads_q * (double)own->seqlen_q +
                  (double)own->heads_kv * (double)own->seqlen_k;
    double elements = 2 * (double)own->rows * (double)own->cols +
                      (double)own->batch * rows * (double)(own->head_dim + own->head_dim_v);
    double bytes = elements * (double)dtype_size(opt->has_dtype ? opt->dtype : F32);
    if (bytes > (double)memory_available())
        return complain(stage, "%s: the arrays need %.3g GB of memory, more than there is",
                        asks_rows(opt) ? "--rows, --cols" : "--seqlen-q, --seqlen-k",
                        bytes / 1e9);
    return 0;
}

/* Is there anything to measure?  If not, one line says what the variant does not support. */
static int supported(const struct stage *stage, const struct options *opt,
                     const struct shape *list, size_t n)
{
    struct problem p = {0};
    const char *refusal = NULL;
    for (size_t t = 0; stage->variants[t]; t++) {
        const struct variant *v = variant_here(stage->variants[t]);
        if (opt->variant && strcmp(v->name, opt->variant)) continue;
        for (size_t i = 0; i < n; i++)
            if (wanted(&list[i], v, opt, &p)) return 0;
        if (n == 1) refusal = variant_refuses(v, &p);
    }
    if (!refusal) refusal = opt->has_op ? op_name(opt->op) : "softmax or attention";
    if (!opt->variant)
        return complain(stage, "bench: this stage does not support %s", refusal);
    return complain(stage, "variant %s does not support %s", opt->variant, refusal);
}

/* Measures the shapes of the list that v does; *n_measured counts those that fit. */
static int bench_variant(const struct stage *stage, const struct variant *v,
                         const struct options *opt, const struct shape *list, size_t n,
                         struct csv *csv, size_t *n_measured)
{
    double seconds = opt->quick ? 0.3 : 1, longest = opt->quick ? 0.5 : 2;
    struct pace pace[2] = {{0, 0}, {0, 0}}; /* of softmax, of attention */
    int failed = 0, asked = n == 1;
    for (size_t i = 0; i < n && !failed; i++) {
        struct problem p;
        if (!wanted(&list[i], v, opt, &p)) {
            if (asked) printf("%-18s does not support %s\n", v->name, variant_refuses(v, &p));
            continue;
        }
        struct pace *last = &pace[p.op == OP_ATTENTION];
        double expected = last->work > 0 ? last->seconds * work_of(&p) / last->work : 0;
        if (expected > (list[i].where & FAST ? longest / 8 : longest) && !asked) {
            char shape[128];
            describe(&p, shape, sizeof shape);
            printf("%-18s %-46s not measured: one call would take about %.1f s\n", v->name,
                   shape, expected);
            continue;
        }
        int status = measure(stage, v, p, seconds, csv, last);
        failed = status == 1;
        *n_measured += status == 0;
    }
    return failed;
}

/* Every variant in turn; the exit status. */
static int bench_variants(const struct stage *stage, const struct options *opt,
                          const struct shape *list, size_t n, struct csv *csv)
{
    int failed = 0, ran = 0;
    size_t n_measured = 0;
    printf("%s on %s%s%s\n", stage->name, machine_name(), gpu_arch() ? " and " : "",
           gpu_arch() ? gpu_name() : "");
    for (size_t i = 0; stage->variants[i] && !failed; i++) {
        const struct variant *v = variant_here(stage->variants[i]);
        if (opt->variant && strcmp(v->name, opt->variant)) continue;
        const char *why = variant_unavailable(v);
        if (why) {
            printf("%-18s skipped: %s\n", v->name, why);
            continue;
        }
        ran++;
        failed = bench_variant(stage, v, opt, list, n, csv, &n_measured);
    }
    if (failed) return 1;
    if (ran && !n_measured)
        return complain(stage, "bench: nothing was measured: memory is short, or it would "
                        "take too long; give smaller sizes");
    return ran ? 0 : 77;
}

int bench_stage(const struct stage *stage, const struct options *opt)
{
    const char *why = NULL;
    struct shape own;
    int one = own_shape(opt, &own);
    const struct shape *list = one ? &own : shapes;
    size_t n = one ? 1 : N_SHAPES;
    int status = validate(stage, opt, one ? &own.p : NULL);
    if (!status) status = supported(stage, opt, list, n);
    if (status) return status;
    struct csv *csv = opt->csv ? csv_open(opt->csv, &why) : NULL;
    if (why) return complain(stage, "--csv: %s: %s", opt->csv, why);
    status = bench_variants(stage, opt, list, n, csv);
    why = csv ? csv_close(csv) : NULL;
    if (why) fprintf(stderr, "%s: --csv: %s: %s\n", stage->name, opt->csv, why);
    return why ? 1 : status;
}
