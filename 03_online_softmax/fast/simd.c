/* simd.c: stage 3 on vectors, in blocks, past the cache, in powers of two, on all cores.
 *
 *     m_new = max(m, x_j),   l = l * exp(m - m_new) + exp(x_j - m_new)
 * Every lane of a vector is a stream of its own with its own m and l; the lanes, and the
 * chunks of a row that is shared by threads, are merged at the end by the same rule.
 *
 * The exponential is 2^((x - m) * log2(e)): one multiply-add less than vexp, and its extra
 * rounding is no larger than that of x - m. */
#include <omp.h>

#include "stage.h"
#include "vector/vexp.h"

#define BLOCK 2048                /* elements between two looks at the maximum: 8 KiB */
#define LOOK 4096                 /* elements of a single look, 16 KiB */
#define CHUNK ((size_t)1 << 15)   /* elements of a row that one thread takes at a time */
#define MANY_ROWS 8               /* from so many rows a thread on, it takes whole rows */
#define LEAST_WORK ((size_t)1 << 14) /* fewer elements are done before a thread wakes up */
#define AHEAD 1024                /* so far ahead pass 2 asks for x */
#define STREAM_FROM ((size_t)1 << 22) /* outputs of so many elements bypass the cache */

/* m and l of each lane.  Empty: m = -INFINITY, l = 0. */
struct lanes { vfloat m, l; };

/* m and l of a row or chunk. */
struct state { float m, l; };

/* What stands in for m in a difference: 0 where nothing was seen, because
 * -INFINITY - -INFINITY is NaN. */
INLINE vfloat shift_of(vfloat m)
{
    return vclear(vequal(m, vset(-INFINITY)), m);
}

/* exp(x - m) */
INLINE vfloat weight(vfloat x, vfloat m)
{
    return vexp2((x - m) * VEXP_LOG2E);
}

/* Online step of every lane.  Of the two exponentials of the rule one is exp(0) = 1, so one
 * exp(-|x - m|) does: it rescales l when x is the new maximum, and is added when it is not. */
INLINE struct lanes online_step(struct lanes s, vfloat x)
{
    vmask grows = vless(s.m, x);
    vfloat low = vselect(grows, s.m, x), high = vselect(grows, x, s.m);
    vfloat e = weight(low, shift_of(high)), one = vset(1);
    s.l = vfma(s.l, vselect(grows, e, one), vselect(grows, one, e));
    s.m = high;
    return s;
}

/* Takes in n elements at once, n <= BLOCK: their maximum first, one rescale, then the sum.
 *   x (n) */
INLINE struct lanes online_block(struct lanes s, const float *x, size_t n)
{
    vfloat m[UNROLL_MOST], sum[UNROLL_MOST] = {{0}};
    size_t j = 0;
    UNROLL(u, 4, m[u] = s.m);
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        UNROLL(u, 4, m[u] = vmax(vload(x + j + u * LANES), m[u]));
    for (; j + LANES <= n; j += LANES) m[0] = vmax(vload(x + j), m[0]);
    if (j < n) m[1] = vmax(vload_part(x + j, n - j, -INFINITY), m[1]);
    vfloat m_new = vmax(vmax(m[0], m[1]), vmax(m[2], m[3])), shift = shift_of(m_new);
    for (j = 0; j + 4 * LANES <= n; j += 4 * LANES)
        UNROLL(u, 4, sum[u] += weight(vload(x + j + u * LANES), shift));
    for (; j + LANES <= n; j += LANES) sum[0] += weight(vload(x + j), shift);
    if (j < n) sum[1] += weight(vload_part(x + j, n - j, -INFINITY), shift);
    vfloat all = sum[0] + sum[1] + (sum[2] + sum[3]);
    return (struct lanes){m_new, vfma(s.l, weight(s.m, shift), all)};
}

/* The lanes merged: m = max m_i,  l = sum l_i exp(m_i - m). */
static struct state merge_lanes(struct lanes s)
{
    struct state row = {vlargest(s.m), 0};
    row.l = vsum(s.l * weight(s.m, shift_of(vset(row.m))));
    return row;
}

