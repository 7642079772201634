/* threads.c: stage 2 on all cores: a thread takes whole rows, or chunks of a long row.
 *
 *     softmax(x)_j = exp(x_j - m) / sum_t exp(x_t - m),    m = max_t x_t
 * Each row as in row.h: the exponentials are stored and rescaled. */
#include "row.h"

/* One long row on all threads, softmax or its logarithm.  What a chunk gives does not
 * depend on who computes it, and chunks are combined in their order: the number of threads
 * changes no bit.
 *   part  one float a chunk */
static void safe_long_row(const float *x, float *y, size_t n, float *part, int logarithm)
{
    size_t chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel
    {
        /* loop 1: maximum */
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++) part[c] = largest(x + c * CHUNK, CHUNK_OF(n, c));
        float m = shift_of(largest(part, chunks)), l = 0;
#pragma omp barrier /* everybody has read the maxima */

        /* loop 2: denominator */
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++)
            part[c] = logarithm ? exp_sum(x + c * CHUNK, CHUNK_OF(n, c), m)
                                : exp_store(x + c * CHUNK, y + c * CHUNK, CHUNK_OF(n, c), m);
        for (size_t c = 0; c < chunks; c++) l += part[c];

        /* loop 3: divide */
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++) {
            float *y_c = y + c * CHUNK;
            if (logarithm) subtract(x + c * CHUNK, y_c, CHUNK_OF(n, c), (struct state){m, l});
            else rescale(y_c, CHUNK_OF(n, c), l);
        }
    }
}

static void safe_rows(const struct problem *p, const struct arrays *a, int logarithm)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols;
    if (p->rows < MANY_ROWS * (size_t)omp_get_max_threads() && n > CHUNK) {
        for (size_t i = 0; i < p->rows; i++)
            safe_long_row(x + i * n, y + i * n, n, a->workspace, logarithm);
        return;
    }
#pragma omp parallel for schedule(static) if (p->rows > 1 && p->rows * n >= LEAST_WORK)
    for (size_t i = 0; i < p->rows; i++) {
        if (logarithm) logsoftmax_row(x + i * n, y + i * n, n);
        else softmax_state(x + i * n, y + i * n, n);
    }
}

static void softmax_threads(const struct problem *p, const struct arrays *a)
{
    safe_rows(p, a, 0);
}

static void logsoftmax_threads(const struct problem *p, const struct arrays *a)
{
    safe_rows(p, a, 1);
}

/* One float a chunk. */
static size_t workspace(const struct problem *p)
{
    return (p->cols / CHUNK + 1) * sizeof(float);
}

const struct variant safe_threads = {
    .name = "threads", .idea = "all cores; exp stored",
    .group = IN_FAST, .all_cores = 1, SAFE_ON_CPU, .workspace = workspace,
    .cost = cost_reload,
    .by_head = {{OP_ATTENTION, attention_head}},
    .stores_scores = 1,
    .does = {{OP_SOFTMAX, softmax_threads}, {OP_LOGSOFTMAX, logsoftmax_threads}},
};
