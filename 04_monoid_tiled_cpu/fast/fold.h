/* fold.h: the fold of stage.c in tiles: Br queries, Bc keys at a time, on all cores.
 *
 *     (m, l, o)_i = fold over blocks of keys of SE(R^dv) x SE(R)
 * A key or value is fetched once for Br queries, and nothing larger than a block of scores is ever
 * stored (Rabe and Staats 2021; Dao et al. 2022).  A block of keys meets the panels of the tile of
 * queries one after the other: scores, weights, values.  So the scores of a panel are still in the
 * nearest cache when they become weights and when the weights are used.  Scores are kept
 * transposed, one query per lane: keys and values are used as they lie in memory, and maximum,
 * sum and exponential of a block need no step across lanes.
 *
 * Weights are e^(s - m).  Any reference point m gives the same o / l, so m need not be the
 * maximum: it is that of the first block, and a later block raises it only when its weights
 * outgrow it.  Almost no block looks for a maximum (stage 5, `first_block_max`, does the same).
 *
 * The heads of a group that share keys are adjacent in q and o: their query rows are one long
 * list, cut into tiles.  Nothing is copied: rows lie where strides, packed sequences and pages
 * have them.  A block of keys ends where its page does, and keys outside of the windows of all
 * its queries are not visited.  A sink joins the fold at its end.
 *
 * A sum of a million terms of one size, one after the other, would err by 1 %.  So at most
 * CHAIN_KEYS (monoid.h) are folded in turn, and such spans are merged.
 *
 * Few queries make few tiles.  Then each tile's keys are cut into parts, folded apart and
 * merged in order.  The number of parts depends on the shape alone, so the number of
 * threads changes no bit of the result.
 *
 * Nothing else does where the problem asks for invariant bits.  Blocks and spans end at multiples
 * of their size, counted from the sequence's first key, whatever pages there are; spans are merged
 * in order.  A key that a query does not see weighs 0, which changes no sum.  Each query's m is the
 * maximum of its own scores so far.
 *
 * tiled.c (float) and bf16.h include this file.  They give it, beside what plan.h asks for:
 *     LOG2_M, NATURAL_M     log2 and ln of what one more in m means: m counts powers of it
 *     MOST_M                beyond such an m, rows are computed again alone
 *     struct scratch        one thread's memory, with s (Bc, PANEL) and correction (PANEL)
 *     scratch_floats(), scratch_at()     its size, its place
 *     SCORE_UNIT(p)         what the product of scores still has to be multiplied by
 *     pack_queries(), block_of_keys(), scores_product()   a panel's scores of a block
 *     lane_weights(), values_product()   their weights, times the values */
#pragma once

#include <float.h>

#include "dropout.h"
#include "monoid.h"
#include "plan.h"
#include "problem/convert.h"
#include "workers.h"
#include "transpose.h"

_Static_assert(CHAIN_KEYS % Bc == 0, "a span is whole blocks");

#define MOST_SUM (4 * Bc) /* of a block's weights; so a score exceeds m by little, in units of
                           * which s - m is rounded */

/* c tanh(s unit / c) of n floats, the last vector whole. */
static void cap_scores(float *s, size_t n, float unit, float c)
{
    for (size_t j = 0; j < n; j += LANES) vstore(s + j, vtanh(vload(s + j) * unit / c) * c);
}

/* s (n, PANEL) becomes s unit + bias, in units of m, -INFINITY where the bias is; 16 rows and 16 keys
 * at a time, because a row of the bias is a column of s.  They are fetched two such blocks ahead: 16
 * rows at once are more than a core follows by itself. */
static void add_bias(const struct tile *t, size_t row, size_t n_rows, size_t j0, size_t n,
                     float unit, float *s)
{
    const vfloat hidden = vset(-INFINITY), least = vset(-FLT_MAX);
    for (size_t r = 0; r < n_rows; r += 16) {
        const float *rows[16];
        for (size_t i = 0; i < 16; i++)
            rows[i] = bias_row(t, row + smaller(r + i, n_rows - 1), j0);
        for (size_t j = 0; j < n; j += 16) {
            float bias[16 * 16], *s_j = s + j * PANEL + r;
            for (size_t i = 0; i < 16; i++) vfetch(rows[i] + j, 32);
            transpose_rows(rows, j, smaller(n - j, 16), 1, bias, 16);
            for (size_t x = 0; x < smaller(n - j, 16) * 16; x += LANES) {
                float *at = s_j + x / 16 * PANEL + x % 16;
                vfloat b = vload(bias + x), sum = vfma(vload(at), vset(unit), b), in_m = sum;
                /* a finite score stays visible, a NaN stays NaN */
                if (LOG2E != LOG2_M) in_m = vmax(least, sum * (LOG2E / LOG2_M));
                vstore(at, vselect(vequal(vmin(sum, b), hidden), hidden, in_m));
            }
        }
    }
}

