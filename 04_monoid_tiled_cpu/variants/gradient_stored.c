/* gradient_stored.c: the backward pass of attention as the textbook writes it: P and dS are
 * matrices in memory, as S and P are in stage 2, and every gradient is a product with one. */
#include "gradient_pair.h"

/* scratch  P and dS, pairs (seqlen_q, seqlen_k) */
static void backward_of_head(const struct problem *p, const struct gradient *g)
{
    struct pair *pairs = (struct pair *)(void *)g->scratch;
    size_t n = p->seqlen_k;
    clear(pairs, p->seqlen_q * n * sizeof *pairs / sizeof(float)); /* what is hidden stays 0 */
    for (size_t i = 0; i < p->seqlen_q; i++) {
        float D = D_of(p, g, i);
        struct key_range sees = visible_keys(p, i);
        for (size_t j = sees.first; j < sees.end; j++) pairs[i * n + j] = pair_of(p, g, i, j, D);
    }
    for (size_t i = 0; i < p->seqlen_q; i++)
        for (size_t j = 0; j < n; j++) add_pair(p, g, i, j, pairs[i * n + j]);
}

static void backward(const struct problem *p, const struct arrays *a)
{
    each_query_head(p, a, backward_of_head);
}

static size_t workspace(const struct problem *p)
{
    return p->seqlen_q * p->seqlen_k * sizeof(struct pair);
}

/* P and dS are written once and read three times each; q, k, v, o, do and the gradients move
 * once. */
static struct cost cost(const struct problem *p)
{
    struct cost cost = cost_of_scores(p, 2, 1);
    cost.passes = 4;
    cost.bytes += attention_io_bytes(p);
    return cost;
}

const struct variant gradient_stored = {
    .name = "gradient_stored", .idea = "P and dS are stored",
    GRADIENT, .workspace = workspace, .cost = cost,
    .does = {{OP_BACKWARD, backward}},
};
