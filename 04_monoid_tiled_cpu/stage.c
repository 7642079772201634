/* Stage 4: the monoid: attention is one fold.
 *
 *     (v1, m1) . (v2, m2) = (e^{m1 - m} v1 + e^{m2 - m} v2, m),   m = max(m1, m2)
 *
 * is associative and has a unit, so it is a monoid (monoid.h), and the loop of stage 3 is
 * its fold.  This file is that fold.  chunk.c, threads.c and pad.c beside it are three of the
 * five things that a monoid allows; variants/scan.c and variants/update.c are the other two.
 *
 * "Computing Attention via Monoid Aggregates"; notes/monoid.md has the proofs. */
#include "harness.h"

#include "monoid.h"
#include "scores.h"
#include "trace.h"
#include "variants.h"

/* Softmax of a row as a quotient of two folds: the one-hot vectors e_j in SE(R^n) by the
 * ones in SE(R).
 *     y = fold (e_j, x_j) / fold (1, x_j)
 *   x (n) scores; -INFINITY means masked     y (n) probabilities, the vector being folded
 * All of x masked gives y = 0.  After j elements y is 0 from j on, so only what lies
 * before is rescaled, and only when the maximum rises: n^2 / 2 products at worst. */
static void softmax_row(const float *x, float *y, size_t n)
{
    struct se ones = se_unit();
    for (size_t j = 0; j < n; j++) {
        struct se one = se_lift(x[j]), sum = se_merge(ones, one);
        if (ones.m != sum.m)
            for (size_t c = 0; c < j; c++) y[c] *= se_factor(ones.m, sum.m);
        y[j] = one.l == 0.0f ? 0.0f : one.l * se_factor(one.m, sum.m);
        ones = sum;
    }
    for (size_t j = 0; j < n; j++) y[j] = se_divide(ones, y[j]);
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static void logsoftmax(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        write_row(x, p->cols, fold_scores(x, p->cols), 1, (float *)a->y + i * p->cols);
    }
}

/* Attention of every row as one fold in SE(R^dv) x SE(R).  head_dim and head_dim_v may
 * differ: the first is summed away in the score, the second is the length of o. */
static void attention(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        struct aggregate x = {.o = r.o, .d = r.dv};
        fold_keys(&r, 0, r.n, &x);
        aggregate_push_sink(&x, r.sink);
        aggregate_finish(&x, r.o, r.lse);
    }
}

const struct variant fold = {
    .name = "fold",
    .idea = "one key after another",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax}, {OP_LOGSOFTMAX, logsoftmax},
             {OP_ATTENTION, attention}},
};

static const struct stage stage = {
    .number = 4,
    .name = "04_monoid_tiled_cpu",
    .idea = "attention is one fold in a monoid: chunk, thread, pad, scan, update it",
    .variants = variants,
    .trace = trace,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