/* Multiplies by unit, and hides what is masked (-INFINITY, whatever was computed).
 *   s (n, PANEL)  scores of keys j0 .. j0 + n - 1 for rows row .. row + n_rows - 1 */
static void mask_scores(const struct tile *t, size_t row, size_t n_rows, size_t j0, size_t n,
                        float unit, float *s)
{
    float first[PANEL], end[PANEL]; /* keys of the block that a row sees */
    for (size_t r = 0; r < PANEL; r++) {
        struct key_range sees = r < n_rows ? row_sees(t, row + r) : (struct key_range){0, 0};
        first[r] = (float)smaller(larger(sees.first, j0) - j0, n);
        end[r] = (float)smaller(larger(sees.end, j0) - j0, n);
    }
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < PANEL; i += LANES) {
            vfloat hidden = vset(-INFINITY), at = vset((float)j);
            vfloat x = vselect(vless(at, vload(first + i)), hidden,
                               vload(s + j * PANEL + i) * unit);
            vstore(s + j * PANEL + i, vselect(vless(at, vload(end + i)), x, hidden));
        }
}

/* The largest of n scores, in each lane.  Four maxima: each waits four cycles for the one before
 * it, and a core can start two in one cycle.   s (n, PANEL) */
INLINE vfloat column_max(const float *s, size_t n)
{
    vfloat top[UNROLL_MOST];
    UNROLL(u, 4, top[u] = vset(-INFINITY));
    size_t j = 0;
    for (; j + 4 <= n; j += 4) UNROLL(u, 4, top[u] = vmax(vload(s + (j + u) * PANEL), top[u]));
    for (; j < n; j++) top[0] = vmax(vload(s + j * PANEL), top[0]);
    return vmax(vmax(top[0], top[1]), vmax(top[2], top[3]));
}

/* m moves to where no score exceeds it, LANES queries at a time:
 *     m_new = max(m, s_j unit),  correction = e^(m - m_new)
 * While a row has seen no key m is -INFINITY and 0 stands in for it, else the difference of
 * two infinities would be NaN. */
static void raise_reference(const float *s, size_t n, size_t n_rows, float unit, float *m,
                            float *correction)
{
    for (size_t i = 0; i < n_rows; i += LANES) {
        vfloat old = vload(m + i), m_new = vmax(column_max(s + i, n) * unit, old);
        vfloat safe = vclear(vequal(m_new, vset(-INFINITY)), m_new);
        vstore(correction + i, vload(correction + i) * vexp2((old - safe) * LOG2_M));
        vstore(m + i, m_new);
    }
}

/* s (n, PANEL) becomes weights, sum (PANEL) their sums, LANES queries at a time.  Returns 0 when
 * a sum exceeds MOST_SUM or is NaN. */
static int weights(float *s, size_t n, size_t n_rows, float unit, const float *m, float *sum)
{
    vfloat fits = vset(1); /* 0 in the lanes of sums that do not */
    for (size_t i = 0; i < n_rows; i += LANES) {
        vfloat safe = vload(m + i);
        safe = vclear(vequal(safe, vset(-INFINITY)), safe);
        vfloat sum_i = lane_weights(s + i, n, unit, safe);
        vstore(sum + i, sum_i);
        fits = vkeep(vless(sum_i, vset(MOST_SUM)), fits);
    }
    return !vany(vequal(fits, vset(0)));
}

/* Weights that dropout drops become 0, after their sum was formed: l is that of all keys.   s (n, PANEL) */
static void drop_weights(const struct tile *t, size_t row, size_t n_rows, size_t j0, size_t n, float *s)
{
    const struct dropout d = dropout_of(t->p);
    float counts[Bc];
    for (size_t r = 0; r < n_rows; r++) {
        struct query q = query_of(t, row + r);
        kept_keys(&d, t->s.batch * t->p->heads_q + q.h, q.i, j0, n, counts);
        for (size_t j = 0; j < n; j++)
            if (counts[j] == 0) s[j * PANEL + r] = 0;
    }
}

/* One panel of a tile: rows row .. row + n_rows - 1, what they see, their aggregates. */
struct panel { size_t row, n_rows; struct sight sight; float *m, *l; };

/* s = the scores of the first n keys of a block, capped, biased and masked, and -INFINITY up to
 * the next whole step.  Returns what they must be multiplied by to be in units of m. */
