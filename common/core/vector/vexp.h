/* vexp.h: exp and exp2 of vectors of float.
 *
 *     2^n * (1 + t),  n = nearest integer to x * log2(e),  r = x - n * ln 2,  t = e^r - 1
 * ln 2 is a sum of two floats (Cody and Waite 1980): n * LN2_HI is exact.  t is a
 * polynomial of degree 6 in r, fitted for least relative error on |r| <= ln(2)/2.
 *
 * Error, every float of the range compared with double (make test-long):
 *                         with FMA     without (plain x86-64)
 *   vexp    x <= 88.72    1.014 ulp    1.02 ulp
 *   vexp2   x <= 0        0.952 ulp    1.25 ulp
 * exp(0) = 1, never above 1 for x <= 0, and NaN stays NaN.  A result below 2^-126 is 0:
 * denormal results are slow to make, and next to a sum that is at least 1 they are
 * nothing (at most 2^-126 a term). */
#pragma once

#include "vector/vector.h"

#define VEXP_LOG2E 0x1.715476p+0f
#define VEXP_LN2_HI 0x1.62e4p-1f       /* 15 bits, so n * LN2_HI is exact for |n| < 512 */
#define VEXP_LN2_LO 0x1.7f7d1cp-20f
#define VEXP_LEAST -0x1.5d589ep+6f     /* ln 2^-126: below it the result is 0 */
#define VEXP_MOST 0x1.62e42ep+6f       /* above it the result is infinite */

/* Adding it to a small number z rounds z to an integer, and leaves that integer plus the
 * exponent bias 127 in the low bits: shifted left by 23 they are the float 2^n. */
#define VEXP_ROUND (0x1.8p+23f + 127)

#define VEXP_C2 0x1.fffffcp-2f
#define VEXP_C3 0x1.555492p-3f
#define VEXP_C4 0x1.5558f2p-5f
#define VEXP_C5 0x1.1239d4p-7f
#define VEXP_C6 0x1.6a244cp-10f

#define VEXP2_C1 0x1.62e430p-1f
#define VEXP2_C2 0x1.ebfbdcp-3f
#define VEXP2_C3 0x1.c6aee8p-5f
#define VEXP2_C4 0x1.3b2d4cp-7f
#define VEXP2_C5 0x1.5f3e52p-10f
#define VEXP2_C6 0x1.41fbbcp-13f

/* e^x = (1 + t) * 2^n for any x; infinite above 88.72.  For x > 0 half the power is used and the
 * result doubled, because the power of the largest results is 2^128, which is not a float.  To halve
 * it is to subtract 1 from its exponent bits, which are those of 2^-126. */
INLINE vfloat vexp(vfloat x)
{
    vfloat z = vfma(x, vset(VEXP_LOG2E), vset(VEXP_ROUND));
    vfloat n = z - VEXP_ROUND;
    vfloat r = vfma(n, vset(-VEXP_LN2_HI), x);
    r = vfma(n, vset(-VEXP_LN2_LO), r);
    vfloat q = vfma(vset(VEXP_C6), r, vset(VEXP_C5));
    q = vfma(q, r, vset(VEXP_C4));
    q = vfma(q, r, vset(VEXP_C3));
    q = vfma(q, r, vset(VEXP_C2));
    vfloat t = vfma(q, r * r, r), power = (vfloat)((vint)z << 23);
    vmask positive = vless(vset(0), x);
    power = (vfloat)((vuint)power - (vuint)vkeep(positive, vset(0x1p-126f)));
    vfloat y = vfma(t, power, power);
    y += vkeep(positive, y);
    y = vselect(vless(vset(VEXP_MOST), x), vset(INFINITY), y);
    return vclear(vless(x, vset(VEXP_LEAST)), y); /* NaN stays NaN */
}

/* 2^x for x <= 0.  x - n is exact, so ln 2 need not be split. */
INLINE vfloat vexp2(vfloat x)
{
    vfloat z = x + VEXP_ROUND;
    vfloat r = x - (z - VEXP_ROUND);
    vfloat q = vfma(vset(VEXP2_C6), r, vset(VEXP2_C5));
    q = vfma(q, r, vset(VEXP2_C4));
    q = vfma(q, r, vset(VEXP2_C3));
    q = vfma(q, r, vset(VEXP2_C2));
    q = vfma(q, r, vset(VEXP2_C1));
    vfloat power = (vfloat)((vint)z << 23);
    return vclear(vless(x, vset(-126)), vfma(q, r, vset(1)) * power);
}

/* tanh y, within 4 ulp.  Up to 1/4 its series: there 1 - e would lose digits.
 *     tanh |y| = (1 - e) / (1 + e),  e = exp(-2 |y|) */
