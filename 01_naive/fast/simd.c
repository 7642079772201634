/* simd.c: stage 1 on vectors, on several accumulators, on all cores.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * The two passes of stage.c, unchanged; what changes is how much of them a core does at
 * once.  vexp_up is the exponential of vexp.h: at most 1.02 ulp, infinite above 88.72. */
#include <omp.h>

#include "stage.h"
#include "vector/vexp.h"

#define CHUNK ((size_t)1 << 15)   /* elements of a row that one thread takes at a time */
#define MANY_ROWS 64              /* from so many rows on, a thread takes whole rows */
#define LEAST_WORK ((size_t)1 << 14) /* fewer elements are done before a thread wakes up */

/* Pass 1 of a row: sum_j exp(x_j), LANES terms at a time into one vector.  Each addition
 * waits for the one before it.
 *   x (n) */
static float exp_sum(const float *x, size_t n)
{
    vfloat sum = {0};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) sum += vexp_up(vload(x + j));
    if (j < n) sum += vexp_up(vload_part(x + j, n - j, -INFINITY));
    return vsum(sum);
}

/* The same with four sums: an addition waits for the fourth before it. */
static float exp_sum_4(const float *x, size_t n)
{
    vfloat sum[UNROLL_MOST] = {{0}};
    size_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        UNROLL(u, 4, sum[u] += vexp_up(vload(x + j + u * LANES)));
    return vsum(sum[0] + sum[1] + (sum[2] + sum[3])) + exp_sum(x + j, n - j);
}

/* Pass 2: y_j = exp(x_j) / l.   x, y (n) */
static void exp_divide(const float *x, float *y, size_t n, float l)
{
    float scale = 1 / l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vexp_up(vload(x + j)) * scale);
    if (j < n) vstore_part(y + j, n - j, vexp_up(vload_part(x + j, n - j, 0)) * scale);
}

/* Softmax of one row; returns l.  All -INFINITY gives 0/0 = NaN. */
static float softmax_row(const float *x, float *y, size_t n)
{
    float l = exp_sum(x, n);
    exp_divide(x, y, n, l);
    return l;
}

static float softmax_row_4(const float *x, float *y, size_t n)
{
    float l = exp_sum_4(x, n);
    exp_divide(x, y, n, l);
    return l;
}

static void softmax_simd(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, (float *)a->y + i * p->cols, p->cols);
}

static void softmax_accumulators(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row_4(x + i * p->cols, (float *)a->y + i * p->cols, p->cols);
}

/* One long row on all threads.  A chunk's sum does not depend on who computes it, and the
 * sums are added in the order of the chunks: the number of threads changes no bit.
 *   sums  one float a chunk */
static void softmax_long_row(const float *x, float *y, size_t n, float *sums)
{
    size_t n_chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (size_t c = 0; c < n_chunks; c++)
            sums[c] = exp_sum_4(x + c * CHUNK, n - c * CHUNK < CHUNK ? n - c * CHUNK : CHUNK);
        float l = 0;
        for (size_t c = 0; c < n_chunks; c++) l += sums[c];
#pragma omp for schedule(static)
        for (size_t c = 0; c < n_chunks; c++)
            exp_divide(x + c * CHUNK, y + c * CHUNK,
                       n - c * CHUNK < CHUNK ? n - c * CHUNK : CHUNK, l);
    }
}

static void softmax_threads(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols;
    if (p->rows < MANY_ROWS && n > CHUNK) {
        for (size_t i = 0; i < p->rows; i++)
            softmax_long_row(x + i * n, y + i * n, n, a->workspace);
        return;
    }
#pragma omp parallel for schedule(static) if (p->rows > 1 && p->rows * n >= LEAST_WORK)
    for (size_t i = 0; i < p->rows; i++) softmax_row_4(x + i * n, y + i * n, n);
}

/* Scores of query i against every key; -INFINITY where masked.
 *   q_i (head_dim)   k (seqlen_k, head_dim)   bias_i (seqlen_k) or NULL   s (seqlen_k) */
