/* threads.c: stage 1 on all cores: a thread takes whole rows, or chunks of a long row.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * Each row is computed as in simd.c. */
#include "row.h"

#define CHUNK ((size_t)1 << 15)   /* elements of a row that one thread takes at a time */
#define MANY_ROWS 64              /* from so many rows on, a thread takes whole rows */
#define LEAST_WORK ((size_t)1 << 14) /* fewer elements are done before a thread wakes up */

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
            sums[c] = exp_sum(x + c * CHUNK, n - c * CHUNK < CHUNK ? n - c * CHUNK : CHUNK);
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
    for (size_t i = 0; i < p->rows; i++) softmax_row(x + i * n, y + i * n, n);
}

/* One sum a chunk. */
static size_t workspace(const struct problem *p)
{
    return (p->cols / CHUNK + 1) * sizeof(float);
}

const struct variant naive_threads = {
    .name = "threads",
    .idea = "rows, or parts of one, on all cores",
    .group = IN_FAST,
    .all_cores = 1,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = 60,
    .isolates_v = 1,
    .workspace = workspace,
    .cost = cost,
    .by_head = {{OP_ATTENTION, attention_head}},
    .stores_scores = 1,
    .does = {{OP_SOFTMAX, softmax_threads}},
};
