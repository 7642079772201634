/* bf16.h: attention in bf16 by the fold of fold.h; amx.c and dot_bf16.c include it and give it
 * block_product(), tiles_begin() and tiles_end().  It is compiled with their instructions.
 *
 *     s^T [keys, 32] = k [keys, d] . q^T [d, 32]          o^T [dv, 32] += v^T [dv, keys] . p^T
 *
 * A 16-bit multiply-add takes two neighbouring products at once, so what is summed over lies
 * in pairs of bf16 in 32 bits.  k has its pairs in memory.  q is packed once for a tile, v^T
 * once for the whole call, and the weights become pairs as they are rounded.  Then both
 * products have one form, block_product(), and a variant is that function alone.
 *
 * Weights are 2^(s f - m), f = scale log2 e: m is kept in base 2, so one multiply-add makes the
 * exponent.  Sums are float32, weights are rounded to bf16 for the second product and summed
 * unrounded, as on a GPU. */
#include "problem/half.h"
#include "transpose.h"

typedef uint16_t element;
#define Br 128           /* queries of a tile: four panels share a block in cache */
#define PANEL 32         /* queries of a panel: two tiles of AMX, or two vectors */
#define Bc 256
#define KEY_STEP 32      /* what one step of a product sums over: 16 pairs */
#define COLS_STEP 16
#define ENOUGH_TASKS 32
#define LOG2_M 1
#define NATURAL_M 0x1.62e43p-1f
#define MOST_M 0x1p30f   /* scale log2 e s - m is rounded in units of m: up to 2^64 by then */
#include "plan.h"

/* c (rows, PANEL) = or += sum over the steps t of a_t (rows, 16 pairs) . b_t (16 pairs, PANEL)
 *   a       the element of row r, step t lies at a + t * a_step + r * a_row, 32-bit pairs
 *   b       (steps, 16, PANEL) pairs
 *   rows    a multiple of 16          add  1: c is added to */
static void block_product(size_t rows, size_t steps, const uint32_t *a, size_t a_row,
                          size_t a_step, const uint32_t *b, float *c, int add);

/* One thread's memory.  A panel's sums are (cols, PANEL): transposed, a query a lane. */
struct scratch {
    float *s;          /* (Bc, PANEL) scores; the pairs of p replace them */
    float *sums;       /* (4, cols, PANEL): o while keys are folded */
    float *correction; /* (PANEL) */
    uint32_t *q;       /* (4, d / 2, PANEL) pairs */
    uint16_t *k;       /* (Bc, d): a block whose rows are not whole steps */
    const uint16_t *vt;/* v^T of all groups, (keys / 32, cols, 32) each; of all threads */
};

/* head_dim and seqlen_k rounded up to whole steps. */
static size_t whole_dim(const struct problem *p) { return round_up(p->head_dim, KEY_STEP); }
static size_t whole_keys(const struct problem *p) { return round_up(p->seqlen_k, KEY_STEP); }

static size_t prepared_floats(const struct problem *p, const struct plan *plan)
{
    return round_up(p->batch * p->heads_kv * whole_keys(p) * plan->cols / 2, 16);
}

static size_t scratch_floats(const struct problem *p, const struct plan *plan)
{
    return (Bc + 1) * PANEL + Br * plan->cols + (Br + Bc) * whole_dim(p) / 2;
}

static struct scratch scratch_at(const struct problem *p, const struct plan *plan, float *s)
{
    struct scratch w = {.s = s, .sums = s + Bc * PANEL};
    w.correction = w.sums + Br * plan->cols;
    w.q = (uint32_t *)(void *)(w.correction + PANEL);
    w.k = (uint16_t *)(void *)(w.q + Br * whole_dim(p) / 2);
    return w;
}

static float score_unit(const struct problem *p)
{
    return p->scale;
}

/* v^T of 32 keys from `first` on: (cols, 32), 0 beyond head_dim_v and the last key. */
static void pack_values(const struct problem *p, const struct plan *plan, const uint16_t *v,
                        size_t first, uint16_t *vt)
{
    size_t dv = p->head_dim_v, n = p->seqlen_k - first, whole = n >= KEY_STEP ? dv / 16 * 16 : 0;
    for (size_t c = 0; c < whole; c += 16)
        transpose_pairs_of_rows(v + first * dv + c, dv, (uint32_t *)(void *)(vt + c * KEY_STEP));
    for (size_t c = whole; c < plan->cols; c++)
        for (size_t j = 0; j < KEY_STEP; j++)
            vt[c * KEY_STEP + j] = c < dv && j < n ? v[(first + j) * dv + c] : 0;
}

