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
#include "row.h"

#define BLOCK 64  /* keys in a tile */
#define SPLITS 8  /* blocks of split-KV, as on a GPU with few queries */

/* s (last - first) = scores of the keys first .. last - 1; returns their maximum, which
 * is -INFINITY if all are masked, and NaN if one is NaN, lest a NaN pass for a mask. */
static float block_scores(const struct row *r, size_t first, size_t last, float *s)
{
    float m = -INFINITY;
    for (size_t j = first; j < last; j++) {
        s[j - first] = row_score(r, j);
        m = s[j - first] > m || isnan(s[j - first]) ? s[j - first] : m;
    }
    return m;
}

/* o += sum_j exp(s_j - m) v_j over the visible keys first .. last - 1; returns
 * sum_j exp(s_j - m).  s (last - first), o (dv).  At least one key must be visible. */
static float block_values(const struct row *r, size_t first, size_t last, const float *s,
                          float m, float *o)
{
    float l = 0.0f;
    for (size_t j = first; j < last; j++) {
        if (s[j - first] == -INFINITY) continue;
        const float *v_j = r->v + j * r->dv;
        float p = expf(s[j - first] - m);
        l += p;
        for (size_t c = 0; c < r->dv; c++) o[c] += p * v_j[c];
    }
    return l;
}

static void zero(float *o, size_t n)
{
    for (size_t c = 0; c < n; c++) o[c] = 0.0f;
}

/* ---- split: local reducer and combiner ---- */

/* What a block hands over: b = max s, e = sum exp(s - b), o (dv) = its attention. */
struct part { float b, e; float *o; };

/* x = attention of the keys first .. last - 1 alone.  s (last - first) is scratch. */
static void reduce_block(const struct row *r, size_t first, size_t last, float *s,
                         struct part *x)
{
    x->b = block_scores(r, first, last, s);
    x->e = 0.0f;
    zero(x->o, r->dv);
    if (x->b == -INFINITY) return;
    x->e = block_values(r, first, last, s, x->b, x->o);
    for (size_t c = 0; c < r->dv; c++) x->o[c] /= x->e;
}

/* x = x and y together.
 *     o = (e^{D1} e1 o1 + e^{D2} e2 o2) / (e^{D1} e1 + e^{D2} e2),  Di = bi - max(b1, b2)
 * Equation 14 of the notes "Flash Attention": with o normalised, e must come back in as
 * its weight. */
static void combine(struct part *x, const struct part *y, size_t dv)
{
    if (y->e == 0.0f) return;
    float b = x->b > y->b ? x->b : y->b;
    float w_x = x->e == 0.0f ? 0.0f : se_factor(x->b, b) * x->e;
    float w_y = se_factor(y->b, b) * y->e, e = w_x + w_y;
    for (size_t c = 0; c < dv; c++) x->o[c] = (w_x * x->o[c] + w_y * y->o[c]) / e;
    x->b = b;
    x->e = e;
}

/* SPLITS blocks, whatever seqlen_k is: with one query these are all the work that a GPU
 * can do at the same time.  workspace: o of a block, its scores. */
static void attention_split(const struct problem *p, const struct arrays *a)
{
    float *o = a->workspace, *s = o + p->head_dim_v;
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        struct part all = {-INFINITY, 0.0f, r.o}, x = {.o = o};
        zero(r.o, r.dv);
        for (size_t t = 0; t < SPLITS; t++) {
            reduce_block(&r, r.n * t / SPLITS, r.n * (t + 1) / SPLITS, s, &x);
            combine(&all, &x, r.dv);
        }
        *r.lse = all.b + logf(all.e);
    }
}

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
 * workspace: the scores of a tile. */