/* Pass 1 of a row, one vector at a time. */
static struct state online_by_step(const float *x, size_t n)
{
    struct lanes s = {vset(-INFINITY), vset(0)};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) s = online_step(s, vload(x + j));
    if (j < n) s = online_step(s, vload_part(x + j, n - j, -INFINITY));
    return merge_lanes(s);
}

/* Pass 1 of a row, one block at a time. */
static struct state online_by_block(const float *x, size_t n)
{
    struct lanes s = {vset(-INFINITY), vset(0)};
    for (size_t j = 0; j < n; j += BLOCK)
        s = online_block(s, x + j, n - j < BLOCK ? n - j : BLOCK);
    return merge_lanes(s);
}

/* Pass 1 of a row, each element looked at once.  What a block adds to l is relative to the
 * maximum m before it, and l is rescaled afterwards if m has grown:
 *     l = (l + sum_j exp(x_j - m)) * exp(m - m_new)
 * Before the first block m is the largest of a few elements.  A block that exceeds m by more
 * than VEXP_ROOM is looked at twice. */
static struct state online_by_look(const float *x, size_t n)
{
    enum { FEW = 8 * LANES };
    vfloat l = {0}, m = n < LANES ? vload_part(x, n, -INFINITY) : vload(x);
    for (size_t j = LANES; j < FEW && j + LANES <= n; j += LANES) m = vmax(vload(x + j), m);
    struct state s = {vlargest(vmax(m, vset(-INFINITY))), 0};
    for (size_t j = 0; j < n; j += LOOK) {
        size_t n_block = n - j < LOOK ? n - j : LOOK;
        struct vexp_sum block = vexp_sum(x + j, n_block, s.m);
        if (block.top > s.m + VEXP_ROOM) {
            l *= sexp(s.m - block.top);
            s.m = block.top;
            block = vexp_sum(x + j, n_block, s.m);
        }
        l += block.sum;
        if (block.top > s.m) {
            l *= sexp(s.m - block.top);
            s.m = block.top;
        }
    }
    s.l = vsum(l);
    return s;
}

/* Pass 2 of a row: y_j = exp(x_j - m) / l; 0 when l is 0.   x, y (n) */
static void divide(const float *x, float *y, size_t n, struct state s)
{
    vfloat shift = shift_of(vset(s.m));
    float scale = s.l == 0 ? 0 : 1 / s.l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, weight(vload(x + j), shift) * scale);
    if (j < n) vstore_part(y + j, n - j, weight(vload_part(x + j, n - j, 0), shift) * scale);
}

/* The same with non-temporal stores: y is written without being read, and leaves the cache
 * to x.  Up to the first whole vector of y, and after the last, stores are plain.  The
 * caller ends its last row with vstream_end(): each such end waits for the memory. */
static void divide_streaming(const float *x, float *y, size_t n, struct state s)
{
    vfloat shift = shift_of(vset(s.m));
    float scale = s.l == 0 ? 0 : 1 / s.l;
    size_t head = (VECTOR_BYTES - (uintptr_t)y % VECTOR_BYTES) % VECTOR_BYTES / sizeof(float);
    if (head > n) head = n;
    divide(x, y, head, s);
    size_t j = head;
    for (; j + LANES <= n; j += LANES) {
        vfetch(x + j, AHEAD);
        vstream(y + j, weight(vload(x + j), shift) * scale);
    }
    divide(x + j, y + j, n - j, s);
}

/* y_j = x_j - m - log(l), in this order.   x, y (n) */
static void subtract(const float *x, float *y, size_t n, struct state s)
{
    float m = s.m == -INFINITY ? 0 : s.m, log_l = s.l == 0 ? 0 : logf(s.l);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vload(x + j) - m - log_l);
    for (; j < n; j++) y[j] = x[j] - m - log_l;
}

/* The two passes of every row, one row after the other. */
typedef struct state first_pass(const float *x, size_t n);
typedef void second_pass(const float *x, float *y, size_t n, struct state s);

static void each_row(const struct problem *p, const struct arrays *a, first_pass *first,
                     second_pass *second)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols;
    for (size_t i = 0; i < p->rows; i++)
        second(x + i * n, y + i * n, n, first(x + i * n, n));
    vstream_end();
}

static void softmax_simd(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_by_step, divide);
}

