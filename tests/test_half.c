/* test_half.c: float16 and bfloat16 conversions at every value and rounding boundary.
 *
 * Between two neighbours rounding is a step function with one step, at their midpoint; so
 * the midpoint and the floats on both sides of it, for every pair of neighbours, and a
 * sample between them, decide the conversion of all 2^32 floats. */
#include <criterion/criterion.h>
#include <math.h>

#include "problem/half.h"

/* A 16-bit format, by definition: sign, exponent bits, fraction bits. */
struct format {
    const char *name;
    int fraction_bits, bias;
    uint16_t infinity; /* bits; what lies above are NaNs */
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
};

static float widen_half(uint16_t h) { return half_to_float(h); }
static uint16_t narrow_half(float x) { return float_to_half(x); }
static float widen_bfloat(uint16_t b) { return bfloat_to_float(b); }
static uint16_t narrow_bfloat(float x) { return float_to_bfloat(x); }

static const struct format formats[] = {
    { "float16", 10, 15, 0x7c00, widen_half, narrow_half },
    { "bfloat16", 7, 127, 0x7f80, widen_bfloat, narrow_bfloat },
};

/* The value of the non-negative bits u; that of infinity is the next power of two. */
static double value(const struct format *f, unsigned u)
{
    unsigned one = 1u << f->fraction_bits, exponent = u / one, fraction = u % one;
    if (exponent == 0) return ldexp(fraction, 1 - f->bias - f->fraction_bits);
    return ldexp(one + fraction, (int)exponent - f->bias - f->fraction_bits);
}

Test(half, widening_is_exact_for_every_value)
{
    for (int t = 0; t < 2; t++)
        for (unsigned u = 0; u < formats[t].infinity; u++) {
            float x = formats[t].widen((uint16_t)u);
            float y = formats[t].widen((uint16_t)(u | 0x8000u));
            double want = value(&formats[t], u);
            cr_assert((double)x == want && !signbit(x), "%s %04x: got %a, want %a",
                      formats[t].name, u, x, want);
            cr_assert((double)y == -want && signbit(y), "%s %04x: got %a, want %a",
                      formats[t].name, u | 0x8000u, y, -want);
        }
}

Test(half, narrowing_undoes_widening)
{
    for (int t = 0; t < 2; t++)
        for (unsigned u = 0; u <= 0xffff; u++) {
            unsigned got = formats[t].narrow(formats[t].widen((uint16_t)u));
            if ((u & 0x7fff) > formats[t].infinity)
                u |= 1u << (formats[t].fraction_bits - 1); /* a NaN comes back quiet */
            cr_assert(got == u, "%s: got %04x, want %04x", formats[t].name, got, u);
        }
}

static void check_narrow(const struct format *f, double x, unsigned want)
{
    cr_assert((double)(float)x == x, "the test's %a is no float", x);
    unsigned got = f->narrow((float)x), negative = f->narrow((float)-x);
    cr_assert(got == want, "%s of %a: got %04x, want %04x", f->name, x, got, want);
    cr_assert(negative == (want | 0x8000u), "%s of %a: got %04x, want %04x", f->name, -x,
              negative, want | 0x8000u);
}

Test(half, narrowing_rounds_to_nearest_even_at_every_boundary)
{
    for (int t = 0; t < 2; t++)
        for (unsigned u = 0; u < formats[t].infinity; u++) {
            double low = value(&formats[t], u), high = value(&formats[t], u + 1);
            double middle = (low + high) / 2;
            check_narrow(&formats[t], middle, u % 2 ? u + 1 : u);
            check_narrow(&formats[t], (double)nextafterf((float)middle, 0), u);
            float above = nextafterf((float)middle, INFINITY);
            if (isfinite(above)) check_narrow(&formats[t], (double)above, u + 1);
            check_narrow(&formats[t], (double)(float)((low + middle) / 2), u);
        }
}

Test(half, narrowing_beyond_the_largest_gives_infinity)
{
    const float beyond[] = { 65520.0f, 65536.0f, 1e30f, 3.4028235e38f, INFINITY };
    for (size_t t = 0; t < sizeof beyond / sizeof *beyond; t++)
        check_narrow(&formats[0], (double)beyond[t], 0x7c00);
    check_narrow(&formats[1], 3.4028234663852886e38, 0x7f80);
    check_narrow(&formats[1], INFINITY, 0x7f80);
}

Test(half, nan_stays_quiet_and_keeps_its_sign)
{
    const uint32_t nans[] = { 0x7f800001, 0x7fc00000, 0x7fffffff, 0x7f801fff, 0x7f80ffff,
                              0x7fc0dead };
    for (int t = 0; t < 2; t++)
        for (size_t n = 0; n < sizeof nans / sizeof *nans; n++) {
            unsigned quiet = 1u << (formats[t].fraction_bits - 1);
            for (uint32_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
                unsigned got = formats[t].narrow(f32_from_bits(nans[n] | sign));
                cr_assert((got & 0x7fff) > formats[t].infinity && (got & quiet) &&
                          (got & 0x8000u) == sign >> 16,
                          "%s of NaN %08x: got %04x", formats[t].name, nans[n] | sign,
                          got);
                if (sign) break;
            }
            uint16_t signalling = (uint16_t)(formats[t].infinity | 1);
            uint32_t wide = f32_bits(formats[t].widen(signalling));
            cr_assert((wide & 0x7fffffff) > 0x7fc00000 - 1 && (wide & 0x400000),
                      "%s %04x: widened to %08x, not a quiet NaN", formats[t].name,
                      signalling, wide);
        }
}