static void attention_lse(const struct problem *p, const struct arrays *a)
{
    float *s = a->workspace;
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        float lse = -INFINITY, m = -INFINITY;
        zero(r.o, r.dv);
        for (size_t first = 0; first < r.n; first += BLOCK) {
            size_t last = smaller(first + BLOCK, r.n);
            float m_new = block_scores(&r, first, last, s);
            if (m_new == -INFINITY) continue;
            m_new = lse > m_new ? lse : m_new;
            if (m != -INFINITY)
                for (size_t c = 0; c < r.dv; c++) r.o[c] *= se_factor(m, m_new);
            float l = block_values(&r, first, last, s, m_new, r.o);
            lse = m_new + logf(expf(lse - m_new) + l);
            m = m_new;
        }
        if (m != -INFINITY)
            for (size_t c = 0; c < r.dv; c++) r.o[c] *= expf(m - lse);
        *r.lse = lse;
    }
}

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
 * workspace: x1 of a tile, x5. */
static void attention_normalised(const struct problem *p, const struct arrays *a)
{
    float *x1 = a->workspace, *x5 = x1 + BLOCK;
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        float m = -INFINITY, l = 0.0f;
        zero(r.o, r.dv);
        for (size_t first = 0; first < r.n; first += BLOCK) {
            size_t last = smaller(first + BLOCK, r.n);
            float x2 = block_scores(&r, first, last, x1);
            if (x2 == -INFINITY) continue;
            zero(x5, r.dv);
            float x4 = block_values(&r, first, last, x1, x2, x5);
            float m_new = m > x2 ? m : x2;
            float x6 = l == 0.0f ? 0.0f : se_factor(m, m_new);
            float x7 = se_factor(x2, m_new), l_new = x6 * l + x7 * x4;
            for (size_t c = 0; c < r.dv; c++)
                r.o[c] = (x6 * l * r.o[c] + x7 * x5[c]) / l_new;
            m = m_new;
            l = l_new;
        }
        *r.lse = m + logf(l);
    }
}

/* ---- memory_efficient: chunks of sqrt(n) keys ---- */

/* Rabe and Staats 2021: only the scores of one chunk of sqrt(n) keys exist at a time, and
 * the chunk is done the safe way of stage 2: maximum, exponentials, sum.
 * workspace: sqrt(seqlen_k) scores, the chunk's o. */
static size_t chunk_of(size_t n)
{
    size_t chunk = 1;
    while (chunk * chunk < n) chunk++;
    return chunk;
}

static void attention_memory_efficient(const struct problem *p, const struct arrays *a)
{
    size_t size = chunk_of(p->seqlen_k);
    float *s = a->workspace;
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        struct aggregate all = {.o = r.o, .d = r.dv}, chunk = {.o = s + size, .d = r.dv};
        aggregate_unit(&all);
        for (size_t first = 0; first < r.n; first += size) {
            size_t last = smaller(first + size, r.n);
            chunk.m = block_scores(&r, first, last, s);
            if (chunk.m == -INFINITY) continue;
            zero(chunk.o, r.dv);
            chunk.l = block_values(&r, first, last, s, chunk.m, chunk.o);
            aggregate_merge(&all, &chunk);
        }
        aggregate_finish(&all, r.o, r.lse);
    }
}

static size_t workspace_memory_efficient(const struct problem *p)
{
    return (chunk_of(p->seqlen_k) + p->head_dim_v) * sizeof(float);
}

const struct variant form_split = {
    .name = "split",
    .idea = "8 parts, each normalised",
    .group = IN_ASIDES,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_split,
    .cost = row_cost,
    .does = {{OP_ATTENTION, attention_split}},
};

const struct variant form_lse = {
    .name = "lse_form",
    .idea = "lse in place of the maximum",
    .group = IN_ASIDES,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_block,
    .cost = row_cost,
    .does = {{OP_ATTENTION, attention_lse}},
};

const struct variant form_normalised = {
    .name = "normalised_tiles",
    .idea = "tiles, each normalised",
    .group = IN_ASIDES,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_block,
    .cost = row_cost,
    .does = {{OP_ATTENTION, attention_normalised}},
};

const struct variant form_memory_efficient = {
    .name = "memory_efficient",
    .idea = "chunks of sqrt(n) keys",
    .group = IN_ASIDES,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_memory_efficient,
    .cost = row_cost,
    .does = {{OP_ATTENTION, attention_memory_efficient}},
};