static float panel_scores(const struct tile *t, const struct panel *panel,
                          const struct keys *keys, size_t n, struct scratch *w)
{
    const struct problem *p = t->p;
    float unit = SCORE_UNIT(p);
    const struct sight *sight = &panel->sight;
    scores_product(t, keys, n, panel->row, panel->n_rows, w);
    if (p->softcap > 0) {
        cap_scores(w->s, n * PANEL, unit, p->softcap);
        unit = 1;
    }
    if (p->has_bias) add_bias(t, panel->row, panel->n_rows, keys->j, n, unit, w->s);
    unit = p->has_bias ? 1 : unit * (LOG2E / LOG2_M);
    int now = !(unit > FLT_MIN); /* -INFINITY times 0 would be NaN */
    if (now || keys->j < sight->all.first || keys->j + n > sight->all.end)
        mask_scores(t, panel->row, panel->n_rows, keys->j, n, now ? unit : 1, w->s);
    if (now) unit = 1;
    for (size_t x = n * PANEL; x < round_up(n, KEY_STEP) * PANEL; x++) w->s[x] = -INFINITY;
    return unit;
}

/* Has a row seen no key yet? */
static int some_unit(const float *m, size_t n_rows)
{
    int some = 0;
    for (size_t r = 0; r < n_rows; r++) some |= m[r] == -INFINITY;
    return some;
}

/* Folds a block of keys into a panel, up to the last key that one of its rows sees.  The weights
 * take the place of the scores, so weights that outgrow m cost a second product. */
static void fold_panel(const struct tile *t, const struct panel *panel, const struct keys *keys,
                       struct state *x, struct scratch *w)
{
    const struct key_range some = panel->sight.some;
    if (keys->j + keys->n <= some.first || keys->j >= some.end) return;
    size_t n = smaller(keys->n, some.end - keys->j), n_rows = panel->n_rows;
    size_t whole = round_up(n, KEY_STEP);
    float sum[PANEL], *correction = w->correction, *m = panel->m, *l = panel->l;
    for (size_t r = 0; r < PANEL; r++) correction[r] = 1;
    float unit = panel_scores(t, panel, keys, n, w);
    if (t->p->invariant || some_unit(m, n_rows))
        raise_reference(w->s, n, n_rows, unit, m, correction);
    if (!weights(w->s, whole, n_rows, unit, m, sum)) {
        panel_scores(t, panel, keys, n, w);
        raise_reference(w->s, n, n_rows, unit, m, correction);
        weights(w->s, whole, n_rows, unit, m, sum);
    }
    for (size_t r = 0; r < n_rows; r++) l[r] = sfma(l[r], correction[r], sum[r]);
    if (t->p->dropout > 0) drop_weights(t, panel->row, n_rows, keys->j, n, w->s);
    values_product(t, keys, whole, panel->row, n_rows, x, w);
}

/* Folds keys begin .. end - 1 into x, a block of keys at a time.  m and l are those of the unit. */
static void fold_tile(const struct tile *t, size_t begin, size_t end, struct state *x,
                      struct scratch *w)
{
    struct panel panels[Br / PANEL];
    for (size_t row = 0; row < t->n_rows; row += PANEL) {
        size_t n_rows = smaller(t->n_rows - row, PANEL);
        panels[row / PANEL] = (struct panel){row, n_rows, sight_of(t, row, n_rows), x->m + row,
                                             x->l + row};
    }
    pack_queries(t, w);
    for (size_t j = begin / KEY_STEP * KEY_STEP, n; j < end; j += n) {
        struct keys keys = block_of_keys(t, j, smaller(end - j, Bc - j % Bc), w);
        n = keys.n;
        for (size_t row = 0; row < t->n_rows; row += PANEL)
            fold_panel(t, &panels[row / PANEL], &keys, x, w);
    }
}

static float score_alone(const struct problem *p, const void *q, const struct keys *key)
{
    const void *k = key->k;
    if (k_dtype(p) == F32) return vdot(q, k, p->head_dim) * p->scale;
    float s = 0;
    for (size_t d = 0; d < p->head_dim; d++)
        s = sfma(load_number(p->dtype, q, d), load_number(k_dtype(p), k, d), s);
    return s * key->k_scale * p->scale;
}

/* o (head_dim_v) = factor o + p_j v of the key */
static void add_value(const struct problem *p, float factor, float *o, float p_j,
                      const struct keys *key)
{
    for (size_t c = 0; c < p->head_dim_v; c++)
        o[c] = sfma(p_j, load_number(v_dtype(p), key->v, c) * key->v_scale, o[c] * factor);
}

