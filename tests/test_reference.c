/* test_reference.c: the reference of the operations on rows, and what holds of every
 * reference, against closed forms. */
#include <string.h>

#include "attention_problem.h"
#include "problem/feature.h"
#include "verification/standard.h"

extern void omp_set_num_threads(int);

static struct standard *rows_standard(enum op op, size_t rows, size_t cols, const float *x)
{
    struct problem p = {.op = op, .rows = rows, .cols = cols};
    struct arrays a = {.x = x, .w = x};
    return standard_new(&p, &a);
}

/* A masked row gives zero and its logarithm; NaN or inf spoils its row only; totals may be beyond
 * float; a sum in plain double would lose the 1 beside 1e30. */
Test(reference, rows_are_those_of_the_definition)
{
    const double inf = INFINITY, big = 3e38f, e1 = exp(1), e2 = exp(2), e3 = exp(3);
    const double l = 1 + e1 + e2 + e3, log_l = log(2 + exp(-1));
    const struct { enum op op; size_t rows, cols; double x[6], want[6]; } of[] = {
        {OP_SOFTMAX, 1, 4, {0, 1, 2, 3}, {1 / l, e1 / l, e2 / l, e3 / l}},
        {OP_LOGSOFTMAX, 1, 4, {10000, 10000, 9999, -inf}, {-log_l, -log_l, -1 - log_l, -inf}},
        {OP_SOFTMAX, 2, 2, {-inf, -inf, 1, -inf}, {0, 0, 1, 0}},
        {OP_LOGSOFTMAX, 2, 2, {-inf, -inf, 1, -inf}, {-inf, -inf, 0, -inf}},
        {OP_SOFTMAX, 3, 2, {1, NAN, 2, inf, 1, 1}, {NAN, NAN, NAN, NAN, 0.5, 0.5}},
        {OP_MEAN, 2, 3, {big, big, big, 1, 2, 6}, {big, 3}},
        {OP_MEAN, 1, 3, {1e30f, 1, -1e30f}, {1 / 3.0}}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        float x[6];
        for (int j = 0; j < 6; j++) x[j] = (float)of[k].x[j];
        struct standard *r = rows_standard(of[k].op, of[k].rows, of[k].cols, x);
        const struct answer *y = &r->answer[ARRAY_Y];
        for (size_t j = 0; j < y->n; j++)
            cr_expect(near(y->want[j], of[k].want[j]), "row %zu, element %zu: %.17g, want %.17g", k, j,
                      y->want[j], of[k].want[j]);
        cr_expect(r->empty_rows == (of[k].op <= OP_LOGSOFTMAX && of[k].x[1] == -inf), "row %zu", k);
        cr_expect((r->max_score == inf) == (k == 4), "row %zu: scores up to %g", k, r->max_score);
        standard_free(r);
    }
}