static void softmax_blocked(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_by_block, divide);
}

static void softmax_streaming(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_by_block, divide_streaming);
}

static void softmax_one_look(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_by_look,
             p->rows * p->cols >= STREAM_FROM ? divide_streaming : divide);
}

static void logsoftmax_blocked(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_by_block, subtract);
}

/* The operation of stage 4, y the later elements.  exp(0) is not computed. */
static struct state merge(struct state x, struct state y)
{
    float m = x.m > y.m ? x.m : y.m;
    float l = x.m == m ? x.l : x.l * sexp(x.m - m);
    return (struct state){m, l + (y.m == m ? y.l : y.l * sexp(y.m - m))};
}

/* The two passes of one row on one thread, in the chunks of long_row and so with its bits. */
static void whole_row(const float *x, float *y, size_t n, second_pass *second)
{
    struct state row = {-INFINITY, 0};
    for (size_t j = 0; j < n; j += CHUNK)
        row = merge(row, online_by_look(x + j, n - j < CHUNK ? n - j : CHUNK));
    second(x, y, n, row);
}

/* One long row on all threads: a state for each chunk, merged in the order of the chunks,
 * so that the number of threads changes no bit.
 *   states  memory for a state a chunk */
static void long_row(const float *x, float *y, size_t n, struct state *states,
                     second_pass *second)
{
    size_t chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel
    {
#define CHUNK_OF(c) (n - (c) * CHUNK < CHUNK ? n - (c) * CHUNK : CHUNK)
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++)
            states[c] = online_by_look(x + c * CHUNK, CHUNK_OF(c));
        struct state row = {-INFINITY, 0};
        for (size_t c = 0; c < chunks; c++) row = merge(row, states[c]);
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++)
            second(x + c * CHUNK, y + c * CHUNK, CHUNK_OF(c), row);
        vstream_end();
    }
}

static void all_rows(const struct problem *p, const struct arrays *a, second_pass *second)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols, threads = (size_t)omp_get_max_threads();
    if (p->rows < MANY_ROWS * threads && n > CHUNK) {
        for (size_t i = 0; i < p->rows; i++)
            long_row(x + i * n, y + i * n, n, a->workspace, second);
        return;
    }
#pragma omp parallel if (p->rows > 1 && p->rows * n >= LEAST_WORK)
    {
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < p->rows; i++) whole_row(x + i * n, y + i * n, n, second);
        vstream_end();
    }
}

static void softmax_threads(const struct problem *p, const struct arrays *a)
{
    all_rows(p, a, p->rows * p->cols >= STREAM_FROM ? divide_streaming : divide);
}

static void logsoftmax_threads(const struct problem *p, const struct arrays *a)
{
    all_rows(p, a, subtract);
}

/* m and l with m an integer: the row's exponentials are l * 2^m, and rescaling l, a
 * multiplication by a power of two, is exact.  m is kept as the float m + VEXP_ROUND, whose
 * low bits are m + 127. */
struct power_lanes { vfloat m, l; };

/* Beyond +-FAR the split of exp into t and n is inaccurate: n * LN2_HI must be exact, in a
 * multiply-add or, without one, as a float.  A clamped score must still vanish next to a
 * maximum of 2^-FAR: 0.44 FAR > 126. */
#define FAR (HAS_FMA ? 16384.0f : 350.0f)

/* exp(x) = (1 + t) 2^n, n + VEXP_ROUND returned in *z.  Scores below -FAR count as -FAR. */
INLINE vfloat split(vfloat x, vfloat *z)
{
    x = vmax(vset(-FAR), x); /* in this order NaN stays NaN */
    *z = vfma(x, vset(VEXP_LOG2E), vset(VEXP_ROUND));
    vfloat n = *z - VEXP_ROUND;
    vfloat r = vfma(n, vset(-VEXP_LN2_HI), x);
    r = vfma(n, vset(-VEXP_LN2_LO), r);
    vfloat q = vfma(vset(VEXP_C6), r, vset(VEXP_C5));
    q = vfma(q, r, vset(VEXP_C4));
    q = vfma(q, r, vset(VEXP_C3));
    q = vfma(q, r, vset(VEXP_C2));
    return vfma(q, r * r, r);
}

