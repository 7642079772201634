/* softmax.c: softmax of rows on all cores: chunks folded by vectors, merged as elements of SE(R).
 *
 *     y = exp(x - m) / l,   (l, m) = chunk_1 . chunk_2 . ... . chunk_n
 * A chunk's element does not depend on who folds it, and elements are merged in the order of
 * the chunks: the number of threads changes no bit.  Inside a chunk a block's terms are
 * relative to the maximum m before it (vexp_sum), which is an element too, (l, m), only not
 * with the largest m; the fold makes it so after each block.
 *
 * A row of up to KEEP floats is one such block.  The first-level cache keeps its exponentials
 * until l is known, so there is one per element and x is read once. */
#include <omp.h>

#include "monoid.h"
#include "softmax.h"
#include "vector/vexp.h"

#define BLOCK 4096                /* elements between two rescales */
#define CHUNK ((size_t)1 << 15)   /* elements of a row that one thread takes at a time */
#define KEEP 4096                 /* up to so many the first-level cache keeps exponentials */
#define MANY_ROWS 8               /* from so many rows a thread on, it takes whole rows */
#define LEAST_WORK ((size_t)1 << 14)  /* fewer elements are done before a thread wakes up */
#define STREAM_FROM ((size_t)1 << 22) /* outputs of so many elements bypass the cache */
#define AHEAD 1024                /* so far ahead loop 2 asks for x */

/* The largest of the first few of x (n), n >= 1: a reference point for the exponentials. */
static float first_max(const float *x, size_t n)
{
    enum { FEW = 8 * LANES };
    vfloat top = n < LANES ? vload_part(x, n, -INFINITY) : vload(x);
    for (size_t j = LANES; j < FEW && j + LANES <= n; j += LANES) top = vmax(vload(x + j), top);
    return vlargest(vmax(top, vset(-INFINITY)));
}

/* The fold of the ones over a chunk x (n), n >= 1. */
static struct se fold_chunk(const float *x, size_t n)
{
    vfloat l = {0};
    float m = first_max(x, n);
    for (size_t j = 0; j < n; j += BLOCK) {
        size_t n_block = n - j < BLOCK ? n - j : BLOCK;
        struct block_sum block = vexp_sum(x + j, n_block, m);
        if (block.top > m + VEXP_ROOM) { /* again, from the larger maximum */
            l *= sexp(m - block.top);
            m = block.top;
            block = vexp_sum(x + j, n_block, m);
        }
        l += block.sum;
        if (block.top > m) {
            l *= sexp(m - block.top);
            m = block.top;
        }
    }
    struct se chunk = {m, vsum(l)};
    if (m == -INFINITY && chunk.l != 0) chunk.m = 0; /* NaN among masked scores: no unit */
    return chunk;
}

/* The fold of a row x (n), chunk by chunk. */
static struct se fold_row(const float *x, size_t n)
{
    struct se row = se_unit();
    for (size_t j = 0; j < n; j += CHUNK)
        row = se_merge(row, fold_chunk(x + j, n - j < CHUNK ? n - j : CHUNK));
    return row;
}

/* exp(x_j - m) / l; 0 for the unit. */
INLINE vfloat share_of(vfloat x, struct se row)
{
    float m = row.m == -INFINITY ? 0 : row.m, scale = se_divide(row, 1);
    return vexp2((x - m) * VEXP_LOG2E) * scale;
}

/* y = softmax of x (n), part of a row whose fold is `row`. */
static void write(const float *x, float *y, size_t n, struct se row)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, share_of(vload(x + j), row));
    if (j < n) vstore_part(y + j, n - j, share_of(vload_part(x + j, n - j, 0), row));
}

/* The same past the cache, from the first whole vector of y on. */
static void write_streaming(const float *x, float *y, size_t n, struct se row)
{
    size_t head = (VECTOR_BYTES - (uintptr_t)y % VECTOR_BYTES) % VECTOR_BYTES / sizeof(float);
    if (head > n) head = n;
    write(x, y, head, row);
    size_t j = head;
    for (; j + LANES <= n; j += LANES) {
        vfetch(x + j, AHEAD);
        vstream(y + j, share_of(vload(x + j), row));
    }
    write(x + j, y + j, n - j, row);
}

