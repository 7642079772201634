/* powers_of_two.c: stage 3 in two loops with a power of two in place of the maximum.
 *
 *     exp(x) = (1 + t) 2^n,   m = max_j n_j,   l = sum_j (1 + t_j) 2^(n_j - m)
 * Dukhan and Ablavatski 2020, Algorithm 3.  The exponential finds n anyway, so nothing
 * searches for a maximum, and a rescale by a power of two is exact. */
#include "fast/stream.h"

/* In a state of this file m is an integer: the row's exponentials add up to l * 2^m.  m is
 * kept as the float m + VEXP_ROUND, whose low bits are m + 127. */

/* Beyond +-FAR the split of exp into t and n is inaccurate: n * LN2_HI must be exact, in a
 * multiply-add or, without one, as a float.  A clamped score must still vanish next to a
 * maximum of 2^-FAR: 0.44 FAR > 126. */
#define FAR (HAS_FMA ? 16384.0f : 350.0f)

/* exp(x) = (1 + t) 2^n, n + VEXP_ROUND returned in *z.  Scores below -FAR count as -FAR. */
INLINE vfloat split(vfloat x, vfloat *z)
{
    x = vmax(vset(-FAR), x); /* in this order NaN stays NaN */
    *z = vfma(x, vset(VEXP_LOG2E), vset(VEXP_ROUND));
    vfloat n = *z - VEXP_ROUND;
    vfloat r = vfma(n, vset(-VEXP_LN2_HI), x);
    r = vfma(n, vset(-VEXP_LN2_LO), r);
    vfloat q = vfma(vset(VEXP_C6), r, vset(VEXP_C5));
    q = vfma(q, r, vset(VEXP_C4));
    q = vfma(q, r, vset(VEXP_C3));
    q = vfma(q, r, vset(VEXP_C2));
    return vfma(q, r * r, r);
}

/* 2^(n - m) for n <= m, 0 when that is below 2^-126; n and m as z above. */
INLINE vfloat power_of_difference(vfloat n, vfloat m)
{
    vint biased = (vint)n - (vint)m + 127;
    return (vfloat)((vint)vbits_positive((vfloat)biased) << 23);
}

/* Loop 1: it needs no maximum of x, only that of n. */
static struct vstate power_sum(const float *x, size_t n)
{
    struct vstate s = {vset(VEXP_ROUND - 2 * FAR), vset(0)}; /* l = 0: any m will do */
    for (size_t j = 0; j < n; j += 4 * LANES) {
        vfloat t[UNROLL_MOST], z[UNROLL_MOST], m = s.m, sum = {0};
        UNROLL(u, 4, size_t at = j + (size_t)u * LANES; size_t left = at < n ? n - at : 0;
               vfloat v = left >= LANES ? vload(x + at) : vload_part(x + at, left, -INFINITY);
               t[u] = split(v, &z[u]);
               m = vmax(z[u], m));
        UNROLL(u, 4, vfloat power = power_of_difference(z[u], m);
               sum += vfma(t[u], power, power));
        s.l = s.l * power_of_difference(s.m, m) + sum;
        s.m = m;
    }
    return s;
}

/* Softmax of one row in two loops with a power of two for a maximum.
 *     loop 1: l, m     loop 2: y_j = (1 + t) 2^(n - m) / l
 * A row whose largest score is beyond +-FAR, or that has none, is left to the online loop. */
static void two_pass_row(const float *x, float *y, size_t n, int streaming)
{
    struct vstate s = power_sum(x, n);
    vfloat m = vset(vlargest(s.m));
    float l = vsum(s.l * power_of_difference(s.m, m)), top = m[0] - VEXP_ROUND;
    if (!(top > -FAR && top < FAR)) {
        (streaming ? divide_streaming : divide)(x, y, n, online_row(x, n));
        return;
    }
    float scale = 1 / l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vfloat z, t = split(vload(x + j), &z), power = power_of_difference(z, m) * scale;
        vfloat y_j = vfma(t, power, power);
        if (streaming) vstream(y + j, y_j);
        else vstore(y + j, y_j);
    }
    if (j < n) {
        vfloat z, t = split(vload_part(x + j, n - j, 0), &z);
        vfloat power = power_of_difference(z, m) * scale;
        vstore_part(y + j, n - j, vfma(t, power, power));
    }
}

static void softmax_two_pass(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    int whole_vectors = p->cols % LANES == 0 && (uintptr_t)a->y % VECTOR_BYTES == 0;
    int streaming = whole_vectors && p->rows * p->cols >= STREAM_FROM;
    for (size_t i = 0; i < p->rows; i++)
        two_pass_row(x + i * p->cols, y + i * p->cols, p->cols, streaming);
    vstream_end();
}

const struct variant online_two_pass = {
    .name = "two_pass",
    .idea = "a power of two for the maximum",
    .group = IN_ASIDES,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = cost_streaming_large,
    .does = {{OP_SOFTMAX, softmax_two_pass}},
};
