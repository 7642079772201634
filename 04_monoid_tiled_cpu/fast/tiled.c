/* tiled.c: attention in tiles, at the speed of the multiply-add units.
 *
 *     (o, l, m)_i = fold over tiles of keys of SE(R^dv) x SE(R)
 * The fold of stage.c, Br queries and Bc keys at a time, so that a key or value is fetched
 * once for Br queries and nothing larger than a tile is ever stored.  Rabe and Staats 2021;
 * Dao et al. 2022.  Three variants, each one idea more: tiles, the micro-kernels of
 * microkernel.c, all cores.
 *
 * The exponential is 2^((s - m) * log2(e)): the factor could be multiplied into q instead,
 * but then large scores would be rounded in units that their exact values do not fit.
 * The heads of a group that share keys are adjacent in q and o: their query rows are one
 * long list, cut into tiles, whatever the head they belong to.
 *
 * Nothing is copied: rows lie where strides, packed sequences and pages have them
 * (problem/layout.h).  A tile of keys ends where its page does, and keys outside of the
 * windows of all its queries are not visited.  A sink joins the fold at its end.
 *
 * Few queries make few tiles.  Then each tile's keys are cut into parts, folded apart and
 * merged in order.  The number of parts depends on the shape alone, so the number of
 * threads changes no bit of the result.
 *
 * plan.h cuts the problem into tiles and parts, fold.h folds keys into a tile, and
 * fold_rows.h folds them into one or two rows. */
#include <omp.h>

#include "fold_rows.h"
#include "fold.h"
#include "monoid.h"
#include "plan.h"
#include "products.h"
#include "softmax.h"
#include "harness.h"
#include "vector/vexp.h"

#define DECODE_ROWS 2     /* up to so many query rows, keys are read row by row */

#define SUPPORTED                                                                          \
    (BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS | WITH_PACKED | \
     WITH_PAGES | WITH_STRIDES)

/* One query row, one key at a time, keys with score -INFINITY skipped and not multiplied by
 * 0: what a row gets when NaN or infinity stood in its tile.
 *   o (head_dim_v)  un-normalised */
static struct se row_alone(const struct problem *p, const struct arrays *a,
                           const struct plan *plan, const struct tile *t, size_t row, float *o)
{
    size_t i = (t->first + row) % t->s.seqlen_q;
    struct key_range sees = mask_keys(t->mask, i);
    const float *q = q_row(p, a, plan, t, row);
    struct se x = se_unit();
    for (size_t c = 0; c < p->head_dim_v; c++) o[c] = 0;
    for (size_t j = sees.first; j < sees.end; j++) {
        float bias = p->has_bias ? a->bias[i * p->seqlen_k + j] : 0;
        if (bias == -INFINITY) continue;
        struct keys key = keys_from(p, a, t, j, 1);
        float s = vdot(q, key.k, p->head_dim) * p->scale;
        if (p->softcap > 0) s = vtanh(vset(s / p->softcap))[0] * p->softcap;
        s += bias;
        if (s == -INFINITY) continue; /* it weighs 0, and its value may hold NaN */
        float m_new = s > x.m ? s : x.m, safe = m_new == -INFINITY ? 0 : m_new;
        float factor = sexp(x.m - safe), p_j = sexp(s - safe);
        x.l = sfma(x.l, factor, p_j);
        vaxpy(factor, o, p_j, key.v, p->head_dim_v);
        x.m = m_new;
    }
    return x;
}

/* 0 when some x[c] is NaN or infinite. */
static int all_finite(const float *x, size_t n)
{
    int finite = 1;
    for (size_t c = 0; c < n; c++) finite &= fabsf(x[c]) < INFINITY;
    return finite;
}

/* o (head_dim_v) = sum / l, and lse, where the sink is one more element of the fold.  o may
 * be sum. */
static void divide(const struct problem *p, const struct arrays *a, size_t h, struct se x,
                   const float *sum, float *o, float *lse)
{
    float factor = 1;
    if (p->has_sinks && a->sinks[h] != -INFINITY && !isnan(x.l)) {
        struct se with_sink = se_merge(x, se_lift(a->sinks[h]));
        factor = x.m == -INFINITY ? 0 : se_factor(x.m, with_sink.m);
        x = with_sink;
    }
    for (size_t c = 0; c < p->head_dim_v; c++) o[c] = se_divide(x, sum[c] * factor);
    *lse = se_lse(x);
}

