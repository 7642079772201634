/* gradient_tiled.c: the backward pass of attention in tiles, at the speed of the multiply-add units.
 *
 *     S = scale q k^T    P = e^(S - lse)    dP = do v^T    dS = scale P (dP - D)
 *     dv += P^T do       dk += dS^T q       dq += dS k
 * A block of Bc keys meets the queries of its group, Br at a time.  A tile of S and of dP is made
 * by two products from k and v as columns, becomes P and dS in place, and is used by three products
 * (products.h).  dk and dv of the block stay in the nearest caches until all queries have passed.
 * dq adds up over blocks of keys: few heads have their keys cut into parts, each with a dq of its
 * own, and the parts are added in order.  Parts depend on the shape alone, so the number of
 * threads changes no bit.  Nor does it in the gradient of a bias: tasks that add to the same elements have
 * turns.
 *
 * P and dS of a hidden pair are set to 0 after the exponential, so that nothing leaks from it.
 * 0 times NaN or infinity would: rows of q, k and do that hold one are 0 where a product reads them
 * as b.  q and k still make their scores NaN; what such a row of do gives dv is added apart. */
#include <omp.h>

#include "cost.h"
#include "dropout.h"
#include "harness.h"
#include "problem/arrays.h"
#include "problem/layout.h"
#include "products.h"
#include "vector/vexp.h"

#define Br 48             /* queries of a tile */
#define Bc 128            /* keys of a tile: whole steps of the exponential */
#define ENOUGH_TASKS 16   /* with fewer heads the keys are cut into parts ... */
#define LEAST_PART 256    /* ... of at least so many */
#define LEAST_WORK (1 << 20) /* flops; to wake a second thread takes longer than fewer do */
#define LOG2E 0x1.715476p+0f
#define AT_ONCE 4         /* vectors whose exponentials go in lockstep */
#define STEP (AT_ONCE * LANES)

_Static_assert(Bc % STEP == 0, "a tile is whole steps of the exponential");

/* A group is the query heads of a sequence that share keys.  cols, cols_v: head_dim and head_dim_v
 * in whole vectors.  rows: of q, of all heads and sequences. */
struct plan { size_t group, tasks, parts, part_keys, cols, cols_v, rows; };

static struct plan plan_of(const struct problem *p)
{
    struct plan plan = {.group = p->heads_kv ? p->heads_q / p->heads_kv : 0, .parts = 1,
                        .tasks = p->batch * p->heads_kv, .cols = round_up(p->head_dim, LANES),
                        .cols_v = round_up(p->head_dim_v, LANES),
                        .rows = p->heads_q * (p->packed ? p->total_q : p->batch * p->seqlen_q)};
    if (plan.tasks && plan.tasks < ENOUGH_TASKS)
        plan.parts = smaller((ENOUGH_TASKS + plan.tasks - 1) / plan.tasks,
                             larger(1, (p->seqlen_k + LEAST_PART - 1) / LEAST_PART));
    plan.part_keys = round_up((p->seqlen_k + plan.parts - 1) / plan.parts, Bc);
    return plan;
}

/* One thread's memory: a block of keys and values as columns, its rows of k as b, its gradients;
 * a tile of S, then P, and of dP, then dS; rows of q and do as b. */
struct scratch {
    float *kt, *vt;    /* (head_dim, Bc) (head_dim_v, Bc) */
    float *k, *dk, *dv; /* (Bc, cols) twice, (Bc, cols_v) */
    float *s, *dp;     /* (Br, Bc) */
    float *q, *d_o;    /* (Br, cols) (Br, cols_v) */
};

static size_t scratch_floats(const struct plan *plan)
{
    return (3 * Bc + Br) * plan->cols + (2 * Bc + Br) * plan->cols_v + 2 * Br * Bc;
}

static struct scratch scratch_at(const struct plan *plan, float *kt)
{
    struct scratch w = {.kt = kt};
    w.k = w.kt + Bc * plan->cols;
    w.dk = w.k + Bc * plan->cols;
    w.q = w.dk + Bc * plan->cols;
    w.vt = w.q + Br * plan->cols;
    w.dv = w.vt + Bc * plan->cols_v;
    w.d_o = w.dv + Bc * plan->cols_v;
    w.s = w.d_o + Br * plan->cols_v;
    w.dp = w.s + Br * Bc;
    return w;
}

