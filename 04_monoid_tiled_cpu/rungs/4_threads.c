/* 4_threads.c: the tiles on all cores.
 *
 * Tiles of queries share nothing, so any thread may take any of them.  Few queries make few tiles:
 * then threads share the keys too, and here the monoid is needed.  The keys are always cut into
 * PARTS parts, so the same additions happen in the same order with 1, 2 or 7 threads, and the
 * answer is the same bit for bit.  A sum to which threads add as they finish would differ from run
 * to run. */
#include "cost.h"
#include "monoid.h"
#include "score.h"

#define PARTS 16 /* of the keys; fixed, so that threads do not change an answer */

enum { Br = 16, Bc = 32 }; /* queries and keys of a tile */

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* x = x . (n keys with scores s): one maximum and one correction for all of them.
 *     m_new = max(m, max_j s_j),  correction = e^(m - m_new),  weight_j = e^(s_j - m_new)
 *   s (n)  -INFINITY means masked      v (n, x->d)  a masked row of it is not read */
static void push_tile(struct aggregate *x, const float *s, const float *v, size_t n)
{
    float m_new = x->m;
    for (size_t j = 0; j < n; j++)
        if (s[j] > m_new || isnan(s[j])) m_new = s[j];
    float correction = se_factor(x->m, m_new);
    x->l *= correction;
    for (size_t d = 0; d < x->d; d++) x->o[d] *= correction;
    for (size_t j = 0; j < n; j++) {
        if (s[j] == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */
        float weight = expf(s[j] - m_new);
        x->l += weight;
        for (size_t d = 0; d < x->d; d++) x->o[d] += weight * v[j * x->d + d];
    }
    x->m = m_new;
}

/* x (rows) = the partial results of the queries i .. i + rows - 1, rows <= Br, for the keys
 * first .. end - 1, tile by tile.  A key that a query does not see scores -INFINITY. */
static void fold_tiles(const struct head *h, size_t i, size_t rows, size_t first, size_t end,
                       struct aggregate *x)
{
    float s[Bc];
    end = smaller(end, visible(h, i + rows - 1)); /* the last query sees most */
    for (size_t r = 0; r < rows; r++) aggregate_unit(&x[r]);
    for (size_t j = first; j < end; j += Bc)
        for (size_t r = 0; r < rows; r++) {
            size_t n = smaller(Bc, end - j);
            for (size_t t = 0; t < n; t++) s[t] = score(h, i + r, j + t);
            push_tile(&x[r], s, v_row(h, j), n);
        }
}

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

const struct variant threads = {
    .name = "threads",
    .idea = "tiles on all cores, in 16 parts",
    .all_cores = 1,
    RUNG,
    .workspace = workspace,
    .does = {{OP_ATTENTION, attention}},
};
