/* tiled.c: attention in float by the fold of fold.h, at the speed of the multiply-add units.
 *
 * Three variants, each one idea more: tiles, the micro-kernels of microkernel.c, all cores.  A
 * fourth takes numbers of 16 bits.  A block of keys, of 16 or 8 bits, becomes floats when a tile reads it, so the
 * cache of keys, paged or not, is never copied as a whole.
 * The products are those of products.h.  The exponential is 2^((s - m) * log2(e)): the factor
 * could be multiplied into q instead, but then large scores would be rounded in units that
 * their exact values do not fit.  A few queries, a decode step, go through the keys row by
 * row (fold_rows.h). */
#include "products.h"
#include "serves.h"

#define Br 192            /* query rows of a tile share the keys that it reads: 4 panels ... */
#define Bc 64             /* ... of Bc keys each: 12 KiB of scores stay in the first-level cache */
#define KEY_STEP 1
#define COLS_STEP LANES
#define ENOUGH_TASKS 64
#define LOG2_M LOG2E
#define NATURAL_M 1
#define MOST_M INFINITY
#define SCORE_UNIT(p) 1   /* q is multiplied by the scale before the product */
#include "plan.h"
#include "problem/convert.h"
#include "transpose.h"

#define LEAST_WORK (1 << 20) /* flops; to wake a second thread takes longer than fewer do */
#define DECODE_FLOATS 4   /* so many query rows instead of DECODE_ROWS where keys are floats */
#define MOST_STEPS 128    /* terms of one sum of the product: more in turn err more */

/* Do blocks of keys go over the ends of pages? */
static int joins_pages(const struct problem *p) { return p->invariant && p->page_size; }

/* qt (head_dim, PANEL) of each panel, s (Bc, PANEL), v (Bc, cols), correction (PANEL), and of
 * 16 bits or pages that are joined k (Bc, head_dim). */
struct scratch { float *qt, *s, *v, *correction, *k; };

static size_t scratch_floats(const struct problem *p, const struct plan *plan)
{
    size_t k = k_dtype(p) == F32 && !joins_pages(p) ? 0 : Bc * p->head_dim;
    return Br * p->head_dim + (Bc + 1) * PANEL + Bc * plan->cols + k;
}

static struct scratch scratch_at(const struct problem *p, const struct plan *plan, float *qt)
{
    float *s = qt + Br * p->head_dim, *v = s + Bc * PANEL, *correction = v + Bc * plan->cols;
    return (struct scratch){.qt = qt, .s = s, .v = v, .correction = correction,
                            .k = correction + PANEL};
}

/* n rows (width) of numbers of the type, from_stride apart, as floats times scale, in rows of `whole`
 * floats, 0 beyond width. */
static const float *as_floats(enum dtype type, const void *from, size_t from_stride, size_t n,
                              size_t width, float *to, size_t whole, float scale)
{
    size_t size = dtype_size(type);
    for (size_t i = 0; i < n; i++, to += whole) {
        const char *row = (const char *)from + i * from_stride * size;
        fetch(row + AHEAD * from_stride * size, width * size);
        widen_row(type, row, width, to);
        for (size_t c = 0; scale != 1 && c < width; c++) to[c] *= scale;
        for (size_t c = width; c < whole; c++) to[c] = 0;
    }
    return to - n * whole;
}

/* The queries of each panel as columns, times scale, 16 at a time; beyond the last row the last again.
 *   w->qt (head_dim, PANEL) of each panel */
static void pack_queries(const struct tile *t, struct scratch *w)
{
    const struct problem *p = t->p;
    size_t width = p->head_dim;
    struct query next = query_of(t, 0);
    for (size_t r = 0; r < t->n_rows; r += 16) {
        const float *q[16];
        float *columns = w->qt + r / PANEL * PANEL * width + r % PANEL;
        for (size_t i = 0; i < 16; i++) {
            if (r + i < t->n_rows) q[i] = q_of(t, next), next = next_query(t, next);
            else q[i] = q[i - 1];
            if (p->dtype != F32 && r + i < t->n_rows)
                q[i] = as_floats(p->dtype, q[i], 0, 1, width, w->k + i * width, width, 1);
        }
        for (size_t d = 0; d < width; d += 16)
            transpose_rows(q, d, smaller(width - d, 16), p->scale, columns + d * PANEL, PANEL);
    }
}

