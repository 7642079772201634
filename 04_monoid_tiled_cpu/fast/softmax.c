/* softmax.c: softmax of rows on all cores: chunks folded by vectors, merged in their order.
 *
 *     y = exp(x - m) / l,   (l, m) = chunk_1 . chunk_2 . ... . chunk_n
 * Long rows as in stage 3 (vector/softmax_rows.h), whose `merge` is this stage's operation.  A row of up
 * to KEEP floats is one chunk: the first-level cache keeps its exponentials until l is known, so
 * there is one per element and x is read once. */
#include "serves.h"
#include "vector/softmax_rows.h"

#define KEEP 4096 /* up to so many the first-level cache keeps exponentials */

/* A row of at most KEEP floats: one exponential per element instead of two, because the
 * first-level cache keeps it until the sum is known.   stream: as row_in_registers */
static void row_in_cache(const float *x, float *y, size_t n, int stream)
{
    float kept[KEEP] __attribute__((aligned(VECTOR_BYTES)));
    float m = first_max(x, n);
    struct block_sum all = vexp_sum(x, n, m, kept);
    if (all.top > m + VEXP_ROOM) { /* again, from the largest */
        m = all.top;
        all = vexp_sum(x, n, m, kept);
    }
    float scale = scale_of(vsum(all.sum));
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

static int streams(const struct problem *p)
{
    return p->op == OP_SOFTMAX && p->rows * p->cols >= STREAM_FROM;
}

void rows_softmax(const struct problem *p, const struct arrays *a)
{
    if (p->cols > 0 && p->cols <= KEEP) all_short_rows(p, a, streams(p));
    else rows_on_threads(p, a, online_row_one_look, streams(p) ? divide_streaming : divide);
}

void rows_logsoftmax(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, online_row_one_look, subtract);
}

size_t rows_workspace(const struct problem *p) { return states_of_rows(p); }

struct cost rows_cost(const struct problem *p)
{
    double n = (double)p->rows * (double)p->cols;
    int in_cache = p->op == OP_SOFTMAX && p->cols <= KEEP, passes = in_cache ? 2 : 3;
    return (struct cost){.passes = passes, .bytes = 4 * passes * n,
                         .rfo_bytes = streams(p) ? 0 : 4 * n,
                         .exps = (p->op == OP_LOGSOFTMAX || in_cache ? 1 : 2) * n};
}
