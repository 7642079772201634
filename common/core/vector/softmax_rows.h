/* softmax_rows.h: softmax of rows in vectors and on all cores, for the fast/ folders of stages 1 to 4.
 *
 *     loop 1: (m, l) of the row     loop 2: y_j = exp(x_j - m) / l
 *
 * A thread takes whole rows, or chunks of a long row.  What a chunk gives does not depend on
 * who computes it, and chunks are merged in their order: the number of threads changes no bit.
 *
 * exp(x - m) is 2^((x - m) * log2(e)): one multiply-add less than vexp, and its extra rounding
 * is no larger than that of x - m. */
#pragma once

#include <omp.h>

#include "harness.h"
#include "vector/vexp.h"

#define LOOK 4096                     /* elements between two corrections of l, 16 KiB */
#define CHUNK ((size_t)1 << 15)       /* elements of a row that one thread takes at a time */
#define MANY_ROWS 8                   /* from so many rows a thread on, it takes whole rows */
#define LEAST_WORK ((size_t)1 << 14)  /* fewer elements are done before a thread wakes up */
#define STREAM_FROM ((size_t)1 << 22) /* outputs of so many elements bypass the cache */
#define AHEAD 1024                    /* so far ahead loop 2 asks for x */

/* Maximum and denominator of a row or a part of it.  Empty: m = -INFINITY, l = 0. */
struct state { float m, l; };

/* What is subtracted from each score: m, or 0 where no score is visible, because
 * -INFINITY - -INFINITY is NaN. */
static inline float shift_of(float m) { return m == -INFINITY ? 0 : m; }

/* 1 / l; 0 for a row without visible scores. */
static inline float scale_of(float l) { return l == 0 ? 0 : 1 / l; }

/* exp(x - m) */
INLINE vfloat weight(vfloat x, float m) { return vexp2((x - m) * VEXP_LOG2E); }

/* ---- loop 1 ---- */

/* The state of x and of the later y: the operation of stage 4.  exp(0) is not computed. */
static inline struct state merge(struct state x, struct state y)
{
    float m = x.m > y.m ? x.m : y.m;
    float l = x.m == m ? x.l : x.l * sexp(x.m - m);
    return (struct state){m, l + (y.m == m ? y.l : y.l * sexp(y.m - m))};
}

/* The largest of the first few of x (n), n >= 1: a reference point for the exponentials. */
static inline float first_max(const float *x, size_t n)
{
    enum { FEW = 8 * LANES };
    vfloat top = n < LANES ? vload_part(x, n, -INFINITY) : vload(x);
    for (size_t j = LANES; j < FEW && j + LANES <= n; j += LANES) top = vmax(vload(x + j), top);
    return vlargest(vmax(top, vset(-INFINITY)));
}

/* Each element is looked at once.  What a block adds to l is relative to the maximum m before
 * it, and l is corrected afterwards if m has grown:
 *     l = (l + sum_j exp(x_j - m)) * exp(m - m_new)
 * A block that exceeds m by more than VEXP_ROOM is looked at twice.   x (n), n >= 1 */
static inline struct state online_row_one_look(const float *x, size_t n)
{
    vfloat l = {0};
    float m = first_max(x, n);
    for (size_t j = 0; j < n; j += LOOK) {
        size_t n_block = n - j < LOOK ? n - j : LOOK;
        struct block_sum block = vexp_sum(x + j, n_block, m, NULL);
        if (block.top > m + VEXP_ROOM) {
            l *= sexp(m - block.top);
            m = block.top;
            block = vexp_sum(x + j, n_block, m, NULL);
        }
        l += block.sum;
        if (block.top > m) {
            l *= sexp(m - block.top);
            m = block.top;
        }
    }
    return (struct state){m, vsum(l)};
}

/* ---- loop 2 ---- */

/* y_j = exp(x_j - m) / l; 0 when l is 0.   x, y (n) */
static inline void divide(const float *x, float *y, size_t n, struct state s)
{
    float shift = shift_of(s.m), scale = scale_of(s.l);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, weight(vload(x + j), shift) * scale);
    if (j < n) vstore_part(y + j, n - j, weight(vload_part(x + j, n - j, 0), shift) * scale);
}

/* The same with non-temporal stores: y is written without being read, and leaves the cache
 * to x.  Up to the first whole vector of y, and after the last, stores are plain.  The
 * caller ends its last row with vstream_end(): each such end waits for the memory. */
