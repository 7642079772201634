/* test_half.c: float16 and bfloat16 at every value and rounding boundary.
 *
 * Between two neighbours rounding is a step function with one step, at their midpoint; so
 * the midpoint and the floats on both sides of it, for every pair of neighbours, and a
 * sample between them, decide the conversion of all 2^32 floats. */
#include <criterion/criterion.h>
#include <math.h>

#include "vector/half.h"

/* A 16-bit format, by definition: sign, exponent bits, fraction bits. */
struct format {
    const char *name;
    int fraction_bits, bias;
    uint16_t infinity; /* bits; what lies above are NaNs */
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
};

static const struct format formats[] = {
    { "float16", 10, 15, 0x7c00, half_to_float, float_to_half },
    { "bfloat16", 7, 127, 0x7f80, bfloat_to_float, float_to_bfloat },
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
        for (unsigned u = 0; u <= formats[t].infinity; u++) {
            float x = formats[t].widen((uint16_t)u), y = formats[t].widen((uint16_t)(u | 0x8000u));
            double want = u < formats[t].infinity ? value(&formats[t], u) : INFINITY;
            cr_assert((double)x == want && !signbit(x) && (double)y == -want && signbit(y),
                      "%s %04x: got %a and %a, want %a", formats[t].name, u, x, y, want);
        }
}

/* x and -x. */
static void check_narrow(const struct format *f, double x, unsigned want)
{
    unsigned got = f->narrow((float)x), negative = f->narrow((float)-x);
    cr_assert((double)(float)x == x, "the test's %a is no float", x);
    cr_assert(got == want && negative == (want | 0x8000u), "%s of %a: got %04x, of its negative %04x, "
              "want %04x", f->name, x, got, negative, want);
}

Test(half, narrowing_rounds_to_nearest_even_at_every_boundary)
{
    for (int t = 0; t < 2; t++) {
        for (unsigned u = 0; u < formats[t].infinity; u++) {
            double low = value(&formats[t], u), high = value(&formats[t], u + 1);
            double middle = (low + high) / 2;
            float above = nextafterf((float)middle, INFINITY);
            check_narrow(&formats[t], low, u);
            check_narrow(&formats[t], (double)(float)((low + middle) / 2), u);
            check_narrow(&formats[t], (double)nextafterf((float)middle, 0), u);
            check_narrow(&formats[t], middle, u % 2 ? u + 1 : u);
            if (isfinite(above)) check_narrow(&formats[t], (double)above, u + 1);
        }
        check_narrow(&formats[t], 3.4028234663852886e38, formats[t].infinity);
        check_narrow(&formats[t], INFINITY, formats[t].infinity);
    }
    for (int e = 16; e < 128; e++) check_narrow(&formats[0], ldexp(1, e), formats[0].infinity);
}

Test(half, nan_stays_quiet_and_keeps_its_sign)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0x7f801fff, 0x7f80ffff,
                                    0x7fc0dead, 0xff800001, 0xffc00000, 0xff801fff};
    for (int t = 0; t < 2; t++) {
        unsigned quiet = 1u << (formats[t].fraction_bits - 1), infinity = formats[t].infinity;
        for (size_t n = 0; n < sizeof nans / sizeof *nans; n++) {
            unsigned got = formats[t].narrow(f32_from_bits(nans[n]));
            cr_assert((got & 0x7fff) > infinity && (got & quiet) && got >> 15 == nans[n] >> 31,
                      "%s of NaN %08x: got %04x", formats[t].name, nans[n], got);
        }
        for (unsigned u = infinity + 1; u < 0x8000; u++) {
            float wide = formats[t].widen((uint16_t)u);
            cr_assert(isnan(wide) && (f32_bits(wide) & 0x400000) && formats[t].narrow(wide) == (u | quiet),
                      "%s %04x: widened to %08x", formats[t].name, u, f32_bits(wide));
        }
    }
}
