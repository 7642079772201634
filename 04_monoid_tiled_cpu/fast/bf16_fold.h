/* bf16_fold.h: the fold of bf16.h, included by dot_bf16.c and amx.c, which give it
 * block_product(), tiles_begin() and tiles_end().  It is compiled with their instructions. */
#include <float.h>
#include <omp.h>

#include "bf16.h"
#include "bf16_transpose.h"
#include "problem/half.h"
#include "vector/vexp.h"

#define LOG2E 0x1.715476p+0f
#define LN2 0x1.62e42fefa39efp-1
#define MOST_GROWTH 8 /* a score may exceed the reference point by a factor of 2^8 */

/* One thread's memory.  A strip's o is (cols, STRIP): transposed, a query a lane. */
struct work {
    float *c, *l;      /* (BF16_ROWS): reference point and denominator */
    float *o;          /* (4, cols, STRIP) */
    uint32_t *q;       /* (4, d / 2, STRIP) pairs */
    float *s;          /* (BF16_KEYS, STRIP) scores; the pairs of p replace them */
    uint16_t *k;       /* (BF16_KEYS, d): a block whose rows are not whole steps */
};

/* 128 queries of one group and what they see. */
struct task {
    const uint16_t *q, *k, *v;
    const uint32_t *vt;       /* v^T of the group */
    size_t group, first, n_rows;
    struct key_range seen[BF16_ROWS];
};

static struct work work_at(const struct bf16_plan *plan, char *memory)
{
    struct work w = {.c = (float *)(void *)memory};
    w.l = w.c + BF16_ROWS;
    w.o = w.l + BF16_ROWS;
    w.q = (uint32_t *)(void *)(w.o + BF16_ROWS * plan->cols);
    w.s = (float *)(void *)(w.q + BF16_ROWS * plan->d / 2);
    w.k = (uint16_t *)(void *)(w.s + BF16_KEYS * STRIP);
    return w;
}

static void task_at(const struct problem *p, const struct arrays *a,
                    const struct bf16_plan *plan, const uint32_t *vt, size_t index,
                    struct task *t)
{
    t->group = index / plan->tasks;
    t->first = index % plan->tasks * BF16_ROWS;
    t->n_rows = plan->rows - t->first < BF16_ROWS ? plan->rows - t->first : BF16_ROWS;
    t->q = (const uint16_t *)a->q + (t->group * plan->rows + t->first) * p->head_dim;
    t->k = (const uint16_t *)a->k + t->group * p->seqlen_k * p->head_dim;
    t->v = (const uint16_t *)a->v + t->group * p->seqlen_k * p->head_dim_v;
    t->vt = vt + t->group * plan->keys * plan->cols / 2;
    for (size_t r = 0; r < BF16_ROWS; r++)
        t->seen[r] = r < t->n_rows ? visible_keys(p, (t->first + r) % p->seqlen_q)
                                   : (struct key_range){0, 0};
}

/* The keys that some row of a strip sees, and those that all of them see. */
static void strip_ranges(const struct task *t, size_t strip, struct key_range *some,
                         struct key_range *all)
{
    *some = (struct key_range){SIZE_MAX, 0};
    *all = (struct key_range){0, SIZE_MAX};
    for (size_t r = strip * STRIP; r < (strip + 1) * STRIP && r < t->n_rows; r++) {
        struct key_range seen = t->seen[r];
        if (seen.first > all->first) all->first = seen.first;
        if (seen.end < all->end) all->end = seen.end;
        if (seen.first == seen.end) continue;
        if (seen.first < some->first) some->first = seen.first;
        if (seen.end > some->end) some->end = seen.end;
    }
}

/* v^T of 32 keys from `first` on: (cols, 32), 0 beyond head_dim_v and the last key. */
static void pack_values(const struct problem *p, const struct bf16_plan *plan,
                        const uint16_t *v, size_t first, uint16_t *vt)
{
    size_t dv = p->head_dim_v, n = p->seqlen_k - first, whole = n >= BF16_STEP ? dv / 16 * 16 : 0;
    if (n > BF16_STEP) n = BF16_STEP;
    for (size_t c = 0; c < whole; c += 16)
        transpose_pairs_of_rows(v + first * dv + c, dv, (uint32_t *)(void *)(vt + c * BF16_STEP));
    for (size_t c = whole; c < plan->cols; c++)
        for (size_t j = 0; j < BF16_STEP; j++)
            vt[c * BF16_STEP + j] = c < dv && j < n ? v[(first + j) * dv + c] : 0;
}

