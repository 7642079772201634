/* fold.h: folds the keys of a tile of Br queries, Bc keys at a time.
 *
 * A tile of keys meets the panels of the tile of queries one after the other: scores, weights,
 * values.  So the scores of a panel are still in the first-level cache when they become weights
 * and when the weights are used, however many queries share the tile of keys.
 *
 * Weights are exp(s - m).  Any reference point m gives the same o / l, so m need not be the
 * maximum: it is that of the first tile, and a later tile raises it only when its weights
 * outgrow it.  Almost no tile looks for a maximum (stage 5, rung 15, does the same). */
#ifndef FOLD_TILES_H
#define FOLD_TILES_H

#include "plan.h"

#define MOST_SUM 256 /* a tile's weights; so a score exceeds m by at most ln 256, in units of
                      * which s - m is rounded */

_Static_assert(Br % PANEL == 0, "a tile is whole panels");
_Static_assert(Bc < MOST_SUM, "weights of at most 1 cannot outgrow m");

/* The queries of each panel as columns, times scale; 0 beyond the last row.
 *   qt (head_dim, PANEL) of each panel */
static void pack_queries(const struct problem *p, const struct arrays *a,
                         const struct plan *plan, const struct tile *t, float *qt)
{
    for (size_t r = 0; r < round_up(t->n_rows, PANEL); r++) {
        const float *q = r < t->n_rows ? q_row(p, a, plan, t, r) : NULL;
        float *column = qt + r / PANEL * PANEL * p->head_dim + r % PANEL;
        for (size_t d = 0; d < p->head_dim; d++) column[d * PANEL] = q ? q[d] * p->scale : 0;
    }
}

/* Adds the bias and hides what is masked: -INFINITY, whatever was computed there.
 *   s (n, PANEL)  scores of keys j0 .. j0 + n - 1 for rows row .. row + n_rows - 1 */
static void mask_scores(const struct problem *p, const struct arrays *a, const struct tile *t,
                        size_t row, size_t n_rows, size_t j0, size_t n, float *s)
{
    for (size_t r = 0; r < n_rows; r++) {
        size_t i = (t->first + row + r) % t->s.seqlen_q;
        struct key_range sees = mask_keys(t->mask, i);
        size_t first = smaller(larger(sees.first, j0) - j0, n);
        size_t last = larger(smaller(larger(sees.end, j0) - j0, n), first);
        if (p->has_bias) {
            const float *bias = a->bias + i * p->seqlen_k + j0;
            for (size_t j = first; j < last; j++) {
                float with_bias = s[j * PANEL + r] + bias[j];
                s[j * PANEL + r] = bias[j] == -INFINITY ? -INFINITY : with_bias;
            }
        }
        for (size_t j = 0; j < first; j++) s[j * PANEL + r] = -INFINITY;
        for (size_t j = last; j < n; j++) s[j * PANEL + r] = -INFINITY;
    }
}

/* The largest of m and of n scores, in each lane.  Four maxima: each waits four cycles for the
 * one before it, and a core can start two in one cycle.   s (n, PANEL) */
INLINE vfloat column_max(const float *s, size_t n, vfloat m)
{
    vfloat top[UNROLL_MOST];
    UNROLL(u, 4, top[u] = m);
    size_t j = 0;
    for (; j + 4 <= n; j += 4) UNROLL(u, 4, top[u] = vmax(vload(s + (j + u) * PANEL), top[u]));
    for (; j < n; j++) top[0] = vmax(vload(s + j * PANEL), top[0]);
    return vmax(vmax(top[0], top[1]), vmax(top[2], top[3]));
}

/* m moves to where no score exceeds it, LANES queries at a time:
 *     m_new = max(m, s_j),  correction = correction * exp(m - m_new)
 *   s (n, PANEL)
 * While a row has seen no key m is -INFINITY and 0 stands in for it, else the difference of
 * two infinities would be NaN. */
static void raise_reference(const float *s, size_t n, size_t n_rows, float *m,
                            float *correction)
{
    for (size_t i = 0; i < n_rows; i += LANES) {
        vfloat old = vload(m + i), m_new = column_max(s + i, n, old);
        vfloat safe = vclear(vequal(m_new, vset(-INFINITY)), m_new);
        vstore(correction + i, vload(correction + i) * vexp2((old - safe) * LOG2E));
        vstore(m + i, m_new);
    }
}

/* Scores to weights, LANES queries at a time:  p_j = exp(s_j - m),  sum = sum p_j.
 * s (n, PANEL) becomes p.  Returns 0 when a sum exceeds MOST_SUM or is NaN. */
