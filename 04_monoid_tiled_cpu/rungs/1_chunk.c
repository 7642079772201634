/* 1_chunk.c: the keys of a query in chunks, each folded alone, then merged.
 *
 * The merge is associative, so the keys may be cut anywhere.  A chunk depends on no other: it may
 * be folded on another thread, or on another machine (mpi/). */
#include "cost.h"
#include "monoid.h"
#include "score.h"

enum { Bc = 32 }; /* keys of a chunk */

/* x = the partial result of the keys first .. end - 1 for query i: the loop of stage.c. */
static void fold_keys(const struct head *h, size_t i, size_t first, size_t end,
                      struct aggregate *x)
{
    aggregate_unit(x);
    for (size_t j = first; j < end; j++) aggregate_push(x, score(h, i, j), v_row(h, j));
}

/* Attention of one query, o (head_dim_v); returns lse.
 *   h->scratch (head_dim_v)  the o of a chunk */
static float attention_row(const struct head *h, size_t i, float *o)
{
    struct aggregate x = {.o = o, .d = h->head_dim_v};
    struct aggregate chunk = {.o = h->scratch, .d = h->head_dim_v};
    float lse;
    aggregate_unit(&x);
    for (size_t j = 0; j < visible(h, i); j += Bc) {
        fold_keys(h, i, j, smaller(j + Bc, visible(h, i)), &chunk);
        aggregate_merge(&x, &chunk);
    }
    aggregate_finish(&x, o, &lse);
    return lse;
}

/* Attention of one head: query by query. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, o_row(h, i));
}

const struct variant chunk = {
    .name = "chunk", .idea = "chunks of keys, merged",
    RUNG, .workspace = one_row_of_o,
    .by_head = {{OP_ATTENTION, attention_head}},
};