static inline void divide_streaming(const float *x, float *y, size_t n, struct state s)
{
    float shift = shift_of(s.m), scale = scale_of(s.l);
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
static inline void subtract(const float *x, float *y, size_t n, struct state s)
{
    float m = shift_of(s.m), log_l = s.l == 0 ? 0 : logf(s.l);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vload(x + j) - m - log_l);
    for (; j < n; j++) y[j] = x[j] - m - log_l;
}

/* Both loops over a row that stays in registers, `vectors` of them, a constant.  A short row
 * is over before loops and calls have paid off.
 *   x, y (n)  (vectors - 1) * LANES < n <= vectors * LANES
 *   stream    past the cache; y then begins on a whole vector, and n is whole vectors */
INLINE struct state row_in_registers(int vectors, const float *x, float *y, size_t n, int stream)
{
    vfloat e[UNROLL_MOST], top = vset(-INFINITY), sum = {0};
    size_t last = (size_t)(vectors - 1) * LANES, rest = n - last;
    UNROLL(u, vectors - 1, e[u] = vload(x + u * LANES));
    e[vectors - 1] = rest == LANES ? vload(x + last) : vload_part(x + last, rest, -INFINITY);
    UNROLL(u, vectors, top = vmax(e[u], top));
    float m = vlargest(top), shift = shift_of(m);
    UNROLL(u, vectors, e[u] = (e[u] - shift) * VEXP_LOG2E);
    vexp2_lockstep(vectors, e);
    UNROLL(u, vectors, sum += e[u]);
    struct state row = {m, vsum(sum)};
    float scale = scale_of(row.l);
    if (stream) {
        UNROLL(u, vectors, vfetch(x + u * LANES, AHEAD); vstream(y + u * LANES, e[u] * scale));
        return row;
    }
    UNROLL(u, vectors - 1, vstore(y + u * LANES, e[u] * scale));
    if (rest == LANES) vstore(y + last, e[vectors - 1] * scale);
    else vstore_part(y + last, rest, e[vectors - 1] * scale);
    return row;
}

/* ---- all rows on all cores ---- */

typedef struct state first_pass(const float *x, size_t n);
typedef void second_pass(const float *x, float *y, size_t n, struct state s);

#define CHUNK_OF(n, c) ((n) - (c) * CHUNK < CHUNK ? (n) - (c) * CHUNK : CHUNK)

/* Bytes of a->workspace for rows_on_threads(). */
static inline size_t states_of_rows(const struct problem *p)
{
    return (p->cols / CHUNK + 1) * sizeof(struct state);
}

/* One row on one thread, in the chunks of long_row and so with its bits. */
INLINE void whole_row(const float *x, float *y, size_t n, first_pass *first, second_pass *second)
{
    if (n == 0) return;
    struct state row = first(x, CHUNK_OF(n, 0));
    for (size_t c = 1; c * CHUNK < n; c++)
        row = merge(row, first(x + c * CHUNK, CHUNK_OF(n, c)));
    second(x, y, n, row);
}

/* One row on all threads. */
INLINE void long_row(const float *x, float *y, size_t n, struct state *states, first_pass *first,
                     second_pass *second)
{
    size_t chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++) states[c] = first(x + c * CHUNK, CHUNK_OF(n, c));
        struct state row = {-INFINITY, 0};
        for (size_t c = 0; c < chunks; c++) row = merge(row, states[c]);
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++)
            second(x + c * CHUNK, y + c * CHUNK, CHUNK_OF(n, c), row);
        vstream_end();
    }
}

/* All rows. */
INLINE void rows_on_threads(const struct problem *p, const struct arrays *a, first_pass *first,
                            second_pass *second)
{
    const float *x = a->x;
    float *y = a->y;
    size_t rows = p->rows, n = p->cols;
    if (rows < MANY_ROWS * (size_t)omp_get_max_threads() && n > CHUNK) {
        for (size_t i = 0; i < rows; i++)
            long_row(x + i * n, y + i * n, n, a->workspace, first, second);
        return;
    }
#pragma omp parallel if (rows > 1 && rows * n >= LEAST_WORK)
    {
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < rows; i++) whole_row(x + i * n, y + i * n, n, first, second);
        vstream_end();
    }
}