/* The workspace: D (rows), dq of each part (rows, cols), scratch of each thread. */
static size_t workspace(const struct problem *p)
{
    struct plan plan = plan_of(p);
    return (plan.rows * (1 + plan.parts * plan.cols) +
            (size_t)omp_get_max_threads() * scratch_floats(&plan) + 64) * sizeof(float);
}

/* Some rows of an array, `row` floats apart. */
struct rows { const float *at; size_t row; };

static int is_finite(const float *x, size_t n)
{
    float sum = 0;
    for (size_t t = 0; t < n; t++) sum += x[t] * 0;
    return sum == 0;
}

/* The n rows x (width) as the b of a product: where they lie, or a copy in whole vectors with 0 for
 * each row that is not finite. */
static struct rows as_b(struct rows x, size_t n, size_t width, size_t cols, float *copy)
{
    int fit = width == cols;
    for (size_t r = 0; r < n && fit; r++) fit = is_finite(x.at + r * x.row, width);
    if (fit) return x;
    memset(copy, 0, n * cols * sizeof *copy);
    for (size_t r = 0; r < n; r++)
        if (is_finite(x.at + r * x.row, width))
            memcpy(copy + r * cols, x.at + r * x.row, width * sizeof *copy);
    return (struct rows){copy, cols};
}

/* to (width, Bc) = the n rows x (width) as columns; 0 beyond. */
static void as_columns(struct rows x, size_t n, size_t width, float *to)
{
    for (size_t t = 0; t < width; t++) {
        for (size_t j = 0; j < n; j++) to[t * Bc + j] = x.at[j * x.row + t];
        for (size_t j = n; j < Bc; j++) to[t * Bc + j] = 0;
    }
}

/* A tile: queries i .. i + n_rows - 1 of head h and keys j .. j + n_keys - 1, with the queries'
 * rows, and k as b.  dq (n_rows, cols) is that of this part. */
struct tile {
    struct sequence s;
    struct mask mask;
    size_t h, i, n_rows, j, n_keys;
    struct rows q, d_o, k;
    const float *lse, *D;
    float *dq;
};

/* s and dp (n) of a row become P and dS, n whole steps.
 *   hide (n)  bias, and -INFINITY for a hidden key; NULL where there is none of both
 *   counts (n)  what dropout makes of a weight, in dv and dP; NULL: no dropout
 *   db (n)  becomes dS without the factors of the score; NULL: not wanted
 * A row that sees no key has lse = -INFINITY; all its scores are -INFINITY. */
INLINE void weigh(float *s, float *dp, size_t n, float scale, float c, const float *hide,
                  const float *counts, float *db, float lse, float D)
{
    if (lse == -INFINITY) lse = 0;
    for (size_t j = 0; j < n; j += STEP) {
        vfloat x[UNROLL_MOST], slope[UNROLL_MOST];
        vmask hidden[UNROLL_MOST];
        UNROLL(u, AT_ONCE, x[u] = vload(s + j + u * LANES) * scale);
        UNROLL(u, AT_ONCE, slope[u] = vset(scale));
        if (c > 0)
            UNROLL(u, AT_ONCE, vfloat t = vtanh(x[u] / c);
                   x[u] = t * c;
                   slope[u] = (1 - t * t) * scale);
        if (hide)
            UNROLL(u, AT_ONCE, vfloat b = vload(hide + j + u * LANES);
                   x[u] = vselect(vequal(b, vset(-INFINITY)), b, x[u] + b));
        UNROLL(u, AT_ONCE, hidden[u] = vequal(x[u], vset(-INFINITY));
               x[u] = (x[u] - lse) * LOG2E);
        vexp2_lockstep(AT_ONCE, x);
        UNROLL(u, AT_ONCE, float *s_u = s + j + u * LANES, *dp_u = dp + j + u * LANES;
               vfloat w = counts ? vload(counts + j + u * LANES) : vset(1);
               vstore(s_u, vclear(hidden[u], x[u] * w));
               vfloat ds = vclear(hidden[u], x[u] * (vload(dp_u) * w - D));
               if (db) vstore(db + j + u * LANES, ds);
               vstore(dp_u, ds * slope[u]));
    }
}