/* y = log-softmax: x - m - log(l), in this order; -INFINITY for the unit. */
static void write_log(const float *x, float *y, size_t n, struct se row)
{
    float m = row.m == -INFINITY ? 0 : row.m, log_l = row.l == 0 ? 0 : logf(row.l);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vload(x + j) - m - log_l);
    for (; j < n; j++) y[j] = x[j] - m - log_l;
}

typedef void writer(const float *x, float *y, size_t n, struct se row);

/* One long row on all threads.   chunks  memory for an element a chunk */
static void long_row(const float *x, float *y, size_t n, struct se *chunks, writer *write_part)
{
    size_t n_chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel
    {
#define CHUNK_OF(c) (n - (c) * CHUNK < CHUNK ? n - (c) * CHUNK : CHUNK)
#pragma omp for schedule(static)
        for (size_t c = 0; c < n_chunks; c++)
            chunks[c] = fold_chunk(x + c * CHUNK, CHUNK_OF(c));
        struct se row = se_unit();
        for (size_t c = 0; c < n_chunks; c++) row = se_merge(row, chunks[c]);
#pragma omp for schedule(static)
        for (size_t c = 0; c < n_chunks; c++)
            write_part(x + c * CHUNK, y + c * CHUNK, CHUNK_OF(c), row);
        vstream_end();
    }
}

/* A row of at most `vectors` vectors, a constant, stays in registers from its load to its
 * store: loops and merges would take longer than its exponentials.
 *   x, y (n)   (vectors - 1) * LANES < n <= vectors * LANES
 *   stream     past the cache; y then begins on a whole vector, and n is whole vectors */
INLINE void row_in_registers(int vectors, const float *x, float *y, size_t n, int stream)
{
    vfloat e[UNROLL_MOST], top = vset(-INFINITY), sum = vset(0);
    size_t last = (size_t)(vectors - 1) * LANES, rest = n - last;
    UNROLL(u, vectors - 1, e[u] = vload(x + u * LANES));
    e[vectors - 1] = rest == LANES ? vload(x + last) : vload_part(x + last, rest, -INFINITY);
    UNROLL(u, vectors, top = vmax(e[u], top));
    struct se row = {vlargest(top), 0};
    float m = row.m == -INFINITY ? 0 : row.m;
    UNROLL(u, vectors, e[u] = (e[u] - m) * VEXP_LOG2E);
    vexp2_lockstep(vectors, e);
    UNROLL(u, vectors, sum += e[u]);
    row.l = vsum(sum);
    float scale = se_divide(row, 1);
    if (stream) {
        UNROLL(u, vectors, vfetch(x + u * LANES, AHEAD); vstream(y + u * LANES, e[u] * scale));
        return;
    }
    UNROLL(u, vectors - 1, vstore(y + u * LANES, e[u] * scale));
    if (rest == LANES) vstore(y + last, e[vectors - 1] * scale);
    else vstore_part(y + last, rest, e[vectors - 1] * scale);
}

/* kept (n, up to a whole vector) = exp(x - m), their sum, and the largest x: vexp_sum that
 * keeps its exponentials. */
static struct block_sum keep_exps(const float *x, size_t n, float m, float *kept)
{
    enum { STEP = VEXP_AT_ONCE * LANES };
    float shift = m == -INFINITY ? 0 : m;
    vfloat top[2] = {vset(-INFINITY), vset(-INFINITY)}, sum[2] = {{0}};
    size_t j = 0;
    for (; j + STEP <= n; j += STEP) {
        vfloat e[UNROLL_MOST];
        UNROLL(u, VEXP_AT_ONCE, vfloat x_j = vload(x + j + u * LANES);
               vfetch(x + j + u * LANES, VEXP_AHEAD);
               top[u % 2] = vmax(x_j, top[u % 2]);
               e[u] = (x_j - shift) * VEXP_LOG2E);
        vexp2_lockstep(VEXP_AT_ONCE, e);
        UNROLL(u, VEXP_AT_ONCE, vstore(kept + j + u * LANES, e[u]); sum[u % 2] += e[u]);
    }
    for (; j < n; j += LANES) {
        vfloat x_j = n - j < LANES ? vload_part(x + j, n - j, -INFINITY) : vload(x + j);
        vfloat e = vexp2((x_j - shift) * VEXP_LOG2E);
        top[0] = vmax(x_j, top[0]);
        vstore(kept + j, e);
        sum[0] += e;
    }
    return (struct block_sum){vlargest(vmax(top[0], top[1])), sum[0] + sum[1]};
}

