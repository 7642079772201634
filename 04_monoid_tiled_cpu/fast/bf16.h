/* bf16.h: attention in bf16 by the fold of fold.h; amx.c and dot_bf16.c include it and give it
 * block_product(), tiles_begin() and tiles_end(), and LEAST_WORK: to wake a second thread takes longer
 * than fewer flops do.  It is compiled with their instructions.
 *
 *     s^T [keys, 32] = k [keys, d] . q^T [d, 32]          o^T [dv, 32] += v^T [dv, keys] . p^T
 *
 * A 16-bit multiply-add takes two neighbouring products at once, so what is summed over lies
 * in pairs of bf16 in 32 bits.  k has its pairs in memory.  q is packed once for a tile, v^T
 * once for the whole call, wherever strides, packed sequences and pages have the rows, and the
 * weights become pairs as they are rounded.  Then both
 * products have one form, block_product(), and a variant is that function alone.
 *
 * Weights are 2^(s f - m), f = scale log2 e: m is kept in base 2, so one multiply-add makes the
 * exponent.  Sums are float32, weights are rounded to bf16 for the second product and summed
 * unrounded, as on a GPU. */
#include "serves.h"
#include "transpose.h"

#define Br 128           /* queries of a tile: four panels share a block in cache */
#define PANEL 32         /* queries of a panel: two tiles of AMX, or two vectors */
#define Bc 256
#define KEY_STEP 32      /* what one step of a product sums over: 16 pairs */
#define COLS_STEP 16
#define ENOUGH_TASKS 32
#define LOG2_M 1
#define NATURAL_M 0x1.62e43p-1f
#define MOST_M 0x1p30f   /* scale log2 e s - m is rounded in units of m: up to 2^64 by then */
#define SCORE_UNIT(p) (p)->scale
#include "plan.h"
#include "workers.h"

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
    uint16_t *k;       /* (Bc, d): a block that memory has not in whole steps; rows of q */
    const uint16_t *vt;/* v^T of the tile's keys, (steps, cols, 32); of all threads */
    int has_sums[Br / PANEL]; /* of each panel: until then its sums are 0, and nobody reads or clears them */
};

static size_t whole_dim(const struct problem *p) { return round_up(p->head_dim, KEY_STEP); }

/* Steps of 32 keys: of the longest sequence, of all, and those before a sequence.  In packed arrays
 * each sequence begins a step of its own. */
static size_t longest_steps(const struct problem *p)
{
    return round_up(p->seqlen_k, KEY_STEP) / KEY_STEP;
}

static size_t all_steps(const struct problem *p)
{
    return p->packed ? p->total_k / KEY_STEP + p->batch : p->batch * longest_steps(p);
}

static size_t steps_before(const struct problem *p, const struct sequence *s)
{
    return p->packed ? s->k_first / KEY_STEP + s->batch : s->batch * longest_steps(p);
}

static size_t prepared_floats(const struct problem *p, const struct plan *plan)
{
    return round_up(p->heads_kv * all_steps(p) * KEY_STEP * plan->cols / 2, 16);
}