INLINE vfloat vtanh(vfloat y)
{
    vfloat size = vmax(y, -y), square = y * y, e = vexp2(size * (-2 * VEXP_LOG2E));
    vfloat large = (1 - e) / (1 + e);
    large = vselect(vless(y, vset(0)), -large, large);
    vfloat q = vfma(vset(62.0f / 2835), square, vset(-17.0f / 315));
    q = vfma(q, square, vset(2.0f / 15));
    q = vfma(q, square, vset(-1.0f / 3));
    return vselect(vless(size, vset(0.25f)), vfma(q * square, y, y), large);
}

/* How many vectors go through an exponential in lockstep: three of each fit the registers. */
#if LANES == 16 || defined __aarch64__
#define VEXP_AT_ONCE 8
#else
#define VEXP_AT_ONCE 4
#endif

/* x[u] = 2^x[u] of n vectors, n <= 8 a constant, infinite from 127.5 or 128 on; one step of all of
 * them before the next step, so that each instruction finds its operands ready.  Left to itself a
 * core holds too few whole chains at a time to keep its units busy.  The same bits as vexp2 for
 * -126 <= x < 127.  With vscale ten instructions, and 0 everywhere below -126.  Without it twelve,
 * 0 below -126.5, and in between a denormal, which saves a comparison. */
INLINE void vexp2_lockstep(int n, vfloat *x)
{
    vfloat r[UNROLL_MOST], q[UNROLL_MOST];
#if HAS_SCALE
    UNROLL(u, n, r[u] = vfraction(x[u]));
#else
    vfloat power[UNROLL_MOST];
    UNROLL(u, n, x[u] = vmax(vset(-127), vmin(vset(128), x[u])); /* in this order NaN stays NaN */
           power[u] = x[u] + VEXP_ROUND);
    UNROLL(u, n, r[u] = x[u] - (power[u] - VEXP_ROUND);
           power[u] = (vfloat)((vint)power[u] << 23)); /* 2^-127 comes out as 0 */
#endif
    UNROLL(u, n, q[u] = vfma(vset(VEXP2_C6), r[u], vset(VEXP2_C5)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(VEXP2_C4)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(VEXP2_C3)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(VEXP2_C2)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(VEXP2_C1)));
    UNROLL(u, n, q[u] = vfma(q[u], r[u], vset(1)));
#if HAS_SCALE
    UNROLL(u, n, x[u] = vscale(vnot_less(x[u], vset(-126)), q[u], x[u] - r[u]));
#else
    UNROLL(u, n, x[u] = q[u] * power[u]);
#endif
}

/* The largest of some scores, and the sum of exp(score - m) over them, in lanes. */
struct block_sum { float top; vfloat sum; };

/* Both in one look at each score, so that memory is waited for once: m is not their maximum
 * but one known before.  Scores above m are welcome up to m + VEXP_ROOM.  Beyond it the sum
 * is inaccurate, because x - m is rounded where it is large, or has overflowed: then the
 * caller starts again with m = top.
 *   x (n)  scores; what lies VEXP_AHEAD floats on is fetched meanwhile
 *   m      -INFINITY counts as 0; a NaN among the scores shows in the sum
 *   kept (n, up to a whole vector)  takes the exponentials, or NULL */
#define VEXP_ROOM 2
#define VEXP_AHEAD 2048
INLINE struct block_sum vexp_sum(const float *x, size_t n, float m, float *kept)
{
    enum { STEP = VEXP_AT_ONCE * LANES };
    float shift = m == -INFINITY ? 0 : m;
    vfloat top[2] = {vset(-INFINITY), vset(-INFINITY)}, sum[2] = {{0}};
    size_t j = 0;
    for (; j + STEP <= n; j += STEP) {
        vfloat e[UNROLL_MOST];
        UNROLL(u, VEXP_AT_ONCE, vfloat x_j = vload(x + j + u * LANES);
               vfetch(x + j + u * LANES, VEXP_AHEAD);
               top[u % 2] = vmax(x_j, top[u % 2]);
               e[u] = (x_j - shift) * VEXP_LOG2E);
        vexp2_lockstep(VEXP_AT_ONCE, e);
        UNROLL(u, VEXP_AT_ONCE, if (kept) vstore(kept + j + u * LANES, e[u]);
               sum[u % 2] += e[u]);
    }
    for (; j < n; j += LANES) {
        vfloat x_j = n - j < LANES ? vload_part(x + j, n - j, -INFINITY) : vload(x + j);
        vfloat e = vexp2((x_j - shift) * VEXP_LOG2E);
        top[0] = vmax(x_j, top[0]);
        if (kept) vstore(kept + j, e);
        sum[0] += e;
    }
    return (struct block_sum){vlargest(vmax(top[0], top[1])), sum[0] + sum[1]};
}

/* The same of one number. */
INLINE float sexp(float x) { return vexp(vset(x))[0]; }
INLINE float sexp2(float x) { return vexp2(vset(x))[0]; }
