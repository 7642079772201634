/* gradient_recompute.c: the backward pass of attention in one loop over the pairs: P comes back
 * from q, k and lse, and nothing of size seqlen_q x seqlen_k is stored.
 *
 * It reads like stage 3's loop, and needs less: lse is known, so there is no maximum to follow and
 * nothing to rescale.  A row's dq is complete after its keys; dk and dv collect from every row. */
#include "gradient_pair.h"

static void backward_of_head(const struct problem *p, const struct gradient *g)
{
    for (size_t i = 0; i < p->seqlen_q; i++) {
        float D = D_of(p, g, i);
        struct key_range sees = visible_keys(p, i);
        for (size_t j = sees.first; j < sees.end; j++)
            add_pair(p, g, i, j, pair_of(p, g, i, j, D));
    }
}

static void backward(const struct problem *p, const struct arrays *a)
{
    each_query_head(p, a, backward_of_head);
}

static struct cost cost(const struct problem *p)
{
    struct cost cost = cost_of_scores(p, 0, 1);
    cost.bytes *= 2; /* do and the gradients, too */
    return cost;
}

const struct variant gradient_recompute = {
    .name = "gradient_recompute", .idea = "P from lse, nothing stored",
    GRADIENT, .cost = cost,
    .does = {{OP_BACKWARD, backward}},
};
