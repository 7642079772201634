/* online.c: stage 3 for the figures. */
#include "figures.h"

#include "../../../03_online_softmax/variants.c"
#include "problem/heads.h"

/* As naive_row(), in one loop whose l is rounded to the type after each score. */
int EXPORT(online_row)(int n, int type)
{
    float m = -INFINITY, l = 0;
    n_steps = 0, loop = 1;
    if (type == F32) return traced_row(softmax_row, n);
    for (int j = 0; j < n; j++) {
        float m_new = scores[j] > m ? scores[j] : m;
        float correction = m_new == m ? 1 : expf(m - m_new);
        if (scores[j] != -INFINITY) l = to_type(l * correction + expf(scores[j] - m_new), type);
        m = m_new;
        add_state((size_t)j, scores[j], m, l, correction);
    }
    for (int j = 0; j < n; j++)
        weights[j] = l == 0 ? 0 : to_type(expf(scores[j] - m) / l, type);
    return n_steps;
}

void online_attention(const struct problem *p, const struct arrays *a)
{
    struct head h = head_of(p, a, 0);
    attention_head(&h);
}
struct cost online_cost(const struct problem *p) { return cost(p); }
