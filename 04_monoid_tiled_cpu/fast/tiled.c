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
 * threads changes no bit of the result. */
#include <omp.h>

#include "monoid.h"
#include "problem/layout.h"
#include "products.h"
#include "softmax.h"
#include "stage.h"
#include "vector/vexp.h"

#define Bc 64             /* keys of a tile: Bc * Br scores, 24 KiB, fit the first-level cache */
#define ENOUGH_TASKS 64   /* with fewer tiles than this the keys are cut into parts ... */
#define LEAST_PART 512    /* ... of at least so many keys */
#define DECODE_ROWS 2     /* up to so many query rows, keys are read row by row */
#define LOG2E 0x1.715476p+0f

/* The problem as tiles and parts.  A group is the query heads of a sequence that share keys. */
struct plan {
    size_t group;      /* query heads of a group */
    size_t tiles;      /* of all groups; of packed sequences at least as many as there are */
    size_t parts;      /* of the keys of a tile */
    size_t part_keys;
    size_t cols;       /* head_dim_v rounded up to whole vectors */
};

/* The aggregate of Br queries: m and l (Br), o (Br, cols), un-normalised. */
struct state { float *m, *l, *o; };

/* One thread's memory: qt (head_dim, Br), s (Bc, Br), v (Bc, cols), correction (Br). */
struct scratch { float *qt, *s, *v, *correction; };

/* One tile of queries of one group. */
struct tile {
    struct sequence s;
    size_t kv;                /* the head of k and v */
    size_t first, n_rows;     /* rows of the group's list: first .. first + n_rows - 1 */
    struct mask mask;
    struct key_range all_see; /* the keys that every row of it sees */
    struct key_range some_see;/* the keys that at least one row sees */
};

#define SUPPORTED                                                                          \
    (BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS | WITH_PACKED | \
     WITH_PAGES | WITH_STRIDES)

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Tiles of a sequence of so many queries, for one head of k and v. */
static size_t tiles_of(size_t group, size_t seqlen_q)
{
    return (group * seqlen_q + Br - 1) / Br;
}

static struct plan plan_of(const struct problem *p)
{
    struct plan plan = {.group = p->heads_kv ? p->heads_q / p->heads_kv : 0, .parts = 1};
    plan.cols = round_up(p->head_dim_v, LANES);
    plan.tiles = p->batch * tiles_of(plan.group, p->seqlen_q);
    if (p->packed) plan.tiles = plan.group * p->total_q / Br + p->batch;
    plan.tiles *= p->heads_kv;
    if (plan.tiles && plan.tiles < ENOUGH_TASKS) {
        plan.parts = (ENOUGH_TASKS + plan.tiles - 1) / plan.tiles;
        size_t most = (p->seqlen_k + LEAST_PART - 1) / LEAST_PART;
        if (plan.parts > most) plan.parts = most ? most : 1;
    }
    plan.part_keys = round_up((p->seqlen_k + plan.parts - 1) / plan.parts, 8);
    return plan;
}

static size_t state_floats(const struct plan *plan)
{
    return Br * (plan->cols + 2);
}

static size_t scratch_floats(const struct problem *p, const struct plan *plan)
{
    return Br * (p->head_dim + Bc + 1) + Bc * plan->cols + 16;
}

/* Each thread has scratch and one state; each part of each tile a state. */
static size_t tiled_workspace(const struct problem *p)
{
    struct plan plan = plan_of(p);
    size_t threads = (size_t)omp_get_max_threads();
    size_t states = plan.parts > 1 ? plan.tiles * plan.parts : threads;
    return (threads * round_up(scratch_floats(p, &plan), 16) + states * state_floats(&plan))
        * sizeof(float);
}

static struct state state_at(const struct plan *plan, float *memory, size_t index)
{
    float *m = memory + index * state_floats(plan);
    return (struct state){.m = m, .l = m + Br, .o = m + 2 * Br};
}