/* v^T of the first keys of a sequence and a head. */
static uint16_t *values_of(const struct problem *p, const struct arrays *a,
                           const struct plan *plan, const struct sequence *s, size_t kv)
{
    size_t step = kv * all_steps(p) + steps_before(p, s);
    return (uint16_t *)a->workspace + step * KEY_STEP * plan->cols;
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

/* v^T of the keys first .. first + 31: (cols, 32), 0 beyond head_dim_v and where a key is not one
 * of `seen`. */
static void pack_values(const struct problem *p, const struct arrays *a, const struct plan *plan,
                        const struct sequence *s, size_t kv, struct key_range seen, size_t first)
{
    uint16_t *vt = values_of(p, a, plan, s, kv) + first * plan->cols;
    size_t dv = p->head_dim_v, begin = larger(first, seen.first) - first;
    size_t end = smaller(first + KEY_STEP, seen.end) - first;
    const uint16_t *v[KEY_STEP];
    for (size_t j = begin; j < end; j++)
        v[j] = (const uint16_t *)a->v + key_at(p, a, s, strides_of_v(p), kv, first + j);
    for (size_t c = 0; c < plan->cols; c += 16) {
        uint16_t rows[KEY_STEP][16] = {{0}};
        for (size_t j = begin; j < end; j++) {
            if (c + 16 <= dv) memcpy(rows[j], v[j] + c, sizeof rows[j]);
            else memcpy(rows[j], v[j] + c, (dv - c) * sizeof(uint16_t));
        }
        transpose_pairs_of_rows(rows[0], 16, (uint32_t *)(void *)(vt + c * KEY_STEP));
    }
}

/* Is v^T of a key head used by one tile alone?  Then the tile packs it, from and into a near cache, and no
 * thread waits for the others. */
static int packs_alone(const struct plan *plan, size_t seqlen_q) { return tiles_of(plan->group, seqlen_q) == 1; }

/* v^T of all other groups, by all threads of a team. */
static void prepare(const struct problem *p, const struct arrays *a, const struct plan *plan,
                    const struct worker *me)
{
    if (packs_alone(plan, p->seqlen_q)) return;
    size_t steps = longest_steps(p), n = p->batch * p->heads_kv * steps;
    for (size_t i = n * me->number / me->threads; i < n * (me->number + 1) / me->threads; i++) {
        struct sequence s = sequence_of(p, a, i / steps / p->heads_kv);
        size_t kv = i / steps % p->heads_kv, first = i % steps * KEY_STEP;
        struct key_range seen = {0, 0};
        if (s.seqlen_q && !packs_alone(plan, s.seqlen_q))
            seen = some_row_sees(mask_of_lengths(p, s.seqlen_q, s.seqlen_k), 0, s.seqlen_q);
        if (first >= seen.end || first + KEY_STEP <= seen.first) continue;
        pack_values(p, a, plan, &s, kv, seen, first);
    }
    wait_for_team(me);
}

/* The panels of q (4, d / 2, PANEL): rows as columns, in pairs along d. */
static void pack_queries(const struct tile *t, struct scratch *w)
{
    size_t d = t->p->head_dim, whole_d = whole_dim(t->p), rows = round_up(t->n_rows, PANEL);
    memset(w->has_sums, 0, sizeof w->has_sums);
    w->vt = values_of(t->p, t->a, t->plan, &t->s, t->kv);
    memset(w->k, 0, rows * whole_d * sizeof *w->k);
    struct query q = query_of(t, 0);
    for (size_t r = 0; r < t->n_rows; r++, q = next_query(t, q))
        memcpy(w->k + r * whole_d, q_of(t, q), d * sizeof *w->k);
    for (size_t r = 0; r < rows; r += 16) {
        uint32_t *panel = w->q + r / PANEL * PANEL * whole_d / 2 + r % PANEL;
        for (size_t i = 0; i < whole_d; i += KEY_STEP)
            transpose_pairs(w->k + r * whole_d + i, whole_d, panel + i / 2 * PANEL, PANEL);
    }
}

/* Keys as rows of whole steps, their number rounded up to 16: as they lie in memory where that
 * is so, else copied with zeros around them.  Their values are columns of v^T. */
static struct keys block_of_keys(const struct tile *t, size_t j, size_t most, struct scratch *w)
{
    const struct problem *p = t->p;
    const uint16_t *k = t->a->k;
    struct keys keys = {.v = w->vt + j * t->plan->cols, .j = j, .n = most};
    struct strides by = strides_of_k(p);
    size_t d = whole_dim(p), rows = round_up(most, 16);
    if (!p->page_size && d == p->head_dim && by.row % 2 == 0 && j + rows <= t->s.seqlen_k) {
        keys.k = k + key_at(p, t->a, &t->s, by, t->kv, j);
        keys.k_stride = by.row;
        return keys;
    }
    memset(w->k, 0, rows * d * sizeof *w->k);
    for (size_t i = larger(j, t->some_see.first); i < j + most; i++)
        memcpy(w->k + (i - j) * d, k + key_at(p, t->a, &t->s, by, t->kv, i),
               p->head_dim * sizeof *w->k);
    keys.k = w->k, keys.k_stride = d;
    return keys;
}

static void scores_product(const struct tile *t, const struct keys *keys, size_t n, size_t row,
                           size_t n_rows, struct scratch *w)
{
    size_t d = whole_dim(t->p);
    (void)n_rows;
    block_product(round_up(n, 16), d / KEY_STEP, (const uint32_t *)(const void *)keys->k,
                  keys->k_stride / 2, KEY_STEP / 2, w->q + row * d / 2, w->s, 0);
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

static void values_product(const struct tile *t, const struct keys *keys, size_t n, size_t row,
                           size_t n_rows, struct state *x, struct scratch *w)
{
    size_t cols = t->plan->cols;
    float *sums = w->sums + row * cols;
    int add = w->has_sums[row / PANEL];
    (void)n_rows, (void)x;
    w->has_sums[row / PANEL] = 1;
    for (size_t i = 0; add && i < PANEL; i += LANES) {
        vfloat factor = vload(w->correction + i);
        if (!vany(vless(factor, vset(1)))) continue;
        for (size_t c = 0; c < cols; c++)
            vstore(sums + c * PANEL + i, vload(sums + c * PANEL + i) * factor);
    }
    block_product(cols, n / KEY_STEP, (const uint32_t *)(const void *)keys->v, KEY_STEP / 2,
                  cols * KEY_STEP / 2, (const uint32_t *)(const void *)w->s, sums, add);
}

#include "fold.h"

/* The sums become rows at the end. */
static void fold_bf16(const struct tile *t, size_t begin, size_t end, struct state *x,
                      struct scratch *w)
{
    size_t cols = t->plan->cols;
    if (packs_alone(t->plan, t->s.seqlen_q))
        for (size_t j = begin / KEY_STEP * KEY_STEP; j < end; j += KEY_STEP)
            pack_values(t->p, t->a, t->plan, &t->s, t->kv, t->some_see, j);
    fold_tile(t, begin, end, x, w);
    for (size_t r = 0; r < t->n_rows; r += 16) {
        const float *rows[16], *panel = w->sums + r / PANEL * PANEL * cols + r % PANEL;
        size_t seen = w->has_sums[r / PANEL] ? cols : 0;
        for (size_t i = 0; i < 16; i++) rows[i] = panel + i * PANEL;
        for (size_t c = 0; c < seen; c += 16)
            transpose_rows(rows, c * PANEL, 16, 1, x->o + r * cols + c, cols);
        if (!seen) memset(x->o + r * cols, 0, 16 * cols * sizeof(float));
    }
}

static void tiles_begin(void);
static void tiles_end(void);

/* A step of a decoder is folded row by row in float: v^T would be packed for one use of it. */
static int decodes(const struct problem *p)
{
    return !p->invariant && plan_of(p).group * p->seqlen_q <= DECODE_ROWS;
}

static size_t bf16_workspace(const struct problem *p)
{
    struct plan plan = plan_of(p);
    if (decodes(p)) return widened_workspace(p);
    return prepared_floats(p, &plan) * sizeof(float) + tiles_workspace(p);
}

static void tiles_of_bf16(const struct problem *p, const struct arrays *a, const struct plan *plan,
                          const struct worker *me)
{
    prepare(p, a, plan, me);
    tiles_begin();
    tiles_of_thread(p, a, plan, me, fold_bf16, (float *)a->workspace + prepared_floats(p, plan));
    tiles_end();
}

static void bf16_attention(const struct problem *p, const struct arrays *a)
{
    if (decodes(p)) {
        widened_attention(p, a);
        return;
    }
    struct plan plan = plan_of(p);
    double pairs = (double)p->batch * (double)p->heads_q * (double)p->seqlen_q * (double)p->seqlen_k;
    int few = 2 * pairs * (double)(p->head_dim + p->head_dim_v) < LEAST_WORK;
    in_team(few ? 1 : omp_get_max_threads(), tiles_of_bf16, p, a, &plan);
}
