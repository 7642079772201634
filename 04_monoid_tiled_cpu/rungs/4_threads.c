/* 4_threads.c: the tiles on all cores.
 *
 * Tiles of queries share nothing, so any thread may take any of them.  Few queries make few tiles:
 * then threads share the keys too, and here the monoid is needed.  The keys are always cut into
 * PARTS parts, so the same additions happen in the same order with 1, 2 or 7 threads, and the
 * answer is the same bit for bit.  A sum to which threads add as they finish would differ from run
 * to run. */
#include "cost.h"
#include "tile.h"

#define PARTS 16 /* of the keys; fixed, so that threads do not change an answer */

/* Attention of one head: any thread folds any part of any tile; then the parts of each query are
 * merged in order.
 *   h->scratch  PARTS partial results for each query, then their o */
static void attention_head(const struct head *h)
{
    size_t n = h->seqlen_q, d = h->head_dim_v, tiles = (n + Br - 1) / Br;
    struct aggregate *x = (void *)h->scratch; /* (PARTS, n) */
    float *o = (float *)(x + PARTS * n);
    for (size_t t = 0; t < PARTS * n; t++) x[t] = (struct aggregate){.o = o + t * d, .d = d};
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (size_t tile = 0; tile < tiles; tile++)
        for (size_t t = 0; t < PARTS; t++) {
            size_t i = tile * Br, first = h->seqlen_k * t / PARTS;
            size_t end = h->seqlen_k * (t + 1) / PARTS;
            fold_tiles(h, i, smaller(Br, n - i), first, end, &x[t * n + i]);
        }
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 1; t < PARTS; t++) aggregate_merge(&x[i], &x[t * n + i]);
        aggregate_finish(&x[i], o_row(h, i), &h->lse[i]);
    }
}

/* Head after head, each on all cores. */
static void attention(const struct problem *p, const struct arrays *a)
{
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
        h.scratch = a->workspace;
        attention_head(&h);
    }
}

static size_t workspace(const struct problem *p)
{
    return PARTS * p->seqlen_q * (sizeof(struct aggregate) + p->head_dim_v * sizeof(float));
}

#ifndef BESIDE_RUNG_4
const struct variant threads = {
    .name = "threads", .idea = "tiles on all cores, in 16 parts",
    .all_cores = 1, RUNG, .workspace = workspace,
    .does = {{OP_ATTENTION, attention}},
};
#endif