static struct scratch scratch_at(const struct problem *p, const struct plan *plan,
                                 float *memory, size_t thread)
{
    float *qt = memory + thread * round_up(scratch_floats(p, plan), 16);
    float *s = qt + Br * p->head_dim;
    return (struct scratch){.qt = qt, .s = s, .correction = s + Bc * Br,
                            .v = s + Bc * Br + Br};
}

/* The sequence, head and rows of tile number `index`, counted sequence by sequence; n_rows is
 * 0 behind the last tile of a packed batch. */
static struct tile tile_rows(const struct problem *p, const struct arrays *a,
                             const struct plan *plan, size_t index)
{
    struct tile t = {.n_rows = 0};
    size_t b = 0, tiles = tiles_of(plan->group, p->seqlen_q);
    if (!p->packed) {
        b = index / (p->heads_kv * tiles);
        index %= p->heads_kv * tiles;
        t.s = sequence_of(p, a, b);
    }
    for (; p->packed && b < p->batch; b++) {
        t.s = sequence_of(p, a, b);
        tiles = tiles_of(plan->group, t.s.seqlen_q);
        if (index < p->heads_kv * tiles) break;
        index -= p->heads_kv * tiles;
    }
    if (b == p->batch) return t;
    size_t rows = plan->group * t.s.seqlen_q;
    t.kv = index / tiles;
    t.first = index % tiles * Br;
    t.n_rows = smaller(rows - t.first, Br);
    return t;
}

static struct tile tile_at(const struct problem *p, const struct arrays *a,
                           const struct plan *plan, size_t index)
{
    struct tile t = tile_rows(p, a, plan, index);
    t.mask = mask_of_lengths(p, t.s.seqlen_q, t.s.seqlen_k);
    t.all_see = (struct key_range){0, t.s.seqlen_k};
    t.some_see = (struct key_range){t.s.seqlen_k, 0};
    for (size_t r = 0; r < t.n_rows; r++) {
        struct key_range sees = mask_keys(t.mask, (t.first + r) % t.s.seqlen_q);
        t.all_see.first = larger(t.all_see.first, sees.first);
        t.all_see.end = smaller(t.all_see.end, sees.end);
        t.some_see.first = smaller(t.some_see.first, sees.first);
        t.some_see.end = larger(t.some_see.end, sees.end);
    }
    return t;
}

/* Row r of a tile: query i of head h of its sequence. */
struct query { size_t h, i; };

static struct query query_of(const struct plan *plan, const struct tile *t, size_t r)
{
    size_t row = t->first + r;
    return (struct query){t->kv * plan->group + row / t->s.seqlen_q, row % t->s.seqlen_q};
}

static const float *q_row(const struct problem *p, const struct arrays *a,
                          const struct plan *plan, const struct tile *t, size_t r)
{
    struct query q = query_of(plan, t, r);
    return (const float *)a->q + query_at(p, &t->s, strides_of_q(p), q.h, q.i);
}

/* Keys that lie together: rows k_stride and v_stride apart. */
struct keys { const float *k, *v; size_t k_stride, v_stride, n; };

/* Those from key j on, at most `most`; they end where the page does. */
static struct keys keys_from(const struct problem *p, const struct arrays *a,
                             const struct tile *t, size_t j, size_t most)
{
    struct strides of_k = strides_of_k(p), of_v = strides_of_v(p);
    size_t page = p->page_size ? p->page_size - j % p->page_size : most;
    return (struct keys){
        .k = (const float *)a->k + key_at(p, a, &t->s, of_k, t->kv, j),
        .v = (const float *)a->v + key_at(p, a, &t->s, of_v, t->kv, j),
        .k_stride = of_k.row, .v_stride = of_v.row, .n = smaller(most, page)};
}

/* qt (head_dim, Br): the tile's queries as columns, times scale; 0 beyond the last row. */
static void pack_queries(const struct problem *p, const struct arrays *a,
                         const struct plan *plan, const struct tile *t, float *qt)
{
    for (size_t r = 0; r < Br; r++) {
        const float *q = r < t->n_rows ? q_row(p, a, plan, t, r) : NULL;
        for (size_t d = 0; d < p->head_dim; d++) qt[d * Br + r] = q ? q[d] * p->scale : 0;
    }
}

