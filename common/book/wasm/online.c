/* online.c: stage 3 for the figures. */
#include "figures.h"

#include "../../../03_online_softmax/stage.c"

/* As naive_row(), in one loop: online_step() of stage 3, whose state is rounded to the type
 * after each score. */
int EXPORT(online_row)(int n, int type)
{
    struct state s = {-INFINITY, 0};
    n_steps = 0, loop = 1;
    if (type == F32) {
        trace(NULL, scores, (size_t)n, NULL, 0);
        softmax_row(scores, weights, (size_t)n);
        return n_steps;
    }
    for (int j = 0; j < n; j++) {
        struct state before = s;
        s = online_step(s, scores[j]);
        s.l = to_type(s.l, type);
        trace_state(NULL, "element", (size_t)j, scores[j], s.m, s.l, NULL, 0,
                    s.m > before.m ? expf(before.m - s.m) : 1);
    }
    for (int j = 0; j < n; j++)
        weights[j] = s.l == 0 ? 0 : to_type(expf(scores[j] - s.m) / s.l, type);
    return n_steps;
}

void online_attention(const struct problem *p, const struct arrays *a) { attention(p, a); }
struct cost online_cost(const struct problem *p) { return cost(p); }
