/* threads.c: stage 3 on all cores: a thread takes whole rows, or chunks of a long row.
 *
 * Each chunk as in one_look.c; the states of the chunks are merged in their order. */
#include <omp.h>

#include "look.h"
#include "stream.h"

#define CHUNK ((size_t)1 << 15)   /* elements of a row that one thread takes at a time */
#define MANY_ROWS 8               /* from so many rows a thread on, it takes whole rows */
#define LEAST_WORK ((size_t)1 << 14) /* fewer elements are done before a thread wakes up */

/* The operation of stage 4, y the later elements.  exp(0) is not computed. */
static struct state merge(struct state x, struct state y)
{
    float m = x.m > y.m ? x.m : y.m;
    float l = x.m == m ? x.l : x.l * sexp(x.m - m);
    return (struct state){m, l + (y.m == m ? y.l : y.l * sexp(y.m - m))};
}

/* The two loops of one row on one thread, in the chunks of long_row and so with its bits. */
static void whole_row(const float *x, float *y, size_t n, second_pass *second)
{
    struct state row = {-INFINITY, 0};
    for (size_t j = 0; j < n; j += CHUNK)
        row = merge(row, online_row_one_look(x + j, n - j < CHUNK ? n - j : CHUNK));
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
            states[c] = online_row_one_look(x + c * CHUNK, CHUNK_OF(c));
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

/* A state a chunk of a row. */
static size_t workspace(const struct problem *p)
{
    return (p->cols / CHUNK + 1) * sizeof(struct state);
}

const struct variant online_threads = {
    .name = "threads",
    .idea = "one_look on all cores",
    .group = IN_FAST,
    .all_cores = 1,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .cost = cost_streaming_large,
    .by_head = {{OP_ATTENTION, attention_head}},
    .does = {{OP_SOFTMAX, softmax_threads}, {OP_LOGSOFTMAX, logsoftmax_threads}},
};