/* c tanh(s / c) of n floats, the last vector whole. */
static void cap_scores(float *s, size_t n, float c)
{
    for (size_t j = 0; j < n; j += LANES) vstore(s + j, vtanh(vload(s + j) / c) * c);
}

/* Adds the bias and hides what is masked: -INFINITY, whatever was computed there.
 *   s (n, Br)  scores of keys j0 .. j0 + n - 1 */
static void mask_scores(const struct problem *p, const struct arrays *a, const struct tile *t,
                        size_t j0, size_t n, float *s)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        size_t i = (t->first + r) % t->s.seqlen_q;
        struct key_range sees = mask_keys(t->mask, i);
        size_t first = smaller(larger(sees.first, j0) - j0, n);
        size_t last = larger(smaller(larger(sees.end, j0) - j0, n), first);
        if (p->has_bias) {
            const float *bias = a->bias + i * p->seqlen_k + j0;
            for (size_t j = first; j < last; j++) {
                float with_bias = s[j * Br + r] + bias[j];
                s[j * Br + r] = bias[j] == -INFINITY ? -INFINITY : with_bias;
            }
        }
        for (size_t j = 0; j < first; j++) s[j * Br + r] = -INFINITY;
        for (size_t j = last; j < n; j++) s[j * Br + r] = -INFINITY;
    }
}

/* The largest of m and of n scores, in each lane.  Four maxima: each waits four cycles for the
 * one before it, and a core can start two in one cycle.   s (n, Br) */
INLINE vfloat column_max(const float *s, size_t n, vfloat m)
{
    vfloat top[UNROLL_MOST];
    UNROLL(u, 4, top[u] = m);
    size_t j = 0;
    for (; j + 4 <= n; j += 4) UNROLL(u, 4, top[u] = vmax(vload(s + (j + u) * Br), top[u]));
    for (; j < n; j++) top[0] = vmax(vload(s + j * Br), top[0]);
    return vmax(vmax(top[0], top[1]), vmax(top[2], top[3]));
}

/* Scores to weights, LANES queries at a time:
 *     m_new = max(m, s_j),  p_j = exp(s_j - m_new),  correction = exp(m - m_new),
 *     l = l * correction + sum p_j
 * s (n, Br) becomes p.  While a row has seen no key m is -INFINITY and 0 stands in for it,
 * else the difference of two infinities would be NaN. */