/* v^T of all groups, by all threads of a team. */
static void prepare(const struct problem *p, const struct arrays *a, const struct plan *plan)
{
    size_t steps = whole_keys(p) / KEY_STEP;
#pragma omp for schedule(static)
    for (size_t i = 0; i < p->batch * p->heads_kv * steps; i++)
        pack_values(p, plan, (const uint16_t *)a->v + i / steps * p->seqlen_k * p->head_dim_v,
                    i % steps * KEY_STEP, (uint16_t *)a->workspace + i * KEY_STEP * plan->cols);
}

/* The panels of q (4, d / 2, PANEL): rows as columns, in pairs along d; sums of 0. */
static void pack_queries(const struct problem *p, const struct arrays *a,
                         const struct plan *plan, const struct tile *t, struct scratch *w)
{
    size_t d = p->head_dim, rows = round_up(t->n_rows, PANEL);
    const uint16_t *q = q_row(p, a, plan, t, 0);
    memset(w->sums, 0, rows * plan->cols * sizeof(float));
    w->vt = (const uint16_t *)a->workspace +
            (t->s.batch * p->heads_kv + t->kv) * whole_keys(p) * plan->cols;
    for (size_t r = 0; r < rows; r += 16) {
        uint32_t *panel = w->q + r / PANEL * PANEL * whole_dim(p) / 2 + r % PANEL;
        size_t whole = r + 16 <= t->n_rows ? d / KEY_STEP * KEY_STEP : 0;
        for (size_t i = 0; i < whole; i += KEY_STEP)
            transpose_pairs(q + r * d + i, d, panel + i / 2 * PANEL, PANEL);
        for (size_t i = whole; i < whole_dim(p); i += 2)
            for (size_t u = 0; u < 16; u++) {
                const uint16_t *q_r = q + (r + u) * d;
                uint32_t low = r + u < t->n_rows && i < d ? q_r[i] : 0;
                uint32_t high = r + u < t->n_rows && i + 1 < d ? q_r[i + 1] : 0;
                panel[i / 2 * PANEL + u] = low | high << 16;
            }
    }
}

/* Keys as rows of whole steps, their number rounded up to 16: as they lie in memory where that
 * is so, else copied with zeros around them.  Their values are columns of v^T. */
static struct keys block_of_keys(const struct problem *p, const struct arrays *a,
                                 const struct plan *plan, const struct tile *t, size_t j,
                                 size_t most, struct scratch *w)
{
    struct keys keys = keys_from(p, a, t, j, most);
    size_t d = whole_dim(p), rows = round_up(keys.n, 16);
    keys.v = w->vt + j * plan->cols;
    if (d == p->head_dim && j + rows <= p->seqlen_k) return keys;
    memset(w->k, 0, rows * d * sizeof *w->k);
    for (size_t i = 0; i < keys.n; i++)
        memcpy(w->k + i * d, keys.k + i * keys.k_stride, p->head_dim * sizeof *w->k);
    keys.k = w->k;
    return keys;
}

static void scores_product(const struct problem *p, const struct plan *plan,
                           const struct keys *keys, size_t n, size_t row, size_t n_rows,
                           struct scratch *w)
{
    size_t d = whole_dim(p);
    (void)plan, (void)n_rows;
    block_product(round_up(n, 16), d / KEY_STEP, (const uint32_t *)(const void *)keys->k, d / 2,
                  KEY_STEP / 2, w->q + row * d / 2, w->s, 0);
}

/* q 2^n = 2^x for any x up to 128, above it infinite, to 3 u: degree 5 on [0, 1), n = floor(x). */
#define ROUGH_C1 0x1.62e4bap-1f
#define ROUGH_C2 0x1.ebdb56p-3f
#define ROUGH_C3 0x1.c91cf0p-5f
#define ROUGH_C4 0x1.277820p-7f
#define ROUGH_C5 0x1.e975c2p-10f

/* x[u] = 2^x[u] for n vectors, one step of all of them before the next (vexp2_lockstep).
 * AVX-512 has an instruction for x - floor(x), and one for q 2^floor(x). */