/* The strips of q (4, d / 2, STRIP): rows as columns, in pairs along d. */
static void pack_queries(const struct problem *p, const struct bf16_plan *plan,
                         const struct task *t, uint32_t *qt)
{
    size_t d = p->head_dim;
    for (size_t r = 0; r < BF16_ROWS; r += 16) {
        uint32_t *strip = qt + r / STRIP * STRIP * plan->d / 2 + r % STRIP;
        size_t whole = r + 16 <= t->n_rows ? d / BF16_STEP * BF16_STEP : 0;
        for (size_t i = 0; i < whole; i += BF16_STEP)
            transpose_pairs(t->q + r * d + i, d, strip + i / 2 * STRIP, STRIP);
        for (size_t i = whole; i < plan->d; i += 2)
            for (size_t u = 0; u < 16; u++) {
                const uint16_t *q_r = t->q + (r + u) * d;
                uint32_t low = r + u < t->n_rows && i < d ? q_r[i] : 0;
                uint32_t high = r + u < t->n_rows && i + 1 < d ? q_r[i + 1] : 0;
                strip[i / 2 * STRIP + u] = low | high << 16;
            }
    }
}

/* Keys first .. first + n - 1 as rows of whole steps, n rounded up to 16: as they lie in
 * memory where that is so, else copied to k with zeros around them. */
static const uint32_t *block_of_keys(const struct problem *p, const struct bf16_plan *plan,
                                     const struct task *t, size_t first, size_t n, uint16_t *k)
{
    size_t d = p->head_dim, rows = bf16_round_up(n, 16);
    const uint16_t *from = t->k + first * d;
    if (d == plan->d && first + rows <= p->seqlen_k) return (const uint32_t *)(const void *)from;
    memset(k, 0, rows * plan->d * sizeof *k);
    for (size_t j = 0; j < n; j++) memcpy(k + j * plan->d, from + j * d, d * sizeof *k);
    return (const uint32_t *)(const void *)k;
}

/* Scores as natural logarithms, -INFINITY where row r of the strip does not see the key:
 *     s = scale s + bias
 *   s (n, STRIP) of the keys from j0 on */
static void scale_and_mask(const struct problem *p, const struct arrays *a,
                           const struct task *t, size_t strip, size_t j0, size_t n, float *s)
{
    float first[STRIP], end[STRIP];
    for (size_t r = 0; r < STRIP; r++) {
        struct key_range seen = t->seen[strip * STRIP + r];
        first[r] = seen.first < j0 ? 0 : (float)(seen.first - j0 < n ? seen.first - j0 : n);
        end[r] = seen.end < j0 ? 0 : (float)(seen.end - j0 < n ? seen.end - j0 : n);
    }
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < STRIP; i += LANES) {
            vfloat hidden = vset(-INFINITY), at = vset((float)j);
            vfloat x = vload(s + j * STRIP + i) * p->scale;
            x = vselect(vless(at, vload(first + i)), hidden, x);
            vstore(s + j * STRIP + i, vselect(vless(at, vload(end + i)), x, hidden));
        }
    for (size_t r = 0; p->has_bias && r < STRIP && strip * STRIP + r < t->n_rows; r++) {
        size_t i = (t->first + strip * STRIP + r) % p->seqlen_q;
        const float *bias = a->bias + i * p->seqlen_k + j0;
        for (size_t j = (size_t)first[r]; j < (size_t)end[r]; j++) {
            float with_bias = s[j * STRIP + r] + bias[j];
            s[j * STRIP + r] = bias[j] == -INFINITY ? -INFINITY : with_bias;
        }
    }
}

/* q 2^n = 2^x for any x <= 127 and -INFINITY, to 3 u: degree 5 on [0, 1), n = floor(x). */
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
    UNROLL(u, n, x[u] = vmax(vset(-127), x[u]); r[u] = x[u] - 0.5f + VEXP_ROUND);
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

/* o and l of LANES queries times factor. */
static void rescale(const struct bf16_plan *plan, vfloat factor, float *o, float *l)
{
    vstore(l, vload(l) * factor);
    for (size_t c = 0; c < plan->cols; c++)
        vstore(o + c * STRIP, vload(o + c * STRIP) * factor);
}

/* Largest score of each lane.   s (n, STRIP), n even */
INLINE vfloat column_max(const float *s, size_t n)
{
    vfloat top[UNROLL_MOST];
    UNROLL(u, 4, top[u] = vset(-INFINITY));
    size_t j = 0;
    for (; j + 4 <= n; j += 4) UNROLL(u, 4, top[u] = vmax(vload(s + (j + u) * STRIP), top[u]));
    for (; j < n; j++) top[0] = vmax(vload(s + j * STRIP), top[0]);
    return vmax(vmax(top[0], top[1]), vmax(top[2], top[3]));
}

/* Scores to pairs of weights, in place: pair row r replaces a row that was read.
 *     p_j = 2^(s_j f - c),   l = l + sum p_j
 *   s (n, STRIP), n a multiple of BF16_STEP     f  what makes of a score a power of two */
