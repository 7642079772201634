/* sinks.c: attention with sinks.  A sink is a logit that a query head has beside its
 * scores: an element (0, 1, logit) of the fold, with the weight of a key and without a
 * value.
 *
 *     (m, l, o) . (logit, 1, 0)
 * It takes part in l, so all weights of the row shrink, and in lse.  Nothing else
 * changes. */
#include "aside.h"
#include "monoid.h"
#include "score.h"

static void attention(const struct problem *p, const struct arrays *a)
{
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
        for (size_t i = 0; i < h.seqlen_q; i++) {
            struct aggregate all = {.o = o_row(&h, i), .d = h.head_dim_v};
            aggregate_unit(&all);
            for (size_t j = 0; j < visible(&h, i); j++)
                aggregate_push(&all, score(&h, i, j), v_row(&h, j));
            if (p->has_sinks) aggregate_push_sink(&all, a->sinks[bh % p->heads_q]);
            aggregate_finish(&all, all.o, &h.lse[i]);
        }
    }
}

const struct variant sinks = {
    .name = "sinks",
    .idea = "a sink is one more element",
    .group = IN_ASIDES, .types = TYPE(F32), .supports = BASIC_FEATURES | WITH_SINKS,
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1,
    .cost = aside_cost,
    .does = {{OP_ATTENTION, attention}},
};
