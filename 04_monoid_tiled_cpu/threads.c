/* threads.c: second use of a monoid: parts of the keys on several threads.
 *
 * The keys are cut into PARTS parts, whatever the number of threads.  Any thread may fold any
 * part; then the parts of each row are merged in order.  The same additions happen in the same
 * order with 1, 2 or 7 threads, so the answer is the same bit for bit.  A shared sum to which
 * threads add as they finish would differ from run to run. */
#include "scores.h"

#define PARTS 16 /* parts of a row; fixed, so that threads do not change an answer */
#define SMALL (1 << 14) /* so few scores are not worth waking threads for */

/* Each part of each row of a head, then the merges.
 * workspace: PARTS aggregates for each row of a head, then their o. */
static void attention_threads(const struct problem *p, const struct arrays *a)
{
    size_t n_rows = p->seqlen_q, dv = p->head_dim_v;
    struct aggregate *parts = a->workspace; /* (PARTS, n_rows) */
    float *o = (float *)(parts + PARTS * n_rows);
    for (size_t head = 0; head < p->batch * p->heads_q; head++) {
#pragma omp parallel for schedule(dynamic) if (n_rows * p->seqlen_k > SMALL)
        for (size_t t = 0; t < PARTS; t++)
            for (size_t i = 0; i < n_rows; i++) {
                struct row r = row_of(p, a, head * n_rows + i);
                struct aggregate *x = &parts[t * n_rows + i];
                x->o = o + (t * n_rows + i) * dv;
                x->d = dv;
                fold_keys(&r, r.n * t / PARTS, r.n * (t + 1) / PARTS, x);
            }
#pragma omp parallel for if (n_rows * p->seqlen_k > SMALL)
        for (size_t i = 0; i < n_rows; i++) {
            struct row r = row_of(p, a, head * n_rows + i);
            for (size_t t = 1; t < PARTS; t++)
                aggregate_merge(&parts[i], &parts[t * n_rows + i]);
            aggregate_finish(&parts[i], r.o, r.lse);
        }
    }
}

static size_t workspace_threads(const struct problem *p)
{
    size_t element = sizeof(struct aggregate) + p->head_dim_v * sizeof(float);
    return PARTS * p->seqlen_q * element;
}

static void rows_on_threads(const struct problem *p, const struct arrays *a, int log_of)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        float *y = (float *)a->y + i * p->cols;
        struct se parts[PARTS], s = se_unit();
#pragma omp parallel for if (p->cols > SMALL)
        for (size_t t = 0; t < PARTS; t++) {
            size_t first = p->cols * t / PARTS, last = p->cols * (t + 1) / PARTS;
            parts[t] = fold_scores(x + first, last - first);
        }
        for (size_t t = 0; t < PARTS; t++) s = se_merge(s, parts[t]);
#pragma omp parallel for if (p->cols > SMALL)
        for (size_t t = 0; t < PARTS; t++) {
            size_t first = p->cols * t / PARTS, last = p->cols * (t + 1) / PARTS;
            write_row(x + first, last - first, s, log_of, y + first);
        }
    }
}

static void softmax_threads(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, 0);
}

static void logsoftmax_threads(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, 1);
}

const struct variant monoid_threads = {
    .name = "threads",
    .idea = "16 parts on any threads",
    .all_cores = 1,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_threads,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_threads}, {OP_LOGSOFTMAX, logsoftmax_threads},
             {OP_ATTENTION, attention_threads}},
};
