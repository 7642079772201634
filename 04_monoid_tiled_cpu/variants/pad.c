/* pad.c: a ragged end is filled with the unit.
 *
 * A loop of constant length is what vector units and GPUs want.  The unit changes
 * nothing, so it may stand where there is no key.  A zero key may not: its score is 0,
 * not -INFINITY. */
#include "cost.h"
#include "monoid.h"
#define EIGHT_SUMS
#include "score.h"

enum { CHUNK = 32 }; /* keys in a chunk: no more and no fewer */

/* Physical padding: the last keys are copied to where zero keys with a bias of -INFINITY,
 * that is, units, follow them.  Zero keys alone would not do: their score is 0, not
 * -INFINITY, and they would take weight from the others.
 *   h->scratch  o of a chunk, then k (CHUNK, head_dim), v (CHUNK, head_dim_v), bias */
static void pad_last_keys(const struct head *h, size_t i, size_t first, float *k, float *v,
                          float *bias)
{
    size_t d = h->head_dim, dv = h->head_dim_v, rest = visible(h, i) - first;
    for (size_t c = 0; c < CHUNK * d; c++) k[c] = c < rest * d ? k_row(h, first)[c] : 0;
    for (size_t c = 0; c < CHUNK * dv; c++) v[c] = c < rest * dv ? v_row(h, first)[c] : 0;
    for (size_t t = 0; t < CHUNK; t++)
        bias[t] = t >= rest ? -INFINITY : bias_of(h, i, first + t);
}

static size_t padded_workspace(const struct problem *p)
{
    return ((CHUNK + 1) * (p->head_dim + p->head_dim_v) + CHUNK) * sizeof(float);
}

static void attention_padded(const struct head *h)
{
    size_t d = h->head_dim, dv = h->head_dim_v;
    float *k = h->scratch + dv, *v = k + CHUNK * d, *bias = v + CHUNK * dv;
    for (size_t i = 0; i < h->seqlen_q; i++) {
        struct aggregate all = {.o = o_row(h, i), .d = dv};
        struct aggregate chunk = {.o = h->scratch, .d = dv};
        aggregate_unit(&all);
        for (size_t j = 0; j < visible(h, i); j += CHUNK) {
            struct head part = *h; /* query i alone, which sees CHUNK keys from j on */
            part.q = q_row(h, i), part.k = k_row(h, j), part.v = v_row(h, j);
            part.seqlen_k = CHUNK, part.last = CHUNK - 1;
            part.bias = h->bias ? h->bias + i * h->seqlen_k + j : NULL;
            if (j + CHUNK > visible(h, i)) {
                pad_last_keys(h, i, j, k, v, bias);
                part.k = k, part.v = v, part.bias = bias;
            }
            aggregate_unit(&chunk);
            for (size_t t = 0; t < CHUNK; t++)
                aggregate_push(&chunk, score(&part, 0, t), v_row(&part, t));
            aggregate_merge(&all, &chunk);
        }
        aggregate_finish(&all, all.o, &h->lse[i]);
    }
}

/* Masked reads: nothing is copied; a lane beyond the last key is the unit instead of a
 * read.  This is the padding of stage 5's kernels.
 *   h->scratch (head_dim_v)  o of a chunk */
static void attention_masked_reads(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) {
        struct aggregate all = {.o = o_row(h, i), .d = h->head_dim_v};
        struct aggregate chunk = {.o = h->scratch, .d = h->head_dim_v};
        aggregate_unit(&all);
        for (size_t j = 0; j < visible(h, i); j += CHUNK) {
            aggregate_unit(&chunk);
            for (size_t t = j; t < j + CHUNK; t++) {
                int inside = t < visible(h, i);
                float s = inside ? score(h, i, t) : -INFINITY;
                aggregate_push(&chunk, s, v_row(h, inside ? t : j)); /* any row will do */
            }
            aggregate_merge(&all, &chunk);
        }
        aggregate_finish(&all, all.o, &h->lse[i]);
    }
}

const struct variant padded = {
    .name = "padded", .idea = "last chunk padded",
    ASIDE, .workspace = padded_workspace, .cost = fold_cost,
    .by_head = {{OP_ATTENTION, attention_padded}},
};

const struct variant masked_reads = {
    .name = "masked_reads", .idea = "reads beyond masked",
    ASIDE, .workspace = one_row_of_o, .cost = fold_cost,
    .by_head = {{OP_ATTENTION, attention_masked_reads}},
};