INLINE void rough_exp2(int n, vfloat *x)
{
    vfloat r[UNROLL_MOST], q[UNROLL_MOST];
#if defined __AVX512DQ__
    UNROLL(u, n, r[u] = _mm512_reduce_ps(x[u], _MM_FROUND_TO_NEG_INF));
#else
    UNROLL(u, n, x[u] = vmax(vset(-127), vmin(vset(128), x[u])); r[u] = x[u] - 0.5f + VEXP_ROUND);
    UNROLL(u, n, vfloat floor_x = r[u] - VEXP_ROUND; vfloat power = r[u];
           r[u] = x[u] - floor_x; x[u] = (vfloat)((vint)power << 23));
#endif
    UNROLL(u, n, q[u] = vfma(vset(ROUGH_C5), r[u], vset(ROUGH_C4)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(ROUGH_C3)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(ROUGH_C2)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(ROUGH_C1)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(1)));
#if defined __AVX512DQ__
    UNROLL(u, n, x[u] = _mm512_scalef_ps(q[u], x[u]));
#else
    UNROLL(u, n, x[u] *= q[u]);
#endif
}

/* Two floats rounded to bf16 in the halves of 32 bits, `low` in the lower.  Ties go up; the
 * instruction that sends them to the even one takes four times as long. */
INLINE vfloat pair_of(vfloat low, vfloat high)
{
    vuint l = ((vuint)low + 0x8000) >> 16, h = (vuint)high + 0x8000;
#if defined __AVX512BW__
    return (vfloat)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)l, (__m512i)h);
#else
    return (vfloat)(l | (h & 0xffff0000));
#endif
}

/* s (n, PANEL), at a vector of queries, becomes pairs of 2^(s unit - m), in place: pair row r
 * replaces a row that was read.  Returns the sums. */
INLINE vfloat lane_weights(float *s, size_t n, float unit, vfloat m)
{
    vfloat sum[UNROLL_MOST];
    UNROLL(u, 2, sum[u] = vset(0));
    for (size_t j = 0; j < n; j += 8) {
        vfloat p[UNROLL_MOST];
        UNROLL(u, 8, p[u] = vfma(vload(s + (j + u) * PANEL), vset(unit), vset(0) - m));
        rough_exp2(8, p);
        UNROLL(u, 4, sum[u % 2] += p[2 * u] + p[2 * u + 1];
               vstore(s + (j / 2 + u) * PANEL, pair_of(p[2 * u], p[2 * u + 1])));
    }
    return sum[0] + sum[1];
}

static void values_product(const struct plan *plan, const struct keys *keys, size_t n, size_t row,
                           size_t n_rows, struct state *x, struct scratch *w)
{
    float *sums = w->sums + row * plan->cols;
    (void)n_rows, (void)x;
    for (size_t i = 0; i < PANEL; i += LANES) {
        vfloat factor = vload(w->correction + i);
        if (!vany(vless(factor, vset(1)))) continue;
        for (size_t c = 0; c < plan->cols; c++)
            vstore(sums + c * PANEL + i, vload(sums + c * PANEL + i) * factor);
    }
    block_product(plan->cols, n / KEY_STEP, (const uint32_t *)(const void *)keys->v,
                  KEY_STEP / 2, plan->cols * KEY_STEP / 2, (const uint32_t *)(const void *)w->s,
                  sums, 1);
}

/* The sums as rows. */
static void fold_end(const struct plan *plan, const struct tile *t, struct state *x,
                     struct scratch *w)
{
    for (size_t r = 0; r < t->n_rows; r += 16)
        for (size_t c = 0; c < plan->cols; c += 16)
            transpose_floats(w->sums + r / PANEL * PANEL * plan->cols + c * PANEL + r % PANEL,
                             PANEL, x->o + r * plan->cols + c, plan->cols);
}

static float score_alone(const struct problem *p, const uint16_t *q, const uint16_t *k)
{
    float s = 0;
    for (size_t d = 0; d < p->head_dim; d++)
        s = sfma(bfloat_to_float(q[d]), bfloat_to_float(k[d]), s);
    return s * p->scale;
}

static void add_value(float factor, float *o, float p_j, const uint16_t *v, size_t n)
{
    for (size_t c = 0; c < n; c++) o[c] = sfma(p_j, bfloat_to_float(v[c]), o[c] * factor);
}

/* o (n) = sum / l, rounded to bf16 */
static void write_row(struct se x, const float *sum, float factor, size_t n, uint16_t *o)
{
    float scale = se_divide(x, factor);
    for (size_t c = 0; c < n; c += 16)
        narrow_row(sum + c, scale, smaller(n - c, 16), o + c);
}

#include "fold.h"

static void tiles_begin(void);
static void tiles_end(void);

static void bf16_attention(const struct problem *p, const struct arrays *a)
{
    struct plan plan = plan_of(p);
#pragma omp parallel
    {
        prepare(p, a, &plan);
        tiles_begin();
        tiles_of_thread(p, a, &plan, fold_tile,
                        (float *)a->workspace + prepared_floats(p, &plan));
        tiles_end();
    }
}