/* The same for a tile.  Only where a bias is or the mask's edge runs a row looks at `hide`. */
static void weigh_tile(const struct problem *p, const struct arrays *a, const struct tile *t,
                       struct scratch *w)
{
    struct key_range all = all_rows_see(t->mask, t->i, t->i + t->n_rows);
    size_t n = round_up(t->n_keys, STEP);
    const struct dropout d = dropout_of(p);
    int plain = !p->has_bias && p->softcap <= 0 && !d.below && all.first <= t->j &&
                t->j + t->n_keys <= all.end;
    for (size_t r = 0; r < t->n_rows; r++) {
        float *s = w->s + r * Bc, *dp = w->dp + r * Bc, hide[Bc], counts[Bc], db[Bc];
        if (plain) {
            weigh(s, dp, n, p->scale, 0, NULL, NULL, NULL, t->lse[r], t->D[r]);
            continue;
        }
        struct key_range sees = mask_keys(t->mask, t->i + r);
        size_t first = larger(sees.first, t->j), end = smaller(sees.end, t->j + t->n_keys);
        size_t at = p->has_bias ? bias_at(p, t->s.batch, t->h, t->i + r) : 0;
        const float *bias = p->has_bias ? a->bias + at : NULL;
        for (size_t j = 0; j < n; j++) hide[j] = -INFINITY;
        if (first < end && bias) memcpy(hide + first - t->j, bias + first, (end - first) * 4);
        if (first < end && !bias) memset(hide + first - t->j, 0, (end - first) * 4);
        if (d.below)
            kept_keys(&d, t->s.batch * p->heads_q + t->h, t->i + r, t->j, n, counts);
        weigh(s, dp, n, p->scale, p->softcap, hide, d.below ? counts : NULL, p->has_bias_gradient ? db : NULL,
              t->lse[r], t->D[r]);
        for (size_t j = first; p->has_bias_gradient && j < end; j++) a->dbias[at + j] += db[j - t->j];
    }
}

/* dv += P^T do for the rows of do that as_b() made 0. */
static void add_what_is_not_finite(const struct tile *t, size_t width, size_t cols,
                                   struct scratch *w)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        const float *do_r = t->d_o.at + r * t->d_o.row;
        if (is_finite(do_r, width)) continue;
        for (size_t j = 0; j < t->n_keys; j++) {
            float P = w->s[r * Bc + j];
            if (P != 0 || w->dp[r * Bc + j] != 0) vaxpy(w->dv + j * cols, P, do_r, width);
        }
    }
}

/* The five products of a tile. */
static void gradient_of_tile(const struct problem *p, const struct arrays *a,
                             const struct plan *plan, const struct tile *t, struct scratch *w)
{
    static const float add[Bc] = {[0 ... Bc - 1] = 1}; /* Br < Bc */
    size_t cols = round_up(t->n_keys, LANES);
    block_product(&(struct product){.a = t->q.at, .a_row = t->q.row, .a_step = 1, .b = w->kt,
                                    .b_row = Bc, .c = w->s, .c_row = Bc, .rows = t->n_rows,
                                    .steps = p->head_dim, .cols = cols});
    block_product(&(struct product){.a = t->d_o.at, .a_row = t->d_o.row, .a_step = 1, .b = w->vt,
                                    .b_row = Bc, .c = w->dp, .c_row = Bc, .rows = t->n_rows,
                                    .steps = p->head_dim_v, .cols = cols});
    weigh_tile(p, a, t, w);
    struct rows d_o = as_b(t->d_o, t->n_rows, p->head_dim_v, plan->cols_v, w->d_o);
    struct rows q = as_b(t->q, t->n_rows, p->head_dim, plan->cols, w->q);
    block_product(&(struct product){.a = w->s, .a_row = 1, .a_step = Bc, .b = d_o.at,
                                    .b_row = d_o.row, .c = w->dv, .c_row = plan->cols_v,
                                    .factor = add, .rows = t->n_keys, .steps = t->n_rows,
                                    .cols = plan->cols_v});
    block_product(&(struct product){.a = w->dp, .a_row = 1, .a_step = Bc, .b = q.at,
                                    .b_row = q.row, .c = w->dk, .c_row = plan->cols,
                                    .factor = add, .rows = t->n_keys, .steps = t->n_rows,
                                    .cols = plan->cols});
    block_product(&(struct product){.a = w->dp, .a_row = Bc, .a_step = 1, .b = t->k.at,
                                    .b_row = t->k.row, .c = t->dq, .c_row = plan->cols,
                                    .factor = add, .rows = t->n_rows, .steps = t->n_keys,
                                    .cols = plan->cols});
    if (d_o.at == w->d_o) add_what_is_not_finite(t, p->head_dim_v, plan->cols_v, w);
}

