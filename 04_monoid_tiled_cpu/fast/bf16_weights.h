/* bf16_weights.h: from the scores of a strip and a block of keys to pairs of weights, with the
 * reference point, the denominator and the numerator rescaled when a score outgrows it. */
#ifndef BF16_WEIGHTS_H
#define BF16_WEIGHTS_H

#include "bf16_task.h"
#include "vector/vexp.h"

#define MOST_GROWTH 8 /* a score may exceed the reference point by a factor of 2^8 */

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
        if (vany(grows)) {
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

#endif
