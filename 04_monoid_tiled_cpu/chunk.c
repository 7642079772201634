/* chunk.c: first use of a monoid: parentheses may be moved, so each chunk is folded alone.
 *
 *     (x1 . x2 . x3) . (x4 . x5 . x6) . ...
 * On a GPU a chunk is the tile of keys that fits into fast memory. */
#include "scores.h"

#define CHUNK 32 /* keys (or scores) in a chunk */

/* Folds the chunks and merges the results.   workspace: the o of a chunk */
static void attention_chunks(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        struct aggregate all = {.o = r.o, .d = r.dv};
        struct aggregate chunk = {.o = a->workspace, .d = r.dv};
        aggregate_unit(&all);
        for (size_t j = 0; j < r.n; j += CHUNK) {
            fold_keys(&r, j, smaller(j + CHUNK, r.n), &chunk);
            aggregate_merge(&all, &chunk);
        }
        aggregate_finish(&all, r.o, r.lse);
    }
}

static size_t workspace_chunks(const struct problem *p)
{
    return p->head_dim_v * sizeof(float);
}

static void rows_in_chunks(const struct problem *p, const struct arrays *a, int log_of)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        struct se s = se_unit();
        for (size_t j = 0; j < p->cols; j += CHUNK)
            s = se_merge(s, fold_scores(x + j, smaller(CHUNK, p->cols - j)));
        write_row(x, p->cols, s, log_of, (float *)a->y + i * p->cols);
    }
}

static void softmax_chunks(const struct problem *p, const struct arrays *a)
{
    rows_in_chunks(p, a, 0);
}

static void logsoftmax_chunks(const struct problem *p, const struct arrays *a)
{
    rows_in_chunks(p, a, 1);
}

const struct variant monoid_chunk = {
    .name = "chunk",
    .idea = "chunks of keys, merged",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_chunks,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_chunks}, {OP_LOGSOFTMAX, logsoftmax_chunks},
             {OP_ATTENTION, attention_chunks}},
};
