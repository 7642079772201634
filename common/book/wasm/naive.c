/* naive.c: stage 1 for the figures. */
#include "figures.h"

#include "../../../01_naive/variants.c"
#include "problem/heads.h"

/* Steps and weights of the row of n scores; returns the number of steps.
 * In 16 bits every stored number is rounded to the type: the scores, each term, the sum. */
int EXPORT(naive_row)(int n, int type)
{
    float l = 0;
    n_steps = 0, loop = 1;
    if (type == F32) return traced_row(softmax_row, n);
    for (int j = 0; j < n; j++) {
        l = to_type(l + to_type(expf(scores[j]), type), type);
        add_state((size_t)j, scores[j], NAN, l, 1);
    }
    for (int j = 0; j < n; j++)
        weights[j] = to_type(to_type(expf(scores[j]), type) / l, type);
    return n_steps;
}

/* Attention of the problem at p as this stage does it. */
void naive_attention(const struct problem *p, const struct arrays *a)
{
    struct head h = head_of(p, a, 0);
    h.s = a->workspace;
    h.p = h.s + p->seqlen_q * p->seqlen_k;
    attention_head(&h);
}
struct cost naive_cost(const struct problem *p) { return cost(p); }