/* One query row, one key at a time, keys with score -INFINITY skipped and not multiplied by
 * 0: what a row gets when NaN or infinity stood in its tile.
 *   o (head_dim_v)  un-normalised */
static struct se row_alone(const struct tile *t, size_t row, float *o)
{
    const struct problem *p = t->p;
    struct key_range sees = row_sees(t, row);
    const struct query at = query_of(t, row);
    const struct dropout drops = dropout_of(p);
    const void *q = q_of(t, at);
    struct se x = se_unit();
    for (size_t c = 0; c < p->head_dim_v; c++) o[c] = 0;
    for (size_t j = sees.first; j < sees.end; j++) {
        float bias = p->has_bias ? *bias_row(t, row, j) : 0;
        if (bias == -INFINITY) continue;
        struct keys key = keys_from(t, j, 1);
        float s = score_alone(p, q, &key);
        if (p->softcap > 0) s = vtanh(vset(s / p->softcap))[0] * p->softcap;
        s += bias;
        if (s == -INFINITY) continue; /* it weighs 0, and its value may hold NaN */
        float m_new = s > x.m ? s : x.m, safe = m_new == -INFINITY ? 0 : m_new;
        float factor = sexp(x.m - safe), p_j = sexp(s - safe);
        x.l = sfma(x.l, factor, p_j);
        x.m = m_new;
        if (is_kept(&drops, t->s.batch * p->heads_q + at.h, at.i, j))
            add_value(p, factor, o, p_j, &key);
        else
            for (size_t c = 0; c < p->head_dim_v; c++) o[c] *= factor;
    }
    return x;
}

/* 0 when some x[c] is NaN or infinite: times 0 that is NaN.  Four sums, as in column_max().
 *   n  whole vectors */
static int all_finite(const float *x, size_t n)
{
    vfloat zero[UNROLL_MOST] = {{0}};
    size_t c = 0;
    for (; c + 4 * LANES <= n; c += 4 * LANES)
        UNROLL(u, 4, zero[u] = vfma(vload(x + c + u * LANES), vset(0), zero[u]));
    for (; c < n; c += LANES) zero[0] = vfma(vload(x + c), vset(0), zero[0]);
    return vsum(zero[0] + zero[1] + (zero[2] + zero[3])) == 0;
}

/* o (head_dim_v) = factor / l sum, in the problem's type: a division takes as long as ten products */
static void write_row(const struct problem *p, struct se x, const float *sum, float factor, void *o)
{
    float *row = o, share = se_divide(x, factor);
    if (p->dtype != F32) narrow_row(p->dtype, sum, share, p->head_dim_v, o);
    else
        for (size_t c = 0; c < p->head_dim_v; c++) row[c] = sum[c] * share;
}

/* The tile's rows of o and lse from its aggregate.  The product multiplies the v of masked keys
 * by p = 0.  Only NaN and infinity show that; row_alone() computes such rows again.  The sink
 * is one more element of the fold. */
static void finish(const struct tile *t, const struct state *x)
{
    const struct problem *p = t->p;
    const struct arrays *a = t->a;
    if (!t->n_rows) return;
    size_t cols = t->plan->cols;
    const struct strides of_o = strides_of_o(p);
    struct query q = query_of(t, 0);
    int finite = all_finite(x->o, t->n_rows * cols);
    for (size_t r = 0; r < t->n_rows; r++, q = next_query(t, q)) {
        struct se s = {.m = x->m[r] * NATURAL_M, .l = x->l[r]};
        float *sum = x->o + r * cols, factor = 1;
        float sink = p->has_sinks ? a->sinks[q.h] : -INFINITY;
        int beyond = fabsf(s.m) > MOST_M && s.m != -INFINITY;
        if (beyond || (!finite && !all_finite(sum, cols))) s = row_alone(t, r, sum);
        for (size_t c = 0; p->invariant && c < p->head_dim_v; c++)
            sum[c] += 0; /* -0 or 0 depends on the products with weights of 0 */
        if (sink != -INFINITY && !isnan(s.l)) {
            struct se with_sink = se_merge(s, se_lift(sink));
            factor = s.m == -INFINITY ? 0 : se_factor(s.m, with_sink.m);
            s = with_sink;
        }
        write_row(p, s, sum, factor * dropout_of(p).factor,
                  number_at(p->dtype, a->o, query_at(p, &t->s, of_o, q.h, q.i)));
        size_t at = lse_at(p, &t->s, q.h, q.i);
        if (a->lse) a->lse[at] = a->l && !isnan(s.l) ? s.m : se_lse(s);
        if (a->l) a->l[at] = s.l;
    }
}