static void weights(const struct bf16_plan *plan, float *s, size_t n, float f, float *o,
                    float *state_c, float *state_l)
{
    for (size_t i = 0; i < STRIP; i += LANES) {
        vfloat c = vload(state_c + i), top = column_max(s + i, n) * f;
        vmask grows = vless(c + MOST_GROWTH, top);
        if (vlargest(vselect(grows, vset(1), vset(0))) > 0) {
            vfloat c_new = vmax(top, c);
            vfloat old = vclear(vequal(c, vset(-INFINITY)), c - c_new);
            rescale(plan, vclear(vequal(c, vset(-INFINITY)), vexp2(old)), o + i, state_l + i);
            c = c_new;
            vstore(state_c + i, c);
        }
        vfloat shift = vclear(vequal(c, vset(-INFINITY)), c), sum[UNROLL_MOST];
        UNROLL(u, 2, sum[u] = vset(0));
        for (size_t j = 0; j < n; j += 8) {
            vfloat p[UNROLL_MOST];
            UNROLL(u, 8, p[u] = vfma(vload(s + (j + u) * STRIP + i), vset(f), vset(0) - shift));
            rough_exp2(8, p);
            UNROLL(u, 4, sum[u % 2] += p[2 * u] + p[2 * u + 1];
                   vstore(s + (j / 2 + u) * STRIP + i, pair_of(p[2 * u], p[2 * u + 1])));
        }
        vstore(state_l + i, vload(state_l + i) + (sum[0] + sum[1]));
    }
}

/* One strip and the keys k, j0 .. j0 + n - 1: scores, weights, values. */
static void fold_block(const struct problem *p, const struct arrays *a,
                       const struct bf16_plan *plan, const struct task *t, size_t strip,
                       const uint32_t *k, size_t j0, size_t n, int masked, struct work *w)
{
    size_t whole = bf16_round_up(n, BF16_STEP), steps = plan->d / BF16_STEP;
    float *o = w->o + strip * STRIP * plan->cols;
    block_product(bf16_round_up(n, 16), steps, k, plan->d / 2, BF16_STEP / 2,
                  w->q + strip * STRIP * plan->d / 2, w->s, 0);
    if (masked) scale_and_mask(p, a, t, strip, j0, n, w->s);
    for (size_t x = n * STRIP; x < whole * STRIP; x++) w->s[x] = -INFINITY;
    weights(plan, w->s, whole, masked ? LOG2E : p->scale * LOG2E, o, w->c + strip * STRIP,
            w->l + strip * STRIP);
    block_product(plan->cols, whole / BF16_STEP, t->vt + j0 / 2 * plan->cols, BF16_STEP / 2,
                  plan->cols * BF16_STEP / 2, (const uint32_t *)(const void *)w->s, o, 1);
}

/* One query in float, masked keys left out: what a row gets in which NaN or infinity stood.
 * sum, o (head_dim_v); returns lse. */
static float row_alone(const struct problem *p, const struct arrays *a, const struct task *t,
                       size_t r, float *sum, uint16_t *o)
{
    size_t i = (t->first + r) % p->seqlen_q, d = p->head_dim, dv = p->head_dim_v;
    const float *bias = p->has_bias ? a->bias + i * p->seqlen_k : NULL;
    float m = -INFINITY, l = 0;
    for (size_t c = 0; c < dv; c++) sum[c] = 0;
    for (size_t j = t->seen[r].first; j < t->seen[r].end; j++) {
        if (bias && bias[j] == -INFINITY) continue;
        float s = 0;
        for (size_t x = 0; x < d; x++)
            s = sfma(bfloat_to_float(t->q[r * d + x]), bfloat_to_float(t->k[j * d + x]), s);
        s = sfma(s, p->scale, bias ? bias[j] : 0);
        if (s == -INFINITY) continue; /* weighs nothing, whatever v holds */
        float m_new = s > m ? s : m, safe = m_new == -INFINITY ? 0 : m_new;
        float factor = sexp(m - safe), p_j = sexp(s - safe);
        l = sfma(l, factor, p_j);
        for (size_t c = 0; c < dv; c++)
            sum[c] = sfma(p_j, bfloat_to_float(t->v[j * dv + c]), sum[c] * factor);
        m = m_new;
    }
    for (size_t c = 0; c < dv; c++) o[c] = float_to_bfloat(l == 0 ? 0 : sum[c] / l);
    return m + logf(l);
}

/* o and lse of a strip.  Weights of 0 were multiplied with what their keys' values hold: that
 * shows only as NaN, and such rows are computed again alone. */