/* A row of at most KEEP floats: one exponential per element instead of two, because the
 * first-level cache keeps it until the sum is known.   stream: as row_in_registers */
static void row_in_cache(const float *x, float *y, size_t n, int stream)
{
    float kept[KEEP] __attribute__((aligned(VECTOR_BYTES)));
    float m = first_max(x, n);
    struct block_sum all = keep_exps(x, n, m, kept);
    if (all.top > m + VEXP_ROOM) { /* again, from the largest */
        m = all.top;
        all = keep_exps(x, n, m, kept);
    }
    struct se row = {m, vsum(all.sum)};
    if (m == -INFINITY && row.l != 0) row.m = 0; /* NaN among masked scores: no unit */
    float scale = se_divide(row, 1);
    size_t j = 0;
    for (; stream && j < n; j += LANES) vstream(y + j, vload(kept + j) * scale);
    for (; j + LANES <= n; j += LANES) vstore(y + j, vload(kept + j) * scale);
    if (j < n) vstore_part(y + j, n - j, vload(kept + j) * scale);
}

/* Rows of up to KEEP floats. */
static void short_rows(const float *x, float *y, size_t rows, size_t n, int stream)
{
    for (size_t i = 0; i < rows; i++, x += n, y += n)
        switch ((n + LANES - 1) / LANES) {
        case 1: row_in_registers(1, x, y, n, stream); break;
        case 2: row_in_registers(2, x, y, n, stream); break;
        case 3: row_in_registers(3, x, y, n, stream); break;
        case 4: row_in_registers(4, x, y, n, stream); break;
        default: row_in_cache(x, y, n, stream);
        }
    if (stream) vstream_end();
}

/* A share of the rows for each thread. */
static void all_short_rows(const struct problem *p, const struct arrays *a, int stream)
{
    size_t n = p->cols;
    if (n % LANES || (uintptr_t)a->y % VECTOR_BYTES) stream = 0;
#pragma omp parallel if (p->rows > 1 && p->rows * n >= LEAST_WORK)
    {
        size_t me = (size_t)omp_get_thread_num(), all = (size_t)omp_get_num_threads();
        size_t first = p->rows * me / all, end = p->rows * (me + 1) / all;
        short_rows((const float *)a->x + first * n, (float *)a->y + first * n, end - first, n,
                   stream);
    }
}

static void rows_with(const struct problem *p, const struct arrays *a, writer *write_part)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols, threads = (size_t)omp_get_max_threads();
    if (p->rows < MANY_ROWS * threads && n > CHUNK) {
        for (size_t i = 0; i < p->rows; i++)
            long_row(x + i * n, y + i * n, n, a->workspace, write_part);
        return;
    }
#pragma omp parallel if (p->rows > 1 && p->rows * n >= LEAST_WORK)
    {
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < p->rows; i++)
            write_part(x + i * n, y + i * n, n, fold_row(x + i * n, n));
        vstream_end();
    }
}

static int streams(const struct problem *p)
{
    return p->op == OP_SOFTMAX && p->rows * p->cols >= STREAM_FROM;
}

void rows_softmax(const struct problem *p, const struct arrays *a)
{
    if (p->cols > 0 && p->cols <= KEEP) all_short_rows(p, a, streams(p));
    else rows_with(p, a, streams(p) ? write_streaming : write);
}

void rows_logsoftmax(const struct problem *p, const struct arrays *a)
{
    rows_with(p, a, write_log);
}

size_t rows_workspace(const struct problem *p)
{
    return (p->cols / CHUNK + 1) * sizeof(struct se);
}

struct cost rows_cost(const struct problem *p)
{
    double n = (double)p->rows * (double)p->cols;
    int in_cache = p->op == OP_SOFTMAX && p->cols <= KEEP, passes = in_cache ? 2 : 3;
    return (struct cost){.passes = passes, .bytes = 4 * passes * n,
                         .rfo_bytes = streams(p) ? 0 : 4 * n,
                         .exps = (p->op == OP_LOGSOFTMAX || in_cache ? 1 : 2) * n};
}