/* 2^(n - m) for n <= m, 0 when that is below 2^-126; n and m as z above. */
INLINE vfloat power_of_difference(vfloat n, vfloat m)
{
    vint biased = (vint)n - (vint)m + 127;
    return (vfloat)((vint)vbits_positive((vfloat)biased) << 23);
}

/* Dukhan and Ablavatski 2020, Algorithm 3 (the two-pass algorithm): pass 1 needs no
 * maximum of x, only that of n, which the exponential finds anyway. */
static struct power_lanes power_sum(const float *x, size_t n)
{
    struct power_lanes s = {vset(VEXP_ROUND - 2 * FAR), vset(0)}; /* l = 0: any m will do */
    for (size_t j = 0; j < n; j += 4 * LANES) {
        vfloat t[UNROLL_MOST], z[UNROLL_MOST], m = s.m, sum = {0};
        UNROLL(u, 4, size_t at = j + (size_t)u * LANES; size_t left = at < n ? n - at : 0;
               vfloat v = left >= LANES ? vload(x + at) : vload_part(x + at, left, -INFINITY);
               t[u] = split(v, &z[u]);
               m = vmax(z[u], m));
        UNROLL(u, 4, vfloat power = power_of_difference(z[u], m);
               sum += vfma(t[u], power, power));
        s.l = s.l * power_of_difference(s.m, m) + sum;
        s.m = m;
    }
    return s;
}

/* Softmax of one row in two passes with a power of two for a maximum.
 *     pass 1: l, m     pass 2: y_j = (1 + t) 2^(n - m) / l
 * A row whose largest score is beyond +-FAR, or that has none, is left to the blocks. */
static void two_pass_row(const float *x, float *y, size_t n, int streaming)
{
    struct power_lanes s = power_sum(x, n);
    vfloat m = vset(vlargest(s.m));
    float l = vsum(s.l * power_of_difference(s.m, m)), top = m[0] - VEXP_ROUND;
    if (!(top > -FAR && top < FAR)) {
        (streaming ? divide_streaming : divide)(x, y, n, online_by_block(x, n));
        return;
    }
    float scale = 1 / l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vfloat z, t = split(vload(x + j), &z), power = power_of_difference(z, m) * scale;
        vfloat y_j = vfma(t, power, power);
        if (streaming) vstream(y + j, y_j);
        else vstore(y + j, y_j);
    }
    if (j < n) {
        vfloat z, t = split(vload_part(x + j, n - j, 0), &z);
        vfloat power = power_of_difference(z, m) * scale;
        vstore_part(y + j, n - j, vfma(t, power, power));
    }
}

static void softmax_two_pass(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    int whole_vectors = p->cols % LANES == 0 && (uintptr_t)a->y % VECTOR_BYTES == 0;
    int streaming = whole_vectors && p->rows * p->cols >= STREAM_FROM;
    for (size_t i = 0; i < p->rows; i++)
        two_pass_row(x + i * p->cols, y + i * p->cols, p->cols, streaming);
    vstream_end();
}

/* Attention of one query in one loop over blocks of keys; no score outlives its block.
 *   q_i (head_dim)   k (seqlen_k, head_dim)   v (seqlen_k, head_dim_v)
 *   bias_i (seqlen_k) or NULL   o_i (head_dim_v)
 * Returns lse.  Masked keys are left out; if there is no other, o = 0, lse = -INFINITY. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i, float *o_i)
{
    enum { KEYS = 64 };
    float s[KEYS];
    struct key_range keys = visible_keys(p, i);
    size_t n = keys.end, dv = p->head_dim_v;
    struct lanes all = {vset(-INFINITY), vset(0)};
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < dv; d++) o_i[d] = 0;
    for (size_t j0 = keys.first; j0 < n; j0 += KEYS) {
        size_t n_keys = n - j0 < KEYS ? n - j0 : KEYS;
        for (size_t j = 0; j < n_keys; j++) {
            float bias = bias_i ? bias_i[j0 + j] : 0;
            s[j] = p->scale * vdot(q_i, k + (j0 + j) * p->head_dim, p->head_dim) + bias;
            if (bias == -INFINITY) s[j] = -INFINITY; /* whatever the key holds */
        }
        struct state block = merge_lanes(online_block(all, s, n_keys));
        float m_new = block.m > m ? block.m : m, shift = m_new == -INFINITY ? 0 : m_new;
        float factor = sexp(m - shift);
        l = l * factor + block.l * sexp((block.m == -INFINITY ? shift : block.m) - shift);
        for (size_t d = 0; d < dv; d++) o_i[d] *= factor;
        for (size_t j = 0; j < n_keys; j++) {
            if (bias_i && bias_i[j0 + j] == -INFINITY) continue;
            vaxpy(1, o_i, sexp(s[j] - shift), v + (j0 + j) * dv, dv);
        }
        m = m_new;
    }
    for (size_t d = 0; d < dv; d++) o_i[d] = l == 0 ? 0 : o_i[d] / l;
    return m + logf(l);
}

