/* sinks.c: attention with sinks.  A sink is a logit that a query head has beside its
 * scores: an element (0, 1, logit) of the fold, with the weight of a key and without a
 * value.
 *
 *     (m, l, o) . (logit, 1, 0)
 * It takes part in l, so all weights of the row shrink, and in lse.  Nothing else
 * changes. */
#include "cost.h"
#include "monoid.h"
#define EIGHT_SUMS
#include "score.h"

/* x = x . (0, 1, logit).  A logit of -INFINITY is no sink. */
static void push_sink(struct aggregate *x, float logit)
{
    struct se s = {x->m, x->l}, with_sink = se_merge(s, se_lift(logit));
    if (logit == -INFINITY) return;
    for (size_t c = 0; c < x->d; c++)
        x->o[c] *= s.m == -INFINITY ? 0.0f : se_factor(s.m, with_sink.m);
    x->m = with_sink.m, x->l = with_sink.l;
}

static void attention(const struct problem *p, const struct arrays *a)
{
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
        for (size_t i = 0; i < h.seqlen_q; i++) {
            struct aggregate all = {.o = o_row(&h, i), .d = h.head_dim_v};
            aggregate_unit(&all);
            for (size_t j = 0; j < visible(&h, i); j++)
                aggregate_push(&all, score(&h, i, j), v_row(&h, j));
            if (p->has_sinks) push_sink(&all, a->sinks[bh % p->heads_q]);
            aggregate_finish(&all, all.o, &h.lse[i]);
        }
    }
}

const struct variant sinks = {
    .name = "sinks", .idea = "a sink is one more element",
    .group = IN_ASIDES, .types = TYPE(F32), .supports = BASIC_FEATURES | WITH_SINKS,
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1, .cost = fold_cost,
    .does = {{OP_ATTENTION, attention}},
};