static void weights(float *s, size_t n, size_t n_rows, struct state *x, float *correction)
{
    for (size_t i = 0; i < n_rows; i += LANES) {
        float *s_i = s + i;
        vfloat m = vload(x->m + i), m_new = column_max(s_i, n, m), sum = vset(0);
        vfloat safe = vclear(vequal(m_new, vset(-INFINITY)), m_new);
        size_t j = 0;
        for (; j + VEXP_AT_ONCE <= n; j += VEXP_AT_ONCE) {
            vfloat p[UNROLL_MOST];
            UNROLL(u, VEXP_AT_ONCE, p[u] = (vload(s_i + (j + u) * Br) - safe) * LOG2E);
            vexp2_lockstep(VEXP_AT_ONCE, p);
            UNROLL(u, VEXP_AT_ONCE, vstore(s_i + (j + u) * Br, p[u]); sum += p[u]);
        }
        for (; j < n; j++) {
            vfloat p = vexp2((vload(s_i + j * Br) - safe) * LOG2E);
            vstore(s_i + j * Br, p);
            sum += p;
        }
        vfloat factor = vexp2((m - safe) * LOG2E);
        vstore(correction + i, factor);
        vstore(x->m + i, m_new);
        vstore(x->l + i, vfma(vload(x->l + i), factor, sum));
    }
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

/* Folds keys begin .. end - 1 into x, a tile of keys at a time. */
static void fold_tiles(const struct problem *p, const struct arrays *a,
                       const struct plan *plan, const struct products *products,
                       const struct tile *t, size_t begin, size_t end, struct state *x,
                       struct scratch *w)
{
    pack_queries(p, a, plan, t, w->qt);
    for (size_t j0 = begin, n; j0 < end; j0 += n) {
        struct keys keys = keys_from(p, a, t, j0, smaller(end - j0, Bc));
        n = keys.n;
        products->scores(keys.k, keys.k_stride, n, p->head_dim, w->qt, t->n_rows, w->s);
        if (p->softcap > 0) cap_scores(w->s, n * Br, p->softcap);
        if (p->has_bias || j0 < t->all_see.first || j0 + n > t->all_see.end)
            mask_scores(p, a, t, j0, n, w->s);
        weights(w->s, n, t->n_rows, x, w->correction);
        if (plan->cols != p->head_dim_v) {
            pad_values(p, &keys, plan->cols, w->v);
            keys.v = w->v, keys.v_stride = plan->cols;
        }
        products->values(w->s, n, keys.v, keys.v_stride, plan->cols, w->correction,
                         t->n_rows, x->o);
    }
}

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

/* The tile's rows of o and lse from its aggregate.  p * v is computed for keys with
 * score -INFINITY too, with p = 0: only NaN and infinity show that, and such rows are done again alone. */
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

/* Asks for the row AHEAD rows on, columns 0 .. n - 1.  A core fetches ahead by itself only
 * within a page of 4 KiB, and a page holds few keys.   row (n), rows `stride` apart */
INLINE void fetch_ahead(const float *row, size_t n, size_t stride)
{
    enum { AHEAD = 12 };
    for (size_t t = 0; t < n; t += 16) vfetch(row + t, AHEAD * stride);
}

/* o = o * factor + sum_j p_j v_j over n keys, `vectors` vectors of columns, a constant: o
 * stays in registers.  In memory, each key would wait for the store of the one before it.
 *   p (n)   v (n, stride) and o, at the first column */
INLINE void add_columns(int vectors, const float *p, size_t n, const float *v, size_t stride,
                        float factor, float *o)
{
    vfloat sum[UNROLL_MOST];
    UNROLL(c, vectors, sum[c] = vload(o + c * LANES) * factor);
    for (size_t j = 0; j < n; j++) {
        const float *v_j = v + j * stride;
        fetch_ahead(v_j, (size_t)vectors * LANES, stride);
        UNROLL(c, vectors, sum[c] = vfma(vset(p[j]), vload(v_j + c * LANES), sum[c]));
    }
    UNROLL(c, vectors, vstore(o + c * LANES, sum[c]));
}

/* The same for all columns.   v (n, head_dim_v), rows `stride` apart   o (head_dim_v) */
static void add_values(const float *p, size_t n, const float *v, size_t stride,
                       size_t head_dim_v, float factor, float *o)
{
    size_t c = 0;
    for (; c + 8 * LANES <= head_dim_v; c += 8 * LANES)
        add_columns(8, p, n, v + c, stride, factor, o + c);
    for (; c + 4 * LANES <= head_dim_v; c += 4 * LANES)
        add_columns(4, p, n, v + c, stride, factor, o + c);
    for (; c + LANES <= head_dim_v; c += LANES)
        add_columns(1, p, n, v + c, stride, factor, o + c);
    for (; c < head_dim_v; c++) {
        o[c] *= factor;
        for (size_t j = 0; j < n; j++) o[c] = sfma(p[j], v[j * stride + c], o[c]);
    }
}

/* s (n) = scores of n keys and the query q (head_dim), -INFINITY up to a whole vector.
 *   bias (n) or NULL */
static void row_scores(const struct problem *p, const float *q, const struct keys *keys,
                       size_t n, const float *bias, float *s)
{
    for (size_t j = 0; j < n; j++) {
        const float *k_j = keys->k + j * keys->k_stride;
        fetch_ahead(k_j, p->head_dim, keys->k_stride);
        s[j] = vdot(q, k_j, p->head_dim) * p->scale;
    }
    for (size_t j = n; j % LANES; j++) s[j] = 0;
    if (p->softcap > 0) cap_scores(s, n, p->softcap);
    for (size_t j = 0; bias && j < n; j++)
        s[j] = bias[j] == -INFINITY ? -INFINITY : s[j] + bias[j];
    for (size_t j = n; j % LANES; j++) s[j] = -INFINITY;
}

/* Folds the keys of one chunk that row r sees, first .. first + n - 1, into its state.
 *   s (n)  scratch */
static void fold_row(const struct problem *p, const struct arrays *a, const struct plan *plan,
                     const struct tile *t, size_t r, size_t first, size_t n, struct state *x,
                     float *s)
{
    size_t i = (t->first + r) % t->s.seqlen_q;
    const float *bias = p->has_bias ? a->bias + i * p->seqlen_k + first : NULL;
    struct keys keys = keys_from(p, a, t, first, n);
    vfloat m_lanes = vset(x->m[r]), sum = {0};
    row_scores(p, q_row(p, a, plan, t, r), &keys, n, bias, s);
    for (size_t j = 0; j < n; j += LANES) m_lanes = vmax(vload(s + j), m_lanes);
    float m_new = vlargest(m_lanes), safe = m_new == -INFINITY ? 0 : m_new;
    for (size_t j = 0; j < n; j += LANES) {
        vfloat p_j = vexp2((vload(s + j) - safe) * LOG2E);
        vstore(s + j, p_j);
        sum += p_j;
    }
    float factor = sexp2((x->m[r] - safe) * LOG2E);
    x->m[r] = m_new;
    x->l[r] = sfma(x->l[r], factor, vsum(sum));
    add_values(s, n, keys.v, keys.v_stride, p->head_dim_v, factor, x->o + r * plan->cols);
}

/* Folds keys begin .. end - 1 into x for few rows: keys and values are read once, in the
 * order in which they lie in memory, which is what limits a decode step.
 * w.s holds the scores of one row and one chunk of keys. */
static void fold_rows(const struct problem *p, const struct arrays *a,
                      const struct plan *plan, const struct tile *t, size_t begin, size_t end,
                      struct state *x, struct scratch *w)
{
    enum { CHUNK = 256 };
    for (size_t j0 = begin, n_keys; j0 < end; j0 += n_keys) {
        n_keys = keys_from(p, a, t, j0, smaller(end - j0, CHUNK)).n;
        for (size_t r = 0; r < t->n_rows; r++) {
            struct key_range sees = mask_keys(t->mask, (t->first + r) % t->s.seqlen_q);
            size_t first = larger(j0, sees.first), last = smaller(j0 + n_keys, sees.end);
            if (first < last) fold_row(p, a, plan, t, r, first, last - first, x, w->s);
        }
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
        float *s_j = s + j * Br;
        for (size_t i = 0; i < Br; i++) s_j[i] = 0;
        for (size_t d = 0; d < head_dim; d++) {
            float k_jd = k[j * k_stride + d];
            for (size_t i = 0; i < Br; i++) s_j[i] = sfma(k_jd, qt[d * Br + i], s_j[i]);
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
                o_i[c] = sfma(p[j * Br + i], v[j * v_stride + c], o_i[c]);
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

/* No pass over the scores: nothing of size seqlen_q * seqlen_k exists.  Of a window, tiles
 * of Br queries compute the scores that one of them sees. */
static struct cost tiled_cost(const struct problem *p)
{
    struct cost cost = {.passes = 0, .bytes = attention_io_bytes(p), .exps = score_count(p)};
    double scores = 0;
    if (!p->has_window) return cost;
    for (size_t i = 0; i < p->seqlen_q; i += Br) {
        size_t end = smaller(i + Br, p->seqlen_q);
        struct key_range seen = some_row_sees(problem_mask(p), i, end);
        scores += (double)(end - i) * (double)(seen.end - seen.first);
    }
    cost.exps = (double)p->batch * (double)p->heads_q * scores;
    return cost;
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
    .idea = "96 queries share a key",
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
