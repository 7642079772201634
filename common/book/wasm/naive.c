/* naive.c: stage 1 for the figures. */
#include "figures.h"

#include "../../../01_naive/stage.c"

/* The trace ends with a table of the first scores that fail, which the figure leaves out. */
float first_failing_score(enum dtype dtype, size_t n)
{
    (void)dtype, (void)n;
    return NAN;
}

/* Steps and weights of the row of n scores; returns the number of steps.
 * In 16 bits every stored number is rounded to the type: the scores, each term, the sum. */
int EXPORT(naive_row)(int n, int type)
{
    float l = 0;
    n_steps = 0, loop = 1;
    if (type == F32) {
        trace(NULL, scores, (size_t)n, NULL, 0);
        softmax_row(scores, weights, (size_t)n);
        return n_steps;
    }
    for (int j = 0; j < n; j++) {
        l = to_type(l + to_type(expf(scores[j]), type), type);
        trace_state(NULL, "element", (size_t)j, scores[j], NAN, l, NULL, 0, 1);
    }
    for (int j = 0; j < n; j++)
        weights[j] = to_type(to_type(expf(scores[j]), type) / l, type);
    return n_steps;
}

/* Attention of the problem at p as this stage does it. */
void naive_attention(const struct problem *p, const struct arrays *a) { attention(p, a); }
struct cost naive_cost(const struct problem *p) { return cost(p); }
