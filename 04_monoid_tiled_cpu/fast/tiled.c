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
 * Few queries make few tiles.  Then each tile's keys are cut into parts, folded apart and
 * merged in order.  The number of parts depends on the shape alone, so the number of
 * threads changes no bit of the result. */
#include <omp.h>

#include "products.h"
#include "softmax.h"
#include "stage.h"
#include "vector/vexp.h"

#define Bc 64             /* keys of a tile: Bc * Br scores, 24 KiB, fit the first-level cache */
#define ENOUGH_TASKS 64   /* with fewer tiles than this the keys are cut into parts ... */
#define LEAST_PART 512    /* ... of at least so many keys */
#define DECODE_ROWS 2     /* up to so many query rows, keys are read row by row */
#define LOG2E 0x1.715476p+0f

/* The problem as tiles and parts. */
struct plan {
    size_t groups;     /* batch * heads_kv: each has its own keys */
    size_t rows;       /* query rows of a group */
    size_t tiles;      /* of a group */
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
    const float *q, *k, *v;   /* q at its first row; k and v at the group's first key */
    size_t first, n_rows;     /* rows of the group's list: first .. first + n_rows - 1 */
    struct key_range all_see; /* the keys that every row of it sees */
    struct key_range some_see;/* the keys that at least one row sees */
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static struct plan plan_of(const struct problem *p)
{
    struct plan plan = {.groups = p->batch * p->heads_kv, .parts = 1};
    plan.rows = p->heads_kv ? p->heads_q / p->heads_kv * p->seqlen_q : 0;
    plan.tiles = (plan.rows + Br - 1) / Br;
    plan.cols = round_up(p->head_dim_v, LANES);
    size_t tiles = plan.groups * plan.tiles;
    if (tiles && tiles < ENOUGH_TASKS) {
        plan.parts = (ENOUGH_TASKS + tiles - 1) / tiles;
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
    size_t states = plan.parts > 1 ? plan.groups * plan.tiles * plan.parts : threads;
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

static struct tile tile_at(const struct problem *p, const struct arrays *a,
                           const struct plan *plan, size_t group, size_t index)
{
    struct tile t = {.first = index * Br};
    t.n_rows = plan->rows - t.first < Br ? plan->rows - t.first : Br;
    t.q = (const float *)a->q + (group * plan->rows + t.first) * p->head_dim;
    t.k = (const float *)a->k + group * p->seqlen_k * p->head_dim;
    t.v = (const float *)a->v + group * p->seqlen_k * p->head_dim_v;
    t.all_see = (struct key_range){0, p->seqlen_k};
    t.some_see = (struct key_range){p->seqlen_k, 0};
    for (size_t r = 0; r < t.n_rows; r++) {
        struct key_range sees = visible_keys(p, (t.first + r) % p->seqlen_q);
        t.all_see.first = larger(t.all_see.first, sees.first);
        t.all_see.end = smaller(t.all_see.end, sees.end);
        t.some_see.first = smaller(t.some_see.first, sees.first);
        t.some_see.end = larger(t.some_see.end, sees.end);
    }
    return t;
}

/* qt (head_dim, Br): the tile's queries as columns, times scale; 0 beyond the last row. */
static void pack_queries(const struct problem *p, const struct tile *t, float *qt)
{
    for (size_t i = 0; i < Br; i++)
        for (size_t d = 0; d < p->head_dim; d++)
            qt[d * Br + i] = i < t->n_rows ? t->q[i * p->head_dim + d] * p->scale : 0;
}

/* Adds the bias and hides what is masked: -INFINITY, whatever was computed there.
 *   s (n, Br)  scores of keys j0 .. j0 + n - 1 */
static void mask_scores(const struct problem *p, const struct arrays *a, const struct tile *t,
                        size_t j0, size_t n, float *s)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        size_t i = (t->first + r) % p->seqlen_q;
        struct key_range sees = visible_keys(p, i);
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

/* v (n, head_dim_v) copied to rows of whole vectors, 0 in between, for head_dim_v that is
 * not a multiple of LANES. */
static void pad_values(const struct problem *p, const float *v, size_t n, size_t cols,
                       float *padded)
{
    for (size_t j = 0; j < n; j++) {
        memcpy(padded + j * cols, v + j * p->head_dim_v, p->head_dim_v * sizeof(float));
        for (size_t c = p->head_dim_v; c < cols; c++) padded[j * cols + c] = 0;
    }
}

/* Folds keys begin .. end - 1 into x, a tile of keys at a time. */
static void fold_tiles(const struct problem *p, const struct arrays *a,
                       const struct plan *plan, const struct products *products,
                       const struct tile *t, size_t begin, size_t end, struct state *x,
                       struct scratch *w)
{
    pack_queries(p, t, w->qt);
    for (size_t j0 = begin; j0 < end; j0 += Bc) {
        size_t n = end - j0 < Bc ? end - j0 : Bc;
        const float *v = t->v + j0 * p->head_dim_v;
        products->scores(t->k + j0 * p->head_dim, n, p->head_dim, w->qt, t->n_rows, w->s);
        if (p->has_bias || j0 < t->all_see.first || j0 + n > t->all_see.end)
            mask_scores(p, a, t, j0, n, w->s);
        weights(w->s, n, t->n_rows, x, w->correction);
        if (plan->cols != p->head_dim_v) {
            pad_values(p, v, n, plan->cols, w->v);
            v = w->v;
        }
        products->values(w->s, n, v, plan->cols, w->correction, t->n_rows, x->o);
    }
}

/* One query row, one key at a time, keys with score -INFINITY skipped and not multiplied by
 * 0: what a row gets when NaN or infinity stood in its tile.
 *   q (head_dim)   k, v  the group's   o (head_dim_v)   returns lse */
static float row_alone(const struct problem *p, const struct arrays *a, const struct tile *t,
                       size_t row, float *o)
{
    size_t i = (t->first + row) % p->seqlen_q;
    struct key_range keys = visible_keys(p, i);
    float m = -INFINITY, l = 0;
    for (size_t c = 0; c < p->head_dim_v; c++) o[c] = 0;
    for (size_t j = keys.first; j < keys.end; j++) {
        float bias = p->has_bias ? a->bias[i * p->seqlen_k + j] : 0;
        if (bias == -INFINITY) continue;
        const float *v_j = t->v + j * p->head_dim_v;
        float s = vdot(t->q + row * p->head_dim, t->k + j * p->head_dim, p->head_dim);
        s = sfma(s, p->scale, bias);
        if (s == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */
        float m_new = s > m ? s : m, safe = m_new == -INFINITY ? 0 : m_new;
        float factor = sexp(m - safe), p_j = sexp(s - safe);
        l = sfma(l, factor, p_j);
        vaxpy(factor, o, p_j, v_j, p->head_dim_v);
        m = m_new;
    }
    for (size_t c = 0; c < p->head_dim_v; c++) o[c] = l == 0 ? 0 : o[c] / l;
    return m + logf(l);
}

/* 0 when some x[c] is NaN or infinite. */
static int all_finite(const float *x, size_t n)
{
    int finite = 1;
    for (size_t c = 0; c < n; c++) finite &= fabsf(x[c]) < INFINITY;
    return finite;
}

/* The tile's rows of o and lse from its aggregate.  p * v is computed for keys with
 * score -INFINITY too, with p = 0: only NaN and infinity show that, and such rows are done again alone. */
static void finish(const struct problem *p, const struct arrays *a, const struct plan *plan,
                   const struct tile *t, size_t group, const struct state *x)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        size_t row = group * plan->rows + t->first + r;
        float *o = (float *)a->o + row * p->head_dim_v, l = x->l[r];
        float lse = x->m[r] + logf(l);
        const float *sum = x->o + r * plan->cols;
        for (size_t c = 0; c < p->head_dim_v; c++) o[c] = l == 0 ? 0 : sum[c] / l;
        if (!all_finite(o, p->head_dim_v))
            lse = row_alone(p, a, t, r, o);
        if (a->lse) a->lse[row] = lse;
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

/* The same for all columns.   v (n, head_dim_v)   o (head_dim_v) */
static void add_values(const float *p, size_t n, const float *v, size_t head_dim_v,
                       float factor, float *o)
{
    size_t c = 0, stride = head_dim_v;
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

/* Folds keys begin .. end - 1 into x for few rows: keys and values are read once, in the
 * order in which they lie in memory, which is what limits a decode step.
 * w.s holds the scores of one row and one chunk of keys. */
static void fold_rows(const struct problem *p, const struct arrays *a,
                      const struct plan *plan, const struct tile *t, size_t begin, size_t end,
                      struct state *x, struct scratch *w)
{
    enum { CHUNK = 256 };
    for (size_t j0 = begin; j0 < end; j0 += CHUNK)
        for (size_t r = 0; r < t->n_rows; r++) {
            size_t i = (t->first + r) % p->seqlen_q;
            struct key_range sees = visible_keys(p, i);
            size_t first = larger(j0, sees.first);
            size_t last = smaller(smaller(j0 + CHUNK, end), sees.end);
            size_t n = last > first ? last - first : 0;
            const float *bias = p->has_bias ? a->bias + i * p->seqlen_k + first : NULL;
            vfloat m_lanes = vset(x->m[r]), sum = {0};
            for (size_t j = 0; j < n; j++) {
                const float *k_j = t->k + (first + j) * p->head_dim;
                fetch_ahead(k_j, p->head_dim, p->head_dim);
                float s = vdot(t->q + r * p->head_dim, k_j, p->head_dim);
                s *= p->scale;
                if (bias) s = bias[j] == -INFINITY ? -INFINITY : s + bias[j];
                w->s[j] = s;
            }
            for (size_t j = n; j % LANES; j++) w->s[j] = -INFINITY;
            for (size_t j = 0; j < n; j += LANES) m_lanes = vmax(vload(w->s + j), m_lanes);
            float m_new = vlargest(m_lanes), safe = m_new == -INFINITY ? 0 : m_new;
            for (size_t j = 0; j < n; j += LANES) {
                vfloat p_j = vexp2((vload(w->s + j) - safe) * LOG2E);
                vstore(w->s + j, p_j);
                sum += p_j;
            }
            float factor = sexp2((x->m[r] - safe) * LOG2E);
            x->m[r] = m_new;
            x->l[r] = sfma(x->l[r], factor, vsum(sum));
            add_values(w->s, n, t->v + first * p->head_dim_v, p->head_dim_v, factor,
                       x->o + r * plan->cols);
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
    if (plan->rows <= DECODE_ROWS) fold_rows(p, a, plan, t, begin, end, x, w);
    else fold_tiles(p, a, plan, products, t, begin, end, x, w);
}

/* All tiles and parts on so many threads, each by one thread from begin to end; then the
 * parts of each tile are merged in order.  The last tile, with the most visible keys, goes
 * first. */
static void attention_tiles(const struct problem *p, const struct arrays *a,
                            const struct products *products, int threads)
{
    struct plan plan = plan_of(p);
    size_t tiles = plan.groups * plan.tiles, tasks = tiles * plan.parts;
    size_t scratch = round_up(scratch_floats(p, &plan), 16) * (size_t)omp_get_max_threads();
    float *memory = a->workspace, *states = memory + scratch;
#pragma omp parallel num_threads(threads)
    {
        size_t me = (size_t)omp_get_thread_num();
        struct scratch w = scratch_at(p, &plan, memory, me);
#pragma omp for schedule(dynamic, 1)
        for (size_t task = 0; task < tasks; task++) {
            size_t index = tiles - 1 - task / plan.parts, part = task % plan.parts;
            size_t group = index / plan.tiles;
            struct tile t = tile_at(p, a, &plan, group, index % plan.tiles);
            struct state x = state_at(&plan, states,
                                      plan.parts > 1 ? index * plan.parts + part : me);
            fold_part(p, a, &plan, products, &t, part, &x, &w);
            if (plan.parts == 1) finish(p, a, &plan, &t, group, &x);
        }
#pragma omp for schedule(dynamic, 1)
        for (size_t index = 0; index < (plan.parts > 1 ? tiles : 0); index++) {
            size_t group = index / plan.tiles;
            struct tile t = tile_at(p, a, &plan, group, index % plan.tiles);
            struct state x = state_at(&plan, states, index * plan.parts);
            for (size_t part = 1; part < plan.parts; part++) {
                struct state y = state_at(&plan, states, index * plan.parts + part);
                merge(&plan, t.n_rows, &x, &y);
            }
            finish(p, a, &plan, &t, group, &x);
        }
    }
}

static void loop_scores(const float *k, size_t n_keys, size_t head_dim, const float *qt,
                         size_t n_rows, float *s)
{
    for (size_t j = 0; j < n_keys; j++) {
        float *s_j = s + j * Br;
        for (size_t i = 0; i < Br; i++) s_j[i] = 0;
        for (size_t d = 0; d < head_dim; d++) {
            float k_jd = k[j * head_dim + d];
            for (size_t i = 0; i < Br; i++) s_j[i] = sfma(k_jd, qt[d * Br + i], s_j[i]);
        }
    }
    (void)n_rows;
}

static void loop_values(const float *p, size_t n_keys, const float *v, size_t cols,
                        const float *correction, size_t n_rows, float *o)
{
    for (size_t i = 0; i < n_rows; i++) {
        float *o_i = o + i * cols;
        for (size_t c = 0; c < cols; c++) o_i[c] *= correction[i];
        for (size_t j = 0; j < n_keys; j++)
            for (size_t c = 0; c < cols; c++)
                o_i[c] = sfma(p[j * Br + i], v[j * cols + c], o_i[c]);
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

/* No pass over the scores: nothing of size seqlen_q * seqlen_k exists. */
static struct cost tiled_cost(const struct problem *p)
{
    return (struct cost){.passes = 0, .bytes = attention_io_bytes(p), .exps = score_count(p)};
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
    .idea = "96 queries share each key and value that is fetched",
    .group = IN_FAST,
    .device = ON_CPU, .types = TYPE(F32), .supports = BASIC_FEATURES | WITH_SHIFT,
    .max_score = INFINITY,
    .masked_rows = 1, .isolates_v = 1,
    .workspace = tiled_workspace, .cost = tiled_cost,
    .does = {{OP_ATTENTION, tiled_attention}},
};

const struct variant tiled_microkernel = {
    .name = "microkernel",
    .idea = "both products in blocks that stay in registers",
    .group = IN_FAST,
    .device = ON_CPU, .types = TYPE(F32), .supports = BASIC_FEATURES | WITH_SHIFT,
    .max_score = INFINITY,
    .masked_rows = 1, .isolates_v = 1,
    .workspace = tiled_workspace, .cost = tiled_cost,
    .does = {{OP_ATTENTION, microkernel_attention}},
};

const struct variant tiled_all_cores = {
    .name = "all_cores",
    .idea = "tiles on all cores; few queries, or long rows: parts merged in order",
    .group = IN_FAST,
    .device = ON_CPU, .all_cores = 1, .types = TYPE(F32), .supports = BASIC_FEATURES | WITH_SHIFT,
    .max_score = INFINITY,
    .masked_rows = 1, .isolates_v = 1,
    .workspace = workspace, .cost = cost,
    .does = {{OP_SOFTMAX, rows_softmax}, {OP_LOGSOFTMAX, rows_logsoftmax},
             {OP_ATTENTION, all_cores_attention}},
};
