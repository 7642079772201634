/* forms.c: the same fold as it has been published.  Each form cuts the keys into blocks
 * and keeps a state that it can merge; they differ in what the state is.
 *
 *     split             (b, e, o / e) of each block, then combined      split-KV
 *     lse_form          (lse, m, o)                                     Triton's kernel
 *     normalised_tiles  (m, l, o / l) after each tile                   "version 1"
 *     memory_efficient  (m, l, o), chunks of sqrt(n) keys               Rabe and Staats
 *
 * stage.c keeps (m, l, o).  In every form masked keys are passed over, so that what their
 * rows of v hold does not matter, and a block of masked keys is the unit. */
#include "cost.h"
#include "monoid.h"
#define EIGHT_SUMS
#include "score.h"

#define BLOCK 64  /* keys in a tile */
#define SPLITS 8  /* blocks of split-KV, as on a GPU with few queries */

/* s (last - first) = scores of the keys first .. last - 1; returns their maximum, which
 * is -INFINITY if all are masked, and NaN if one is NaN, lest a NaN pass for a mask. */
static float block_scores(const struct head *h, size_t i, size_t first, size_t last, float *s)
{
    float m = -INFINITY;
    for (size_t j = first; j < last; j++) {
        s[j - first] = score(h, i, j);
        m = s[j - first] > m || isnan(s[j - first]) ? s[j - first] : m;
    }
    return m;
}

/* o += sum_j exp(s_j - m) v_j over the visible keys first .. last - 1; returns
 * sum_j exp(s_j - m).  s (last - first), o (dv).  At least one key must be visible. */
static float block_values(const struct head *h, size_t first, size_t last, const float *s,
                          float m, float *o)
{
    float l = 0;
    for (size_t j = first; j < last; j++) {
        if (s[j - first] == -INFINITY) continue;
        float p = expf(s[j - first] - m);
        l += p;
        for (size_t c = 0; c < h->head_dim_v; c++) o[c] += p * v_row(h, j)[c];
    }
    return l;
}

/* A block of keys folded alone into x: m, l, o.  s: its scores. */
static void fold_block(const struct head *h, size_t i, size_t first, size_t last, float *s,
                       struct aggregate *x)
{
    aggregate_unit(x);
    x->m = block_scores(h, i, first, last, s);
    if (x->m != -INFINITY) x->l = block_values(h, first, last, s, x->m, x->o);
}

/* Every query of a head by a form, which gives o_i (head_dim_v) and returns lse. */
static void each_query(const struct head *h,
                       float form(const struct head *h, size_t i, float *o_i))
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = form(h, i, o_row(h, i));
}

/* ---- split: local reducer and combiner ---- */

/* x = x and y together, where m is b, l is e, and o the attention of the block, normalised:
 *     o = (e^{D1} e1 o1 + e^{D2} e2 o2) / (e^{D1} e1 + e^{D2} e2),  Di = bi - max(b1, b2)
 * Equation 14 of the notes "Flash Attention": with o normalised, e must come back in as
 * its weight. */
static void combine(struct aggregate *x, const struct aggregate *y)
{
    if (y->l == 0) return;
    float b = x->m > y->m ? x->m : y->m;
    float w_x = x->l == 0 ? 0 : se_factor(x->m, b) * x->l;
    float w_y = se_factor(y->m, b) * y->l, e = w_x + w_y;
    for (size_t c = 0; c < x->d; c++) x->o[c] = (w_x * x->o[c] + w_y * y->o[c]) / e;
    x->m = b;
    x->l = e;
}

/* SPLITS blocks, whatever seqlen_k is: with one query these are all the work that a GPU
 * can do at the same time.  h->scratch: o of a block, its scores. */
static float split_row(const struct head *h, size_t i, float *o_i)
{
    size_t n = visible(h, i), dv = h->head_dim_v;
    struct aggregate all = {.o = o_i, .d = dv}, x = {.o = h->scratch, .d = dv};
    aggregate_unit(&all);
    for (size_t t = 0; t < SPLITS; t++) {
        fold_block(h, i, n * t / SPLITS, n * (t + 1) / SPLITS, x.o + dv, &x);
        for (size_t c = 0; c < dv && x.l != 0; c++) x.o[c] /= x.l;
        combine(&all, &x);
    }
    return all.m + logf(all.l);
}

static void attention_split(const struct head *h) { each_query(h, split_row); }

static size_t workspace_split(const struct problem *p)
{
    return (p->head_dim_v + p->seqlen_k / SPLITS + 1) * sizeof(float);
}

/* ---- lse_form: the log-sum-exp stands in for the maximum ---- */

/* State (lse, m, o) with o = sum exp(s_j - m) v_j.  For a tile:
 *     m'   = max(max_j s_j, lse)
 *     p_j  = e^{s_j - m'}
 *     o    = o e^{m - m'} + sum_j p_j v_j
 *     lse' = m' + log(e^{lse - m'} + sum_j p_j),     at the end  o e^{m - lse}
 * The Triton kernel of Dao's library.  Any shift cancels, so m need not be the maximum;
 * lse is at least the maximum of what it sums, so no exponent is positive.  The price:
 * each tile rounds lse, and an error e of lse is a relative error e of o.
 * h->scratch: the scores of a tile. */