static int weights(float *s, size_t n, size_t n_rows, const float *m, float *sum)
{
    vfloat fits = vset(1); /* 0 in the lanes of sums that do not */
    for (size_t i = 0; i < n_rows; i += LANES) {
        float *s_i = s + i;
        vfloat safe = vload(m + i), sum_i = vset(0);
        safe = vclear(vequal(safe, vset(-INFINITY)), safe);
        size_t j = 0;
        for (; j + VEXP_AT_ONCE <= n; j += VEXP_AT_ONCE) {
            vfloat p[UNROLL_MOST];
            UNROLL(u, VEXP_AT_ONCE, p[u] = (vload(s_i + (j + u) * PANEL) - safe) * LOG2E);
            vexp2_lockstep(VEXP_AT_ONCE, p);
            UNROLL(u, VEXP_AT_ONCE, vstore(s_i + (j + u) * PANEL, p[u]); sum_i += p[u]);
        }
        for (; j < n; j++) {
            vfloat p = vexp2(vmin(vset(128), (vload(s_i + j * PANEL) - safe) * LOG2E));
            vstore(s_i + j * PANEL, p);
            sum_i += p;
        }
        vstore(sum + i, sum_i);
        fits = vkeep(vless(sum_i, vset(MOST_SUM)), fits);
    }
    return !vany(vequal(fits, vset(0)));
}

/* The values copied to rows of whole vectors, 0 in between, for head_dim_v that is not a
 * multiple of LANES. */
static void pad_values(const struct problem *p, const struct keys *keys, size_t cols,
                       float *padded)
{
    for (size_t j = 0; j < keys->n; j++) {
        memcpy(padded + j * cols, keys->v + j * keys->v_stride,
               p->head_dim_v * sizeof(float));
        for (size_t c = p->head_dim_v; c < cols; c++) padded[j * cols + c] = 0;
    }
}

/* The state of the panel that begins at row `row`. */
static struct state panel_of(const struct state *x, size_t row, size_t cols)
{
    return (struct state){.m = x->m + row, .l = x->l + row, .o = x->o + row * cols};
}

/* s (n, PANEL) = the scores of keys j0 .. j0 + n - 1 and of the panel that begins at row `row`,
 * capped, biased and masked. */
static void panel_scores(const struct problem *p, const struct arrays *a,
                         const struct products *products, const struct tile *t,
                         const struct sight *sight, size_t row, size_t n_rows, size_t j0,
                         size_t n, const struct keys *keys, struct scratch *w)
{
    products->scores(keys->k, keys->k_stride, n, p->head_dim, w->qt + row * p->head_dim,
                     n_rows, w->s);
    if (p->softcap > 0) cap_scores(w->s, n * PANEL, p->softcap);
    if (p->has_bias || j0 < sight->all.first || j0 + n > sight->all.end)
        mask_scores(p, a, t, row, n_rows, j0, n, w->s);
}

/* Has a row seen no key yet? */
static int some_unit(const float *m, size_t n_rows)
{
    int some = 0;
    for (size_t r = 0; r < n_rows; r++) some |= m[r] == -INFINITY;
    return some;
}

/* Folds a tile of keys, which begins at key j0, into the panel that begins at row `row`, up to
 * the last key that one of its rows sees.  The weights take the place of the scores, so weights
 * that outgrow m cost a second product. */
static void fold_panel(const struct problem *p, const struct arrays *a,
                       const struct plan *plan, const struct products *products,
                       const struct tile *t, const struct sight *sight, size_t row, size_t j0,
                       const struct keys *keys, struct state x, struct scratch *w)
{
    if (j0 + keys->n <= sight->some.first || j0 >= sight->some.end) return;
    size_t n = smaller(keys->n, sight->some.end - j0), n_rows = smaller(t->n_rows - row, PANEL);
    float sum[PANEL], *correction = w->correction;
    for (size_t r = 0; r < PANEL; r++) correction[r] = 1;
    panel_scores(p, a, products, t, sight, row, n_rows, j0, n, keys, w);
    if (some_unit(x.m, n_rows)) raise_reference(w->s, n, n_rows, x.m, correction);
    if (!weights(w->s, n, n_rows, x.m, sum)) {
        panel_scores(p, a, products, t, sight, row, n_rows, j0, n, keys, w);
        raise_reference(w->s, n, n_rows, x.m, correction);
        weights(w->s, n, n_rows, x.m, sum);
    }
    for (size_t r = 0; r < n_rows; r++) x.l[r] = sfma(x.l[r], correction[r], sum[r]);
    products->values(w->s, n, keys->v, keys->v_stride, plan->cols, correction, n_rows, x.o);
}

/* Folds keys begin .. end - 1 into x, a tile of keys at a time. */
static void fold_tiles(const struct problem *p, const struct arrays *a,
                       const struct plan *plan, const struct products *products,
                       const struct tile *t, size_t begin, size_t end, struct state *x,
                       struct scratch *w)
{
    struct sight sight[Br / PANEL];
    for (size_t row = 0; row < t->n_rows; row += PANEL)
        sight[row / PANEL] = sight_of(t, row, smaller(t->n_rows - row, PANEL));
    pack_queries(p, a, plan, t, w->qt);
    for (size_t j0 = begin, n; j0 < end; j0 += n) {
        struct keys keys = keys_from(p, a, t, j0, smaller(end - j0, Bc));
        n = keys.n;
        if (plan->cols != p->head_dim_v) {
            pad_values(p, &keys, plan->cols, w->v);
            keys.v = w->v, keys.v_stride = plan->cols;
        }
        for (size_t row = 0; row < t->n_rows; row += PANEL)
            fold_panel(p, a, plan, products, t, &sight[row / PANEL], row, j0, &keys,
                       panel_of(x, row, plan->cols), w);
    }
}

#endif
