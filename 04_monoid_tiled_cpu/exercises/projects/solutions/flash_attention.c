/* flash_attention.c: project of stage 4, 60 points: attention at the speed of arithmetic.
 *
 * One way to do it: K transposed tile by tile, so that the scores of 64 keys are vectors; four
 * queries share each load of K; four keys at a time for the values. */
#include "course/exercise.h"

enum { Br = 4, Bc = 64 }; /* queries and keys of a tile */

/* e^x for x <= 0 in plain C that a compiler turns into vector instructions: x = n log 2 + r,
 * a polynomial in r, and n added to the exponent.  Below -87 it gives 0; a NaN stays. */
static inline float exp_of(float x)
{
    float t = x * 1.44269504f + 12582912.0f, n = t - 12582912.0f;
    float r = fmaf(n, -0.693145752f, x);
    r = fmaf(n, -1.42860677e-6f, r);
    float e = 1.3888889e-3f;
    e = fmaf(e, r, 8.3333333e-3f);
    e = fmaf(e, r, 4.1666667e-2f);
    e = fmaf(e, r, 1.6666667e-1f);
    e = fmaf(e, r, 0.5f);
    e = fmaf(e, r, 1.0f);
    e = fmaf(e, r, 1.0f);
    union { float f; int i; } bits = {.f = t}, power;
    power.i = (bits.i - 0x4b400000 + 127) << 23;
    e *= power.f;
    return x < -87.0f ? 0.0f : e;
}

/* The scores of Br queries and Bc keys, 0 beyond the sizes.
 *   q (n_q, head_dim)  kt (head_dim, Bc): the keys, transposed      s (Br, Bc) */
static void scores(const struct problem *p, const float *q, size_t n_q, const float *kt,
                   float (*s)[Bc])
{
    const float *q_i[Br];
    for (size_t i = 0; i < Br; i++) q_i[i] = q + (i < n_q ? i : n_q - 1) * p->head_dim;
    for (size_t i = 0; i < Br; i++)
        for (size_t j = 0; j < Bc; j++) s[i][j] = 0;
    for (size_t d = 0; d < p->head_dim; d++)
        for (size_t i = 0; i < Br; i++)
            for (size_t j = 0; j < Bc; j++) s[i][j] = fmaf(q_i[i][d], kt[d * Bc + j], s[i][j]);
}

/* Masks, takes the maximum, and turns scores into weights.  Returns the correction.
 *   s (Bc)  scores, weights on return      hidden (Bc)  not seen, or masked; j_0 the first key */
static float weigh(const struct problem *p, size_t i, size_t j_0, const float *bias_i, float *s,
                   unsigned char *hidden, float *m, float *l)
{
    struct key_range keys = visible_keys(p, i);
    float m_new = *m, sum = 0;
    for (size_t j = 0; j < Bc; j++) {
        int seen = j_0 + j >= keys.first && j_0 + j < keys.end;
        float b = seen && bias_i ? bias_i[j_0 + j] : 0;
        s[j] = !seen || b == -INFINITY ? -INFINITY : p->scale * s[j] + b;
        hidden[j] = s[j] == -INFINITY;
    }
    for (size_t j = 0; j < Bc; j++) m_new = s[j] > m_new ? s[j] : m_new;
    float shift = m_new == -INFINITY ? 0 : m_new, correction = exp_of(*m - shift);
    if (*m == m_new) correction = 1;
    for (size_t j = 0; j < Bc; j++) s[j] = exp_of(s[j] - shift);
    for (size_t j = 0; j < Bc; j++) sum += s[j];
    *l = *l * correction + sum;
    *m = m_new;
    return correction;
}

/* o (dv) = correction o + sum_j s_j v_j, four keys at a time; when v holds what is no number,
 * one at a time, without the hidden ones. */