static void attention_with(const struct problem *p, const struct arrays *a, int threads)
{
    size_t n = p->seqlen_k, group = p->heads_q / p->heads_kv;
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads)
    for (size_t row = 0; row < p->batch * p->heads_q * p->seqlen_q; row++) {
        size_t bh = row / p->seqlen_q, i = row % p->seqlen_q;
        size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / group;
        a->lse[row] = attention_row(p, i, (const float *)a->q + row * p->head_dim,
                                    (const float *)a->k + kv * n * p->head_dim,
                                    (const float *)a->v + kv * n * p->head_dim_v,
                                    a->bias ? a->bias + i * n : NULL,
                                    (float *)a->o + row * p->head_dim_v);
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

/* A state a chunk of a row. */
static size_t workspace(const struct problem *p)
{
    return p->op == OP_ATTENTION ? 0 : (p->cols / CHUNK + 1) * sizeof(struct state);
}

/* x is read twice, y written once. */
static struct cost cost(const struct problem *p)
{
    if (p->op == OP_ATTENTION)
        return (struct cost){.passes = 0, .bytes = attention_io_bytes(p),
                             .exps = 2 * score_count(p)};
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 3, .bytes = 3 * 4 * n, .rfo_bytes = 4 * n,
                         .exps = (p->op == OP_LOGSOFTMAX ? 1 : 2) * n};
}

/* Non-temporal stores read nothing unasked. */
static struct cost cost_streaming(const struct problem *p)
{
    struct cost c = cost(p);
    c.rfo_bytes = 0;
    return c;
}

static struct cost cost_streaming_large(const struct problem *p)
{
    return p->op == OP_SOFTMAX && p->rows * p->cols >= STREAM_FROM ? cost_streaming(p) : cost(p);
}

const struct variant online_simd = {
    .name = "simd",
    .idea = "a stream a lane; exp(-|x - m|) serves as either factor of the rule",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_simd}, {OP_ATTENTION, attention_simd}},
};

const struct variant online_blocked = {
    .name = "blocked",
    .idea = "one rescale for 2048 elements",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_blocked}, {OP_LOGSOFTMAX, logsoftmax_blocked}},
};

const struct variant online_streaming = {
    .name = "streaming",
    .idea = "y stored past the cache: 12 bytes an element instead of 16",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = cost_streaming,
    .does = {{OP_SOFTMAX, softmax_streaming}},
};

const struct variant online_two_pass = {
    .name = "two_pass",
    .idea = "a power of two for a maximum: no search for it, exact rescales",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = cost_streaming_large,
    .does = {{OP_SOFTMAX, softmax_two_pass}},
};

const struct variant online_one_look = {
    .name = "one_look",
    .idea = "a block's terms relative to the maximum before it: one look at each element",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = cost_streaming_large,
    .does = {{OP_SOFTMAX, softmax_one_look}},
};

const struct variant online_threads = {
    .name = "threads",
    .idea = "rows, or chunks of a long row, on all cores; large outputs past the cache",
    .group = IN_FAST,
    .device = ON_CPU,
    .all_cores = 1,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .cost = cost_streaming_large,
    .does = {{OP_SOFTMAX, softmax_threads}, {OP_LOGSOFTMAX, logsoftmax_threads},
             {OP_ATTENTION, attention_threads}},
};