/* dk and dv of keys j .. j + n - 1 of a head, and what they add to dq (rows, cols). */
static void gradient_of_keys(const struct problem *p, const struct arrays *a,
                             const struct plan *plan, struct sequence s, size_t kv, size_t j,
                             size_t n, const float *D, float *dq, struct scratch *w)
{
    struct tile t = {.s = s, .mask = mask_of_lengths(p, s.seqlen_q, s.seqlen_k), .j = j};
    struct strides of_q = strides_of_q(p), of_k = strides_of_k(p), of_v = strides_of_v(p);
    struct rows k = {(const float *)a->k + key_at(p, a, &s, of_k, kv, j), of_k.row};
    struct rows v = {(const float *)a->v + key_at(p, a, &s, of_v, kv, j), of_v.row};
    as_columns(k, n, p->head_dim, w->kt);
    as_columns(v, n, p->head_dim_v, w->vt);
    t.k = as_b(k, n, p->head_dim, plan->cols, w->k);
    memset(w->dk, 0, Bc * plan->cols * sizeof *w->dk);
    memset(w->dv, 0, Bc * plan->cols_v * sizeof *w->dv);
    /* the queries that see one of these keys: i + last >= j, i + first < j + n */
    size_t first = mask_clamp((ptrdiff_t)j - t.mask.last, (ptrdiff_t)s.seqlen_q);
    size_t end = mask_clamp((ptrdiff_t)(j + n) - t.mask.first, (ptrdiff_t)s.seqlen_q);
    for (t.h = kv * plan->group; t.h < (kv + 1) * plan->group; t.h++)
        for (t.i = first; t.i < end; t.i += t.n_rows) {
            size_t row = lse_at(p, &s, t.h, t.i);
            t.n_rows = smaller(Br, end - t.i);
            t.n_keys = smaller(n, mask_keys(t.mask, t.i + t.n_rows - 1).end - j);
            t.q = (struct rows){(const float *)a->q + query_at(p, &s, of_q, t.h, t.i), of_q.row};
            t.d_o = (struct rows){(const float *)a->d_o + row * p->head_dim_v, p->head_dim_v};
            t.lse = a->lse + row;
            t.D = D + row;
            t.dq = dq + row * plan->cols;
            gradient_of_tile(p, a, plan, &t, w);
        }
    size_t at = p->packed ? kv * p->total_k + s.k_first
                          : (s.batch * p->heads_kv + kv) * p->seqlen_k;
    for (size_t r = 0; r < n; r++) {
        memcpy((float *)a->dk + (at + j + r) * p->head_dim, w->dk + r * plan->cols,
               p->head_dim * sizeof(float));
        memcpy((float *)a->dv + (at + j + r) * p->head_dim_v, w->dv + r * plan->cols_v,
               p->head_dim_v * sizeof(float));
    }
}

/* D_i = do_i . o_i of all queries of head h, and the gradient of its sink, -sum_i P_i D_i. */
static void rows_of_head(const struct problem *p, const struct arrays *a, size_t h, float *D)
{
    int has_sink = p->has_sinks && a->sinks[h] > -INFINITY;
    float sum = 0;
    for (size_t b = 0; b < p->batch; b++) {
        struct sequence s = sequence_of(p, a, b);
        for (size_t i = 0; i < s.seqlen_q; i++) {
            size_t row = lse_at(p, &s, h, i);
            D[row] = vdot((const float *)a->d_o + row * p->head_dim_v,
                          (const float *)a->o + query_at(p, &s, strides_of_o(p), h, i),
                          p->head_dim_v);
            if (has_sink) sum -= expf(a->sinks[h] - a->lse[row]) * D[row];
        }
    }
    if (p->has_sinks) a->dsinks[h] = sum;
}

static void gradient_of_part(const struct problem *p, const struct arrays *a,
                             const struct plan *plan, size_t task, size_t part, const float *D,
                             float *dq, struct scratch *w)
{
    struct sequence s = sequence_of(p, a, task / p->heads_kv);
    size_t kv = task % p->heads_kv, end = smaller((part + 1) * plan->part_keys, s.seqlen_k);
    dq += part * plan->rows * plan->cols;
    for (size_t h = kv * plan->group; h < (kv + 1) * plan->group && s.seqlen_q; h++)
        memset(dq + lse_at(p, &s, h, 0) * plan->cols, 0,
               s.seqlen_q * plan->cols * sizeof *dq);
    for (size_t j = part * plan->part_keys; j < end; j += Bc)
        gradient_of_keys(p, a, plan, s, kv, j, smaller(Bc, end - j), D, dq, w);
}

