/* safe.c: stage 2 for the figures. */
#include "figures.h"

#include "../../../02_safe_softmax/variants.c"
#include "problem/heads.h"

/* As naive_row(), with the maximum subtracted. */
int EXPORT(safe_row)(int n, int type)
{
    float m = -INFINITY, l = 0;
    n_steps = 0, loop = 1;
    if (type == F32) return traced_row(softmax_row, n);
    for (int j = 0; j < n; j++) {
        m = scores[j] > m ? scores[j] : m;
        add_state((size_t)j, scores[j], m, NAN, 1);
    }
    if (m == -INFINITY) m = 0;
    loop = 2;
    for (int j = 0; j < n; j++) {
        weights[j] = to_type(expf(to_type(scores[j] - m, type)), type);
        l = to_type(l + weights[j], type);
        add_state((size_t)j, scores[j], m, l, 1);
    }
    for (int j = 0; j < n; j++) weights[j] = l == 0 ? 0 : to_type(weights[j] / l, type);
    return n_steps;
}

void safe_attention(const struct problem *p, const struct arrays *a)
{
    struct head h = head_of(p, a, 0);
    h.s = a->workspace;
    h.p = h.s + p->seqlen_q * p->seqlen_k;
    attention_head(&h);
}
struct cost safe_cost(const struct problem *p) { return cost(p); }
