/* 2_correct_once.c: one correction for a chunk, not one for each key.
 *
 * The scores of a chunk come first, as in stage 2.  Their maximum is then known before the first
 * value is added, so l and o are multiplied once for 32 keys, and a key costs one exp, not two:
 * push_tile() of tile.h. */
#include "cost.h"
#include "tile.h"

/* Attention of one query, o (head_dim_v); returns lse. */
static float attention_row(const struct head *h, size_t i, float *o)
{
    struct aggregate x = {.o = o, .d = h->head_dim_v};
    float s[Bc], lse;
    aggregate_unit(&x);
    for (size_t j = 0; j < visible(h, i); j += Bc) {
        size_t n = smaller(Bc, visible(h, i) - j);
        for (size_t t = 0; t < n; t++) s[t] = score(h, i, j + t);
        push_tile(&x, s, v_row(h, j), n);
    }
    aggregate_finish(&x, o, &lse);
    return lse;
}

/* Attention of one head: query by query. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, o_row(h, i));
}

const struct variant correct_once = {
    .name = "correct_once", .idea = "one correction for 32 keys",
    RUNG,
    .by_head = {{OP_ATTENTION, attention_head}},
};