/* x . y for the tile's rows, into x: the operation of the monoid, y the later keys. */
static void merge(const struct tile *t, struct state *x, const struct state *y)
{
    size_t cols = t->plan->cols;
    for (size_t r = 0; r < t->n_rows; r++) {
        float m = x->m[r] > y->m[r] ? x->m[r] : y->m[r], safe = m == -INFINITY ? 0 : m;
        float a = sexp2((x->m[r] - safe) * LOG2_M), b = sexp2((y->m[r] - safe) * LOG2_M);
        x->m[r] = m;
        x->l[r] = x->l[r] * a + y->l[r] * b;
        float *ox = x->o + r * cols;
        const float *oy = y->o + r * cols;
        for (size_t c = 0; c < cols; c++) ox[c] = ox[c] * a + oy[c] * b;
    }
}

typedef void fold_function(const struct tile *t, size_t begin, size_t end, struct state *x,
                           struct scratch *w);

/* Folds keys begin .. end - 1 from the unit. */
static void fold_span(fold_function *fold, const struct tile *t, size_t begin, size_t end,
                      struct state *x, struct scratch *w)
{
    size_t rows = round_up(t->n_rows, PANEL);
    for (size_t r = 0; r < rows; r++) x->m[r] = -INFINITY, x->l[r] = 0;
    if (begin < end) fold(t, begin, end, x, w);
    else memset(x->o, 0, rows * t->plan->cols * sizeof(float));
}

/* x = one part of one tile: the aggregate of its keys, of many merged from spans that begin at
 * multiples of CHAIN_KEYS.   y  room for that of a span */
static void fold_part(fold_function *fold, const struct tile *t, size_t part, struct state *x,
                      struct state *y, struct scratch *w)
{
    size_t begin = larger(part * t->plan->part_keys, t->some_see.first);
    size_t end = smaller((part + 1) * t->plan->part_keys, t->some_see.end);
    size_t next = (begin / CHAIN_KEYS + 1) * CHAIN_KEYS;
    fold_span(fold, t, begin, smaller(next, end), x, w);
    for (; next < end; next += CHAIN_KEYS) {
        fold_span(fold, t, next, smaller(next + CHAIN_KEYS, end), y, w);
        merge(t, x, y);
    }
}

/* Floats of one thread, whole cache lines. */
static size_t thread_floats(const struct problem *p, const struct plan *plan)
{
    return round_up(scratch_floats(p, plan), 16);
}

/* Bytes: scratch and a state of each thread, and one more of each or, of tiles in parts, of each
 * part. */
static size_t tiles_workspace(const struct problem *p)
{
    struct plan plan = plan_of(p);
    size_t threads = (size_t)omp_get_max_threads();
    size_t states = threads + (plan.parts > 1 ? plan.tiles * plan.parts : threads);
    return (threads * thread_floats(p, &plan) + states * state_floats(&plan)) * sizeof(float);
}

/* All tiles and parts, each by one thread from begin to end; then the parts of each tile are
 * merged in order.  The last tile, with the most visible keys, goes first.
 *   memory  of tiles_workspace() bytes */
static void tiles_of_thread(const struct problem *p, const struct arrays *a, const struct plan *plan,
                            const struct worker *me, fold_function *fold, float *memory)
{
    size_t tiles = plan->tiles, tasks = tiles * plan->parts;
    float *states = memory + thread_floats(p, plan) * me->threads;
    struct scratch w = scratch_at(p, plan, memory + thread_floats(p, plan) * me->number);
    struct state y = state_at(plan, states, me->number);
    states += state_floats(plan) * me->threads;
    for (size_t task; (task = take(me, 0)) < tasks;) {
        size_t index = tiles - 1 - task / plan->parts, part = task % plan->parts;
        struct tile t = tile_at(p, a, plan, index);
        struct state x = state_at(plan, states, plan->parts > 1 ? index * plan->parts + part : me->number);
        fold_part(fold, &t, part, &x, &y, &w);
        if (plan->parts == 1) finish(&t, &x);
    }
    if (plan->parts == 1) return;
    wait_for_team(me);
    for (size_t index; (index = take(me, 1)) < tiles;) {
        struct tile t = tile_at(p, a, plan, index);
        struct state x = state_at(plan, states, index * plan->parts);
        for (size_t part = 1; part < plan->parts; part++) {
            struct state y = state_at(plan, states, index * plan->parts + part);
            merge(&t, &x, &y);
        }
        finish(&t, &x);
    }
}