/* Keys and values as floats: as they lie in memory where they are.  Where head_dim_v is not whole
 * vectors, values are copied to rows that are, 0 in between. */
static struct keys block_of_keys(const struct tile *t, size_t j, size_t most, struct scratch *w)
{
    const struct problem *p = t->p;
    struct keys keys = keys_from(t, j, most), block = keys;
    size_t d = p->head_dim, cols = t->plan->cols;
    int copies_k = k_dtype(p) != F32 || joins_pages(p);
    if (!copies_k && cols == p->head_dim_v) return keys;
    for (block.n = 0;; keys = keys_from(t, j + block.n, most - block.n)) {
        size_t at = block.n;
        if (copies_k)
            as_floats(k_dtype(p), keys.k, keys.k_stride, keys.n, d, w->k + at * d, d, keys.k_scale);
        as_floats(v_dtype(p), keys.v, keys.v_stride, keys.n, p->head_dim_v, w->v + at * cols, cols,
                  keys.v_scale);
        block.n += keys.n;
        if (!joins_pages(p) || block.n == most) break;
    }
    if (copies_k) block.k = w->k, block.k_stride = d;
    block.v = w->v, block.v_stride = cols;
    return block;
}

/* s (n, PANEL) = k . qt: scores transposed, for the queries of a panel. */
static void scores_product(const struct tile *t, const struct keys *keys, size_t n, size_t row,
                           size_t n_rows, struct scratch *w)
{
    float ones[Bc];
    size_t head_dim = t->p->head_dim;
    for (size_t j = 0; j < Bc; j++) ones[j] = 1;
    for (size_t d = 0; d < head_dim; d += MOST_STEPS)
        t->plan->product(&(struct product){
            .a = (const float *)keys->k + d, .a_row = keys->k_stride, .a_step = 1,
            .b = w->qt + row * head_dim + d * PANEL, .b_row = PANEL,
            .c = w->s, .c_row = PANEL, .factor = d ? ones : NULL, .rows = n,
            .steps = smaller(MOST_STEPS, head_dim - d), .cols = round_up(n_rows, LANES)});
}

/* s (n, PANEL), at a vector of queries, becomes e^(s - m); returns the sums. */
INLINE vfloat lane_weights(float *s, size_t n, float unit, vfloat m)
{
    vfloat sum = vset(0);
    size_t j = 0;
    (void)unit;
    for (; j + VEXP_AT_ONCE <= n; j += VEXP_AT_ONCE) {
        vfloat p[UNROLL_MOST];
        UNROLL(u, VEXP_AT_ONCE, p[u] = (vload(s + (j + u) * PANEL) - m) * LOG2E);
        vexp2_lockstep(VEXP_AT_ONCE, p);
        UNROLL(u, VEXP_AT_ONCE, vstore(s + (j + u) * PANEL, p[u]); sum += p[u]);
    }
    for (; j < n; j++) {
        vfloat p = vexp2(vmin(vset(128), (vload(s + j * PANEL) - m) * LOG2E));
        vstore(s + j * PANEL, p);
        sum += p;
    }
    return sum;
}

/* o (n_rows, cols) = correction o + s^T . v. */
static void values_product(const struct tile *t, const struct keys *keys, size_t n, size_t row,
                           size_t n_rows, struct state *x, struct scratch *w)
{
    size_t cols = t->plan->cols;
    t->plan->product(&(struct product){.a = w->s, .a_row = 1, .a_step = PANEL, .b = keys->v,
                                       .b_row = keys->v_stride, .c = x->o + row * cols,
                                       .c_row = cols, .factor = w->correction, .rows = n_rows,
                                       .steps = n, .cols = cols});
}

#include "fold.h"
#include "fold_rows.h"

