/* bf16_fold.h: the fold of bf16.h, included by dot_bf16.c and amx.c, which give it
 * block_product(), tiles_begin() and tiles_end().  It is compiled with their instructions. */
#include <float.h>
#include <omp.h>

#include "bf16_task.h"
#include "bf16_weights.h"
#include "problem/half.h"

#define LOG2E 0x1.715476p+0f
#define LN2 0x1.62e42fefa39efp-1

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