static void finish(const struct problem *p, const struct arrays *a,
                   const struct bf16_plan *plan, const struct task *t, size_t strip,
                   const struct work *w)
{
    float scale[STRIP], bad[STRIP], part[16 * 16];
    float *o = w->o + strip * STRIP * plan->cols;
    const float *l = w->l + strip * STRIP;
    size_t dv = p->head_dim_v, at = t->group * plan->rows + t->first + strip * STRIP;
    size_t n_rows = t->n_rows - strip * STRIP < STRIP ? t->n_rows - strip * STRIP : STRIP;
    uint16_t *out = (uint16_t *)a->o + at * dv;
    for (size_t i = 0; i < STRIP; i += LANES) {
        vfloat sum = vset(0);
        for (size_t c = 0; c < plan->cols; c++) sum = vfma(vload(o + c * STRIP + i), vset(0), sum);
        vstore(bad + i, sum);
    }
    for (size_t r = 0; r < STRIP; r++) scale[r] = l[r] == 0 ? 0 : 1 / l[r];
    for (size_t r = 0; r < n_rows; r += 16)
        for (size_t c = 0; c < dv; c += 16) {
            size_t rows = n_rows - r < 16 ? n_rows - r : 16, cols = dv - c < 16 ? dv - c : 16;
            transpose_floats(o + c * STRIP + r, STRIP, part);
            for (size_t i = 0; i < rows; i++)
                narrow_row(part + 16 * i, scale[r + i], cols, out + (r + i) * dv + c);
        }
    for (size_t r = 0; r < n_rows; r++) {
        float lse = (float)((double)w->c[strip * STRIP + r] * LN2 + log((double)l[r]));
        if (bad[r] != 0)
            lse = row_alone(p, a, t, strip * STRIP + r, o, out + r * dv);
        if (a->lse) a->lse[at + r] = lse;
    }
}

/* All strips of a task over all of its keys, block by block: what a block brings into the
 * cache serves four strips. */
static void fold_task(const struct problem *p, const struct arrays *a,
                      const struct bf16_plan *plan, const struct task *t, struct work *w)
{
    enum { STRIPS = BF16_ROWS / STRIP };
    size_t strips = (t->n_rows + STRIP - 1) / STRIP, begin = SIZE_MAX, end = 0;
    struct key_range some[STRIPS], all[STRIPS];
    pack_queries(p, plan, t, w->q);
    for (size_t r = 0; r < BF16_ROWS; r++) {
        w->c[r] = -INFINITY;
        w->l[r] = 0;
    }
    memset(w->o, 0, BF16_ROWS * plan->cols * sizeof(float));
    for (size_t s = 0; s < strips; s++) {
        strip_ranges(t, s, &some[s], &all[s]);
        if (some[s].first < begin) begin = some[s].first;
        if (some[s].end > end) end = some[s].end;
    }
    if (begin < end) begin = begin / BF16_STEP * BF16_STEP; /* v^T lies in steps */
    int always = p->has_bias || !(p->scale > FLT_MIN); /* -INFINITY times 0 would be NaN */
    for (size_t j0 = begin; j0 < end; j0 += BF16_KEYS) {
        size_t n = end - j0 < BF16_KEYS ? end - j0 : BF16_KEYS;
        const uint32_t *k = block_of_keys(p, plan, t, j0, n, w->k);
        for (size_t s = 0; s < strips; s++) {
            size_t last = j0 + n < some[s].end ? j0 + n : some[s].end;
            if (last <= j0 || some[s].first >= last) continue;
            int masked = always || j0 < all[s].first || last > all[s].end;
            fold_block(p, a, plan, t, s, k, j0, last - j0, masked, w);
        }
    }
    for (size_t s = 0; s < strips; s++) finish(p, a, plan, t, s, w);
}

/* v^T of all groups first, then the tasks, those with the most keys before the others. */
static void bf16_attention(const struct problem *p, const struct arrays *a)
{
    struct bf16_plan plan = bf16_plan_of(p);
    size_t steps = plan.keys / BF16_STEP, tasks = plan.groups * plan.tasks;
    uint16_t *vt = a->workspace;
    char *memory = (char *)a->workspace + bf16_values_bytes(&plan);
#pragma omp parallel
    {
        struct work w = work_at(&plan, memory + (size_t)omp_get_thread_num() *
                                           bf16_thread_bytes(&plan));
        struct task t;
#pragma omp for schedule(static)
        for (size_t i = 0; i < plan.groups * steps; i++)
            pack_values(p, &plan, (const uint16_t *)a->v + i / steps * p->seqlen_k * p->head_dim_v,
                        i % steps * BF16_STEP, vt + i * BF16_STEP * plan.cols);
        tiles_begin();
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < tasks; i++) {
            task_at(p, a, &plan, (const uint32_t *)(const void *)vt, tasks - 1 - i, &t);
            fold_task(p, a, &plan, &t, &w);
        }
        tiles_end();
    }
}