static void fold_keys(const struct tile *t, size_t begin, size_t end, struct state *x,
                      struct scratch *w)
{
    size_t most = k_dtype(t->p) == F32 ? DECODE_FLOATS : DECODE_ROWS;
    int decode = !t->p->invariant && t->p->dropout == 0 && t->plan->group * t->s.seqlen_q <= most;
    memset(x->o, 0, t->n_rows * t->plan->cols * sizeof(float));
    (decode ? fold_rows : fold_tile)(t, begin, end, x, w);
}

static void fold_tiles(const struct problem *p, const struct arrays *a, const struct plan *plan,
                       const struct worker *me)
{
    tiles_of_thread(p, a, plan, me, fold_keys, a->workspace);
}

static void attention_tiles(const struct problem *p, const struct arrays *a,
                            product_function *product, int threads)
{
    struct plan plan = plan_of(p);
    plan.product = product;
    in_team(threads, fold_tiles, p, a, &plan);
}

/* The product without blocks: c is loaded and stored at each step. */
static void loop_product(const struct product *x)
{
    for (size_t r = 0; r < x->rows; r++) {
        float *c = x->c + r * x->c_row;
        for (size_t n = 0; n < x->cols; n++) c[n] = x->factor ? c[n] * x->factor[r] : 0;
        for (size_t t = 0; t < x->steps; t++) {
            float a = x->a[r * x->a_row + t * x->a_step];
            for (size_t n = 0; n < x->cols; n++) c[n] = sfma(a, x->b[t * x->b_row + n], c[n]);
        }
    }
}

static void tiled_attention(const struct problem *p, const struct arrays *a)
{
    attention_tiles(p, a, loop_product, 1);
}

static void microkernel_attention(const struct problem *p, const struct arrays *a)
{
    attention_tiles(p, a, block_product, 1);
}

void widened_attention(const struct problem *p, const struct arrays *a)
{
    double pairs = (double)p->batch * (double)p->heads_q * (double)p->seqlen_q * (double)p->seqlen_k;
    double flops = 2 * pairs * (double)(p->head_dim + p->head_dim_v);
    attention_tiles(p, a, block_product, flops < LEAST_WORK ? 1 : omp_get_max_threads());
}

/* No pass over the scores: nothing of size seqlen_q * seqlen_k exists.  A panel
 * computes the scores that one of its queries sees. */
static struct cost tiled_cost(const struct problem *p)
{
    double scores;
    keys_of_tiles(p, PANEL, &scores);
    return (struct cost){.passes = 0, .bytes = attention_io_bytes(p),
                         .exps = (double)p->batch * (double)p->heads_q * scores};
}
size_t widened_workspace(const struct problem *p) { return tiles_workspace(p); }

static size_t workspace(const struct problem *p)
{
    return p->op == OP_ATTENTION ? tiles_workspace(p) : rows_workspace(p);
}

static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? tiled_cost(p) : rows_cost(p);
}

const struct variant tiled_loops = {
    .name = "tiled", .idea = "tiles of 192 rows",
    SERVES(TYPE(F32), | WITH_DROPOUT), .workspace = tiles_workspace, .cost = tiled_cost,
    .does = {{OP_ATTENTION, tiled_attention}},
};

const struct variant tiled_microkernel = {
    .name = "microkernel", .idea = "sums in registers",
    SERVES(TYPE(F32), | WITH_DROPOUT), .workspace = tiles_workspace, .cost = tiled_cost,
    .does = {{OP_ATTENTION, microkernel_attention}},
};

const struct variant tiled_all_cores = {
    .name = "all_cores", .idea = "tiles on all cores",
    SERVES(TYPE(F32), | WITH_EIGHT_BITS | WITH_DROPOUT), .all_cores = 1,
    .workspace = workspace, .cost = cost,
    .does = {{OP_SOFTMAX, rows_softmax}, {OP_LOGSOFTMAX, rows_logsoftmax},
             {OP_ATTENTION, widened_attention}},
};

const struct variant tiled_widened = {
    .name = "widened", .idea = "keys are widened",
    SERVES(TYPE(F16) | TYPE(BF16), | WITH_EIGHT_BITS | WITH_DROPOUT), .all_cores = 1,
    .workspace = tiles_workspace, .cost = tiled_cost,
    .does = {{OP_ATTENTION, widened_attention}},
};