static float lse_row(const struct head *h, size_t i, float *o_i)
{
    size_t n = visible(h, i), dv = h->head_dim_v;
    float lse = -INFINITY, m = -INFINITY, *s = h->scratch;
    for (size_t c = 0; c < dv; c++) o_i[c] = 0;
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t last = smaller(first + BLOCK, n);
        float m_new = block_scores(h, i, first, last, s);
        if (m_new == -INFINITY) continue;
        m_new = lse > m_new ? lse : m_new;
        for (size_t c = 0; c < dv && m != -INFINITY; c++) o_i[c] *= se_factor(m, m_new);
        float l = block_values(h, first, last, s, m_new, o_i);
        lse = m_new + logf(expf(lse - m_new) + l);
        m = m_new;
    }
    for (size_t c = 0; c < dv && m != -INFINITY; c++) o_i[c] *= expf(m - lse);
    return lse;
}

static void attention_lse(const struct head *h) { each_query(h, lse_row); }

static size_t workspace_block(const struct problem *p)
{
    return (BLOCK + p->head_dim_v) * sizeof(float);
}

/* ---- normalised_tiles: fused expression, version 1 ---- */

/* State (m, l, o) with o normalised after every tile.  With the names of section 2.1 of
 * the notes "Flash Attention" (x1 .. x5 belong to the tile, x6 and x7 correct):
 *     x1 = scale q k^T    x2 = max x1      x3 = e^{x1 - x2}
 *     x4 = sum x3         x5 = x3 . v      x6 = e^{m - m'}    x7 = e^{x2 - m'}
 *     m' = max(m, x2)     l' = x6 l + x7 x4     o' = (x6 l o + x7 x5) / l'
 * As printed there, l' takes o for l and o' takes x3 for x5 (notes/errata.md).
 * h->scratch: x1 of a tile, x5. */
static float normalised_row(const struct head *h, size_t i, float *o_i)
{
    size_t n = visible(h, i), dv = h->head_dim_v;
    struct aggregate x = {.o = o_i, .d = dv}, tile = {.o = h->scratch + BLOCK, .d = dv};
    aggregate_unit(&x);
    for (size_t first = 0; first < n; first += BLOCK) {
        fold_block(h, i, first, smaller(first + BLOCK, n), h->scratch, &tile); /* x2, x4, x5 */
        if (tile.m == -INFINITY) continue;
        float m_new = x.m > tile.m ? x.m : tile.m;
        float x6 = x.l == 0 ? 0 : se_factor(x.m, m_new), x7 = se_factor(tile.m, m_new);
        float l_new = x6 * x.l + x7 * tile.l;
        for (size_t c = 0; c < dv; c++)
            o_i[c] = (x6 * x.l * o_i[c] + x7 * tile.o[c]) / l_new;
        x.m = m_new;
        x.l = l_new;
    }
    return x.m + logf(x.l);
}

static void attention_normalised(const struct head *h) { each_query(h, normalised_row); }

/* ---- memory_efficient: chunks of sqrt(n) keys ---- */

/* Rabe and Staats 2021: only the scores of one chunk of sqrt(n) keys exist at a time, and
 * the chunk is done the safe way of stage 2: maximum, exponentials, sum.
 * h->scratch: sqrt(seqlen_k) scores, the chunk's o. */
static size_t chunk_of(size_t n)
{
    size_t chunk = 1;
    while (chunk * chunk < n) chunk++;
    return chunk;
}

static float memory_efficient_row(const struct head *h, size_t i, float *o_i)
{
    size_t n = visible(h, i), dv = h->head_dim_v, size = chunk_of(h->seqlen_k);
    struct aggregate all = {.o = o_i, .d = dv}, chunk = {.o = h->scratch + size, .d = dv};
    float lse;
    aggregate_unit(&all);
    for (size_t first = 0; first < n; first += size) {
        fold_block(h, i, first, smaller(first + size, n), h->scratch, &chunk);
        aggregate_merge(&all, &chunk);
    }
    aggregate_finish(&all, o_i, &lse);
    return lse;
}

static void attention_memory_efficient(const struct head *h) { each_query(h, memory_efficient_row); }

static size_t workspace_memory_efficient(const struct problem *p)
{
    return (chunk_of(p->seqlen_k) + p->head_dim_v) * sizeof(float);
}

const struct variant form_split = {
    .name = "split", .idea = "8 parts, each normalised",
    ASIDE, .workspace = workspace_split, .cost = fold_cost,
    .by_head = {{OP_ATTENTION, attention_split}},
};

const struct variant form_lse = {
    .name = "lse_form", .idea = "lse in place of the maximum",
    .group = IN_ASIDES, .types = TYPE(F32), .supports = BASIC_FEATURES,
    .max_score = 24, .max_keys = 8192, /* each tile rounds lse: T |lse| u */
    .masked_rows = 1, .isolates_v = 1, .workspace = workspace_block, .cost = fold_cost,
    .by_head = {{OP_ATTENTION, attention_lse}},
};

const struct variant form_normalised = {
    .name = "normalised_tiles", .idea = "tiles, each normalised",
    ASIDE, .workspace = workspace_block, .cost = fold_cost,
    .by_head = {{OP_ATTENTION, attention_normalised}},
};

const struct variant form_memory_efficient = {
    .name = "memory_efficient", .idea = "chunks of sqrt(n) keys",
    ASIDE, .workspace = workspace_memory_efficient, .cost = fold_cost,
    .by_head = {{OP_ATTENTION, attention_memory_efficient}},
};