/* The sum of the parts of dq, in order. */
static void add_parts(const struct problem *p, const struct plan *plan, const float *dq, size_t row,
                      float *to)
{
    for (size_t c = 0; c < p->head_dim; c++) {
        float sum = 0;
        for (size_t part = 0; part < plan->parts; part++)
            sum += dq[(part * plan->rows + row) * plan->cols + c];
        to[c] = sum;
    }
}

/* Tasks that add to the same elements of dbias: those of one key head of one sequence do not, of others
 * where the bias has no stride. */
struct turns { size_t batch, heads; };

static struct turns turns_of(const struct problem *p)
{
    int strided = p->has_bias_strides;
    if (!p->has_bias_gradient) return (struct turns){1, 1};
    return (struct turns){strided && p->bias_strides.batch ? 1 : p->batch,
                          strided && p->bias_strides.head ? 1 : p->heads_kv};
}

static void gradient(const struct problem *p, const struct arrays *a)
{
    const struct turns turns = turns_of(p);
    struct plan plan = plan_of(p);
    float *D = a->workspace, *dq = D + round_up(plan.rows, 16);
    float *scratch = dq + plan.parts * plan.rows * plan.cols;
    if (p->has_bias_gradient) memset(a->dbias, 0, array_bytes(p, ARRAY_DBIAS));
    double flops = 10 * (double)plan.rows * (double)p->seqlen_k * (double)p->head_dim;
#pragma omp parallel num_threads(flops < LEAST_WORK ? 1 : omp_get_max_threads())
    {
        struct scratch w = scratch_at(&plan, scratch + scratch_floats(&plan) *
                                             (size_t)omp_get_thread_num());
#pragma omp for
        for (size_t h = 0; h < p->heads_q; h++) rows_of_head(p, a, h, D);
        for (size_t turn = 0; turn < turns.batch * turns.heads; turn++)
#pragma omp for schedule(dynamic, 1)
            for (size_t task = 0; task < plan.tasks * plan.parts; task++) { /* part 0, seen most, first */
                size_t of = task % plan.tasks, b = of / p->heads_kv, kv = of % p->heads_kv;
                if (b % turns.batch * turns.heads + kv % turns.heads == turn)
                    gradient_of_part(p, a, &plan, of, task / plan.tasks, D, dq, &w);
            }
#pragma omp for
        for (size_t row = 0; row < plan.rows; row++)
            add_parts(p, &plan, dq, row, (float *)a->dq + row * p->head_dim);
    }
}

/* Threads add to dbias without atomics: rows of different keys, heads or sequences may not meet. */
static const char *refuses(const struct problem *p)
{
    const struct strides *s = &p->bias_strides;
    size_t row = p->seqlen_k + (p->seqlen_q ? p->seqlen_q - 1 : 0) * s->row;
    if (!p->has_bias_gradient || !p->has_bias_strides) return NULL;
    if ((s->row && s->row < p->seqlen_k) || (s->head && s->head < row) ||
        (s->batch && s->batch < row + (p->heads_q - 1) * s->head))
        return "the gradient of a bias whose rows, heads and sequences do not lie one after another";
    return NULL;
}

/* Each array moves once, and dq of each part. */
static struct cost cost(const struct problem *p)
{
    struct plan plan = plan_of(p);
    double q = (double)plan.rows, k = (double)p->heads_kv * all_keys(p), scores;
    double d = (double)p->head_dim, dv = (double)p->head_dim_v;
    keys_of_tiles(p, Br, &scores);
    return (struct cost){.bytes = 4 * (2 * (d + dv) * (q + k) + 2 * (double)plan.parts * d * q),
                         .exps = (double)p->batch * (double)p->heads_q * scores};
}

const struct variant gradient_all_cores = {
    .name = "gradient_all_cores", .idea = "tiles of P and dS on all cores",
    .group = IN_BACKWARD,
    .device = ON_CPU, .all_cores = 1, .types = TYPE(F32),
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |
                WITH_PACKED | WITH_STRIDES | WITH_BIAS_STRIDES | WITH_DROPOUT |
                WITH_BIAS_GRADIENT,
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1, .refuses = refuses,
    .workspace = workspace, .cost = cost,
    .does = {{OP_BACKWARD, gradient}},
};