/* The tile's rows of o and lse from its aggregate.  The product multiplies the v of masked keys
 * by p = 0.  Only NaN and infinity show that; row_alone() computes such rows again. */
static void finish(const struct problem *p, const struct arrays *a, const struct plan *plan,
                   const struct tile *t, const struct state *x)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        struct query q = query_of(plan, t, r);
        struct se s = {.m = x->m[r], .l = x->l[r]};
        float *o = (float *)a->o + query_at(p, &t->s, strides_of_o(p), q.h, q.i), lse;
        divide(p, a, q.h, s, x->o + r * plan->cols, o, &lse);
        if (!all_finite(o, p->head_dim_v)) {
            s = row_alone(p, a, plan, t, r, o);
            divide(p, a, q.h, s, o, o, &lse);
        }
        if (a->lse) a->lse[lse_at(p, &t->s, q.h, q.i)] = lse;
    }
}

/* x . y for the tile's rows, into x: the operation of the monoid, y the later keys. */
static void merge(const struct plan *plan, size_t n_rows, struct state *x,
                  const struct state *y)
{
    for (size_t r = 0; r < n_rows; r++) {
        float m = x->m[r] > y->m[r] ? x->m[r] : y->m[r], safe = m == -INFINITY ? 0 : m;
        float a = sexp2((x->m[r] - safe) * LOG2E), b = sexp2((y->m[r] - safe) * LOG2E);
        x->m[r] = m;
        x->l[r] = x->l[r] * a + y->l[r] * b;
        float *ox = x->o + r * plan->cols;
        const float *oy = y->o + r * plan->cols;
        for (size_t c = 0; c < plan->cols; c++) ox[c] = ox[c] * a + oy[c] * b;
    }
}

/* One part of one tile: the aggregate of its keys, from the unit. */
static void fold_part(const struct problem *p, const struct arrays *a,
                      const struct plan *plan, const struct products *products,
                      const struct tile *t, size_t part, struct state *x, struct scratch *w)
{
    for (size_t r = 0; r < Br; r++) {
        x->m[r] = -INFINITY;
        x->l[r] = 0;
    }
    memset(x->o, 0, Br * plan->cols * sizeof(float));
    size_t begin = part * plan->part_keys, end = begin + plan->part_keys;
    begin = larger(begin, t->some_see.first);
    end = smaller(end, t->some_see.end);
    if (plan->group * t->s.seqlen_q <= DECODE_ROWS) fold_rows(p, a, plan, t, begin, end, x, w);
    else fold_tiles(p, a, plan, products, t, begin, end, x, w);
}

/* All tiles and parts on so many threads, each by one thread from begin to end; then the
 * parts of each tile are merged in order.  The last tile, with the most visible keys, goes
 * first. */
static void attention_tiles(const struct problem *p, const struct arrays *a,
                            const struct products *products, int threads)
{
    struct plan plan = plan_of(p);
    size_t tiles = plan.tiles, tasks = tiles * plan.parts;
    size_t scratch = round_up(scratch_floats(p, &plan), 16) * (size_t)omp_get_max_threads();
    float *memory = a->workspace, *states = memory + scratch;
#pragma omp parallel num_threads(threads)
    {
        size_t me = (size_t)omp_get_thread_num();
        struct scratch w = scratch_at(p, &plan, memory, me);
#pragma omp for schedule(dynamic, 1)
        for (size_t task = 0; task < tasks; task++) {
            size_t index = tiles - 1 - task / plan.parts, part = task % plan.parts;
            struct tile t = tile_at(p, a, &plan, index);
            struct state x = state_at(&plan, states,
                                      plan.parts > 1 ? index * plan.parts + part : me);
            fold_part(p, a, &plan, products, &t, part, &x, &w);
            if (plan.parts == 1) finish(p, a, &plan, &t, &x);
        }
#pragma omp for schedule(dynamic, 1)
        for (size_t index = 0; index < (plan.parts > 1 ? tiles : 0); index++) {
            struct tile t = tile_at(p, a, &plan, index);
            struct state x = state_at(&plan, states, index * plan.parts);
            for (size_t part = 1; part < plan.parts; part++) {
                struct state y = state_at(&plan, states, index * plan.parts + part);
                merge(&plan, t.n_rows, &x, &y);
            }
            finish(p, a, &plan, &t, &x);
        }
    }
}

