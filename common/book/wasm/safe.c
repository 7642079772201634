/* safe.c: stage 2 for the figures. */
#include "figures.h"

#include "../../../02_safe_softmax/stage.c"

/* As naive_row(), with the maximum subtracted. */
int EXPORT(safe_row)(int n, int type)
{
    float m = -INFINITY, l = 0;
    n_steps = 0, loop = 1;
    if (type == F32) {
        trace(NULL, scores, (size_t)n, NULL, 0);
        softmax_row(scores, weights, (size_t)n);
        return n_steps;
    }
    for (int j = 0; j < n; j++) {
        m = scores[j] > m ? scores[j] : m;
        trace_state(NULL, "element", (size_t)j, scores[j], m, NAN, NULL, 0, 1);
    }
    m = row_maximum(scores, (size_t)n);
    loop = 2;
    for (int j = 0; j < n; j++) {
        weights[j] = to_type(expf(to_type(scores[j] - m, type)), type);
        l = to_type(l + weights[j], type);
        trace_state(NULL, "element", (size_t)j, scores[j], m, l, NULL, 0, 1);
    }
    for (int j = 0; j < n; j++) weights[j] = l == 0 ? 0 : to_type(weights[j] / l, type);
    return n_steps;
}

void safe_attention(const struct problem *p, const struct arrays *a) { attention(p, a); }
struct cost safe_cost(const struct problem *p) { return cost(p); }
