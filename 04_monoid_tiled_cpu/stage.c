/* Stage 4: attention of some keys is a partial result, and partial results can be merged.
 *
 *     (o1, l1, m1) . (o2, l2, m2) = (f1 o1 + f2 o2, f1 l1 + f2 l2, m)
 *     m = max(m1, m2),   f1 = e^(m1 - m),   f2 = e^(m2 - m)
 *
 * A partial result of some keys is what stage 3 knows after them: their largest score m,
 * and relative to it the sums l = sum e^(s_j - m) and o = sum e^(s_j - m) v_j.  monoid.h
 * has it as `struct aggregate` with three functions: aggregate_unit (no keys),
 * aggregate_push (one more key: the step of stage 3), aggregate_merge (the line above).
 *
 * Merging is associative, so keys may be cut into chunks anywhere ("Computing Attention
 * via Monoid Aggregates"; notes/monoid.md has the proof).  pad.c, tile.c and threads.c
 * make use of that. (variants.c includes this file.) */
#include "monoid.h"
#include "score.h"
#include "stage.h"

#define CHUNK 32 /* keys, or scores, of a chunk */

/* x = the partial result of the keys first .. end - 1 for query i: stage 3's loop.  h comes
 * by value: the compiler then knows that nobody changes its sizes during the loop. */
static void fold_keys(const struct head h, size_t i, size_t first, size_t end,
                      struct aggregate *x)
{
    aggregate_unit(x);
    for (size_t j = first; j < end; j++) {
        float correction = aggregate_push(x, score(&h, i, j), v_row(&h, j));
        watch("m", j, x->m);
        watch("correction", j, correction);
        watch("l", j, x->l);
        watch_row("o", j, x->o, h.head_dim_v);
    }
}

/* Attention of one head, all keys of a query in one fold.  head_dim and head_dim_v may
 * differ: the first is summed away in the score, the second is the length of o. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) {
        struct aggregate all = {.o = o_row(h, i), .d = h->head_dim_v};
        fold_keys(*h, i, 0, visible(h, i), &all);
        aggregate_finish(&all, all.o, &h->lse[i]); /* o / l, and m + log l */
    }
}

/* The same in chunks: each folded alone, then merged.  On a GPU a chunk is what fits into
 * fast memory.
 *   h->scratch (head_dim_v)  the o of a chunk */
static void attention_in_chunks(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) {
        struct aggregate all = {.o = o_row(h, i), .d = h->head_dim_v};
        struct aggregate chunk = {.o = h->scratch, .d = h->head_dim_v};
        aggregate_unit(&all);
        for (size_t j = 0; j < visible(h, i); j += CHUNK) {
            fold_keys(*h, i, j, smaller(j + CHUNK, visible(h, i)), &chunk);
            aggregate_merge(&all, &chunk);
        }
        aggregate_finish(&all, all.o, &h->lse[i]);
    }
}

/* Softmax of a row needs the fold of its scores alone: (m, l) without o. */
static float softmax_row(const float *x, float *y, size_t n)
{
    struct se all = fold_scores(x, n);
    write_softmax(x, y, n, all);
    return se_lse(all);
}

static struct se fold_scores_in_chunks(const float *x, size_t n)
{
    struct se all = se_unit();
    for (size_t j = 0; j < n; j += CHUNK)
        all = se_merge(all, fold_scores(x + j, smaller(CHUNK, n - j)));
    return all;
}