static void loop_scores(const float *k, size_t k_stride, size_t n_keys, size_t head_dim,
                        const float *qt, size_t n_rows, float *s)
{
    for (size_t j = 0; j < n_keys; j++) {
        float *s_j = s + j * PANEL;
        for (size_t i = 0; i < PANEL; i++) s_j[i] = 0;
        for (size_t d = 0; d < head_dim; d++) {
            float k_jd = k[j * k_stride + d];
            for (size_t i = 0; i < PANEL; i++) s_j[i] = sfma(k_jd, qt[d * PANEL + i], s_j[i]);
        }
    }
    (void)n_rows;
}

static void loop_values(const float *p, size_t n_keys, const float *v, size_t v_stride,
                        size_t cols, const float *correction, size_t n_rows, float *o)
{
    for (size_t i = 0; i < n_rows; i++) {
        float *o_i = o + i * cols;
        for (size_t c = 0; c < cols; c++) o_i[c] *= correction[i];
        for (size_t j = 0; j < n_keys; j++)
            for (size_t c = 0; c < cols; c++)
                o_i[c] = sfma(p[j * PANEL + i], v[j * v_stride + c], o_i[c]);
    }
}

static const struct products loop_products = {.scores = loop_scores, .values = loop_values};

static void tiled_attention(const struct problem *p, const struct arrays *a)
{
    attention_tiles(p, a, &loop_products, 1);
}

static void microkernel_attention(const struct problem *p, const struct arrays *a)
{
    attention_tiles(p, a, &block_products, 1);
}

static void all_cores_attention(const struct problem *p, const struct arrays *a)
{
    attention_tiles(p, a, &block_products, omp_get_max_threads());
}

/* No pass over the scores: nothing of size seqlen_q * seqlen_k exists.  A panel
 * computes the scores that one of its queries sees. */
static struct cost tiled_cost(const struct problem *p)
{
    double scores = 0;
    for (size_t i = 0; i < p->seqlen_q; i += PANEL) {
        size_t end = smaller(i + PANEL, p->seqlen_q);
        struct key_range seen = some_row_sees(problem_mask(p), i, end);
        scores += (double)(end - i) * (double)(seen.end - seen.first);
    }
    return (struct cost){.passes = 0, .bytes = attention_io_bytes(p),
                         .exps = (double)p->batch * (double)p->heads_q * scores};
}

static size_t workspace(const struct problem *p)
{
    return p->op == OP_ATTENTION ? tiled_workspace(p) : rows_workspace(p);
}

static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? tiled_cost(p) : rows_cost(p);
}

const struct variant tiled_loops = {
    .name = "tiled",
    .idea = "192 queries share a key",
    .group = IN_FAST,
    .device = ON_CPU, .types = TYPE(F32), .supports = SUPPORTED,
    .max_score = INFINITY,
    .masked_rows = 1, .isolates_v = 1,
    .workspace = tiled_workspace, .cost = tiled_cost,
    .does = {{OP_ATTENTION, tiled_attention}},
};

const struct variant tiled_microkernel = {
    .name = "microkernel",
    .idea = "products in registers",
    .group = IN_FAST,
    .device = ON_CPU, .types = TYPE(F32), .supports = SUPPORTED,
    .max_score = INFINITY,
    .masked_rows = 1, .isolates_v = 1,
    .workspace = tiled_workspace, .cost = tiled_cost,
    .does = {{OP_ATTENTION, microkernel_attention}},
};

const struct variant tiled_all_cores = {
    .name = "all_cores",
    .idea = "tiles on all cores",
    .group = IN_FAST,
    .device = ON_CPU, .all_cores = 1, .types = TYPE(F32), .supports = SUPPORTED,
    .max_score = INFINITY,
    .masked_rows = 1, .isolates_v = 1,
    .workspace = workspace, .cost = cost,
    .does = {{OP_SOFTMAX, rows_softmax}, {OP_LOGSOFTMAX, rows_logsoftmax},
             {OP_ATTENTION, all_cores_attention}},
};
