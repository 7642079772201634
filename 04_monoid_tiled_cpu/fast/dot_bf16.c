/* dot_bf16.c: attention in bf16 with vdpbf16ps (AVX512-BF16): a multiply-add of pairs.
 *
 *     c_lane += a.low * b.low + a.high * b.high        32 products in an instruction, not 16
 * The micro-kernel is that of microkernel.c: sums stay in registers, a is broadcast, b is a
 * vector.  Where the instruction is missing its model computes the same with shifts and
 * multiply-adds: tests/test_dot_bf16.c runs it. */
#define LEAST_WORK (1 << 21)
#include "bf16.h"

#ifdef MODEL /* tests/test_dot_bf16.c */
#define DOT(name) dot_model_##name
#else
#define DOT(name) dot_bf16_##name
#endif

#if defined __AVX512BF16__ && !defined MODEL
const int dot_bf16_is_compiled = 1;
INLINE vfloat dot_pairs(vfloat a, vfloat b, vfloat c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
#else
#ifndef MODEL
const int dot_bf16_is_compiled = 0;
#endif
INLINE vfloat upper(vfloat pair) { return (vfloat)((vuint)pair & 0xffff0000); }
INLINE vfloat lower(vfloat pair) { return (vfloat)((vuint)pair << 16); }
INLINE vfloat dot_pairs(vfloat a, vfloat b, vfloat c)
{
    return vfma(upper(a), upper(b), vfma(lower(a), lower(b), c));
}
#endif

#define ROWS_AT_ONCE 8
#define VECTORS_AT_ONCE (LANES >= 16 ? 2 : 1)

INLINE vfloat broadcast(const uint32_t *pair)
{
    float bits;
    memcpy(&bits, pair, sizeof bits);
    return vset(bits);
}

/* c (ROWS_AT_ONCE, VECTORS_AT_ONCE * LANES) of block_product. */
static __attribute__((noinline)) void
rows_product(size_t steps, const uint32_t *a, size_t a_row, size_t a_step, const uint32_t *b,
             float *c, int add)
{
    vfloat sum[UNROLL_MOST][UNROLL_MOST];
    UNROLL(r, ROWS_AT_ONCE, UNROLL(n, VECTORS_AT_ONCE,
           sum[r][n] = add ? vload(c + r * PANEL + n * LANES) : vset(0)));
    for (size_t t = 0; t < steps; t++)
        for (size_t pair = 0; pair < KEY_STEP / 2; pair++) {
            const float *b_t = (const float *)(const void *)(b + (t * KEY_STEP / 2 + pair) * PANEL);
            const uint32_t *a_t = a + t * a_step + pair;
            vfloat x[UNROLL_MOST];
            UNROLL(n, VECTORS_AT_ONCE, x[n] = vload(b_t + n * LANES));
            UNROLL(r, ROWS_AT_ONCE, vfloat y = broadcast(a_t + r * a_row);
                   UNROLL(n, VECTORS_AT_ONCE, sum[r][n] = dot_pairs(y, x[n], sum[r][n])));
        }
    UNROLL(r, ROWS_AT_ONCE,
           UNROLL(n, VECTORS_AT_ONCE, vstore(c + r * PANEL + n * LANES, sum[r][n])));
}

static void block_product(size_t rows, size_t steps, const uint32_t *a, size_t a_row,
                          size_t a_step, const uint32_t *b, float *c, int add)
{
    for (size_t r = 0; r < rows; r += ROWS_AT_ONCE)
        for (size_t n = 0; n < PANEL; n += VECTORS_AT_ONCE * LANES)
            rows_product(steps, a + r * a_row, a_row, a_step, b + n, c + r * PANEL + n, add);
}

static void tiles_begin(void) {}
static void tiles_end(void) {}

size_t DOT(workspace)(const struct problem *p) { return bf16_workspace(p); }

void DOT(attention)(const struct problem *p, const struct arrays *a)
{
    bf16_attention(p, a);
}