static void add_values(float *restrict o, size_t dv, float correction, const float *s,
                       const unsigned char *hidden, const float *v, size_t n, int clean)
{
    for (size_t d = 0; d < dv; d++) o[d] *= correction;
    size_t j = 0;
    for (; clean && j + 4 <= n; j += 4) {
        const float *v_0 = v + j * dv, *v_1 = v_0 + dv, *v_2 = v_1 + dv, *v_3 = v_2 + dv;
        float a = s[j], b = s[j + 1], c = s[j + 2], e = s[j + 3];
        for (size_t d = 0; d < dv; d++)
            o[d] = fmaf(e, v_3[d], fmaf(c, v_2[d], fmaf(b, v_1[d], fmaf(a, v_0[d], o[d]))));
    }
    for (; j < n; j++)
        for (size_t d = 0; d < dv && (clean || !hidden[j]); d++)
            o[d] = fmaf(s[j], v[j * dv + d], o[d]);
}

static int is_finite(const float *v, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += v[i] * 0;
    return sum == 0;
}

/* Br queries of a head against all keys, a tile of Bc at a time.
 *   kt (n_tiles, head_dim, Bc)  the keys of the head, transposed tile by tile */
static void attend(const struct problem *p, size_t i_0, size_t n_q, const float *q,
                   const float *kt, const float *v, int clean, const float *bias, float *o,
                   float *lse)
{
    float m[Br], l[Br] = {0}, s[Br][Bc];
    unsigned char hidden[Bc];
    size_t dv = p->head_dim_v, n = p->seqlen_k;
    for (size_t i = 0; i < n_q; i++) {
        m[i] = -INFINITY;
        for (size_t d = 0; d < dv; d++) o[i * dv + d] = 0;
    }
    size_t end = visible_keys(p, i_0 + n_q - 1).end;
    for (size_t j = 0; j < end; j += Bc) {
        scores(p, q, n_q, kt + j * p->head_dim, s);
        for (size_t i = 0; i < n_q; i++) {
            float f = weigh(p, i_0 + i, j, bias ? bias + (i_0 + i) * n : NULL, s[i], hidden,
                            &m[i], &l[i]);
            add_values(o + i * dv, dv, f, s[i], hidden, v + j * dv, n - j < Bc ? n - j : Bc, clean);
        }
    }
    for (size_t i = 0; i < n_q; i++) {
        for (size_t d = 0; d < dv; d++) o[i * dv + d] = l[i] == 0 ? 0 : o[i * dv + d] / l[i];
        lse[i] = m[i] + logf(l[i]);
    }
}

static size_t tiles(const struct problem *p) { return (p->seqlen_k + Bc - 1) / Bc; }

static size_t workspace(const struct problem *p)
{
    return tiles(p) * Bc * p->head_dim * sizeof(float);
}

/* Every head; heads_q / heads_kv query heads share a key-value head. */
static void attention(const struct problem *p, const struct arrays *a)
{
    float *kt = a->workspace;
    size_t n = p->seqlen_k, dim = p->head_dim, dv = p->head_dim_v;
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++) {
        size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / (p->heads_q / p->heads_kv);
        const float *k = (const float *)a->k + kv * n * dim, *v = (const float *)a->v + kv * n * dv;
        for (size_t j = 0; j < tiles(p) * Bc; j++)
            for (size_t d = 0; d < dim; d++)
                kt[j / Bc * Bc * dim + d * Bc + j % Bc] = j < n ? k[j * dim + d] : 0;
        int clean = is_finite(v, n * dv);
        for (size_t i = 0; i < p->seqlen_q; i += Br) {
            size_t row = bh * p->seqlen_q + i, n_q = p->seqlen_q - i < Br ? p->seqlen_q - i : Br;
            attend(p, i, n_q, (const float *)a->q + row * dim, kt, v, clean, a->bias,
                   (float *)a->o + row * dv, a->lse + row);
        }
    }
}

PROGRAM(4, flash_attention, "attention at the speed of arithmetic",
        ALL_PROBLEMS, .workspace = workspace, .does = {{OP_ATTENTION, attention}})
