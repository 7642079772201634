/* one_hot.c: softmax itself as a quotient of two folds: of the one-hot vectors e_j in
 * SE(R^n), and of ones in SE(R).
 *
 *     y = fold (e_j, x_j) / fold (1, x_j)
 * After j elements y is 0 from j on, so only what lies before is rescaled, and only when
 * the maximum rises: n^2 / 2 products at worst.  A theorem as a program, not a way to
 * compute softmax. */
#include "cost.h"
#include "monoid.h"

static float softmax_row(const float *x, float *y, size_t n)
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
    return se_lse(ones);
}

/* Each rescale rounds y: after more than that nobody promises its digits. */
static const char *refuses(const struct problem *p)
{
    return p->cols > 8192 ? "rows of more than 8192" : NULL;
}

/* Scores and probabilities are read and written twice; a rising maximum adds to it. */
static struct cost cost(const struct problem *p)
{
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 4, .bytes = 16 * n, .exps = 2 * n, .rfo_bytes = 4 * n};
}

const struct variant one_hot = {
    .name = "one_hot", .idea = "fold of one-hot vectors",
    ASIDE, .refuses = refuses, .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
};