static void score_row(const struct problem *p, size_t i, const float *q_i, const float *k,
                      const float *bias_i, float *s)
{
    struct key_range keys = visible_keys(p, i);
    for (size_t j = 0; j < p->seqlen_k; j++) {
        s[j] = -INFINITY;
        if (j < keys.first || j >= keys.end) continue;
        if (bias_i && bias_i[j] == -INFINITY) continue;
        s[j] = p->scale * vdot(q_i, k + j * p->head_dim, p->head_dim) + (bias_i ? bias_i[j] : 0);
    }
}

/* o_i = sum_j p_j v_j.   p_i (seqlen_k)   v (seqlen_k, head_dim_v)   o_i (head_dim_v) */
static void weighted_sum(const struct problem *p, const float *p_i, const float *v, float *o_i)
{
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < p->seqlen_k; j++)
        vaxpy(1, o_i, p_i[j], v + j * p->head_dim_v, p->head_dim_v);
}

/* The three steps S, P, O, each over all queries of a head before the next, as in stage.c;
 * the queries of a step are shared by `threads` threads. */
static void attention_with(const struct problem *p, const struct arrays *a, int threads)
{
    size_t n = p->seqlen_k, dv = p->head_dim_v, group = p->heads_q / p->heads_kv;
    float *s = a->workspace, *prob = s + p->seqlen_q * n;
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++) {
        size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / group;
        size_t first = bh * p->seqlen_q;
        const float *q = (const float *)a->q + first * p->head_dim;
        const float *k = (const float *)a->k + kv * n * p->head_dim;
        const float *v = (const float *)a->v + kv * n * dv;
        float *o = (float *)a->o + first * dv;
#pragma omp parallel num_threads(threads)
        {
#pragma omp for schedule(static)
            for (size_t i = 0; i < p->seqlen_q; i++)
                score_row(p, i, q + i * p->head_dim, k, a->bias ? a->bias + i * n : NULL,
                          s + i * n);
#pragma omp for schedule(static)
            for (size_t i = 0; i < p->seqlen_q; i++)
                a->lse[first + i] = logf(softmax_row_4(s + i * n, prob + i * n, n));
#pragma omp for schedule(static)
            for (size_t i = 0; i < p->seqlen_q; i++)
                weighted_sum(p, prob + i * n, v, o + i * dv);
        }
    }
}

static void attention_simd(const struct problem *p, const struct arrays *a)
{
    attention_with(p, a, 1);
}

static void attention_threads(const struct problem *p, const struct arrays *a)
{
    attention_with(p, a, omp_get_max_threads());
}

/* S and P of one head; for softmax one sum a chunk. */
static size_t workspace(const struct problem *p)
{
    if (p->op == OP_ATTENTION) return 2 * p->seqlen_q * p->seqlen_k * sizeof(float);
    return (p->cols / CHUNK + 1) * sizeof(float);
}

/* As stage.c: vectors and threads move the same bytes. */
static struct cost cost(const struct problem *p)
{
    if (p->op == OP_ATTENTION) {
        double n = score_count(p);
        return (struct cost){.passes = 5, .bytes = 5 * 4 * n + attention_io_bytes(p),
                             .exps = 2 * n};
    }
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 3, .bytes = 3 * 4 * n, .exps = 2 * n, .rfo_bytes = 4 * n};
}

const struct variant naive_simd = {
    .name = "simd",
    .idea = "vectors of floats with an exponential of our own",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = 60,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_simd}, {OP_ATTENTION, attention_simd}},
};

const struct variant naive_accumulators = {
    .name = "accumulators",
    .idea = "four sums, so that an addition need not wait for the last one",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = 60,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_accumulators}},
};

const struct variant naive_threads = {
    .name = "threads",
    .idea = "rows, or chunks of a long row, on all cores",
    .group = IN_FAST,
    .device = ON_CPU,
    .all_cores = 1,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = 60,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_threads}, {OP_ATTENTION, attention_threads}},
};
