/* test_types.c: the types of numbers against their formats, at every value and rounding boundary.
 *
 * Between two neighbours rounding is a step function with one step, at their midpoint; so the
 * midpoint and the floats on both sides of it, for every pair of neighbours, and a sample between
 * them, decide the conversion of all 2^32 floats. */
#include <criterion/criterion.h>
#include <math.h>

#include "problem/convert.h"
#include "problem/dtype.h"
#include "vector/half.h"

/* A format, by definition: 1 sign bit, exponent bits, fraction bits; the code of its largest number, and
 * that of what is larger: infinity, or in 8 bits the largest number. */
static const struct format {
    enum dtype dtype;
    const char *name;
    size_t size;
    int e, f;
    unsigned last, beyond;
} formats[] = {
    {F32, "f32", 4, 8, 23, 0x7f7fffff, 0x7f800000},
    {F16, "f16", 2, 5, 10, 0x7bff, 0x7c00},
    {BF16, "bf16", 2, 8, 7, 0x7f7f, 0x7f80},
    {E4M3, "e4m3", 1, 4, 3, 0x7e, 0x7e},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };
#define EACH_SMALL_FORMAT(t) const struct format *t = formats + 1; t < formats + N_FORMATS; t++

/* The value of the non-negative code u; behind the last it is the next power of two, or the next step. */
static double value(const struct format *t, unsigned u)
{
    int one = 1 << t->f, exponent = (int)u / one, fraction = (int)u % one, bias = (1 << (t->e - 1)) - 1;
    if (exponent == 0) return ldexp(fraction, 1 - bias - t->f);
    return ldexp(one + fraction, exponent - bias - t->f);
}

static unsigned sign_of(const struct format *t) { return 1u << (t->e + t->f); }

/* The number with these bits, and the bits of x. */
static float widened(const struct format *t, unsigned bits)
{
    uint32_t array = 0;
    dtype_set_bits(t->dtype, &array, 0, bits);
    return dtypes[t->dtype].load(&array, 0);
}

static unsigned narrowed(const struct format *t, float x)
{
    uint32_t array = 0;
    dtypes[t->dtype].store(&array, 0, x);
    return dtype_bits(t->dtype, &array, 0);
}

/* Its entry of the table.  1 + ulp is held, in element 1 of an array; the value between it and 1 is not. */
Test(contract, each_type_is_what_its_format_says)
{
    cr_assert((int)N_FORMATS == (int)INT8 && N_DTYPES == INT8 + 1 && dtypes[INT8].largest == 127);
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *of = &formats[i];
        const struct dtype_entry *t = &dtypes[of->dtype];
        enum dtype found = N_DTYPES;
        uint32_t bits[2] = {0};
        double ulp = ldexp(1, -of->f), least = value(of, 1);
        cr_expect_str_eq(t->name, of->name);
        cr_expect(dtype_find(of->name, &found) && found == of->dtype);
        cr_expect(t->size == of->size && dtype_size(of->dtype) == of->size);
        cr_expect(t->largest == value(of, of->last), "%s", of->name);
        if (of->dtype != F32) cr_expect(t->roundoff == ulp / 2 && t->least_step == least / 2, "%s", of->name);
        t->store(bits, 1, (float)(1 + ulp));
        cr_expect(t->load(bits, 1) == (float)(1 + ulp), "%s", of->name);
        cr_expect(dtype_bits(of->dtype, bits, 1) == (((1u << (of->e - 1)) - 1) << of->f) + 1, "%s", of->name);
        cr_expect(dtype_round(of->dtype, (float)(1 + ulp / 4)) == 1 || of->f == 23);
        float denormal = dtype_round(of->dtype, t->denormal);
        cr_expect(denormal > 0 && denormal < ldexp(least, of->f), "%s", of->name);
    }
}

Test(types, widening_is_exact_for_every_value)
{
    for (EACH_SMALL_FORMAT(t)) {
        for (unsigned u = 0; u <= t->last; u++) {
            float x = widened(t, u), y = widened(t, u | sign_of(t));
            cr_assert((double)x == value(t, u) && !signbit(x) && y == -x && signbit(y), "%s %04x: got %a and %a",
                      t->name, u, (double)x, (double)y);
        }
        if (t->beyond > t->last) cr_assert(widened(t, t->beyond) == INFINITY);
    }
}

/* x and -x. */
static void check_narrow(const struct format *t, double x, unsigned want)
{
    unsigned got = narrowed(t, (float)x), negative = narrowed(t, (float)-x);
    cr_assert((double)(float)x == x, "the test's %a is no float", x);
    cr_assert(got == want && negative == (want | sign_of(t)), "%s of %a: got %04x, of its negative %04x, "
              "want %04x", t->name, x, got, negative, want);
}

Test(types, narrowing_rounds_to_nearest_even_at_every_boundary)
{
    for (EACH_SMALL_FORMAT(t)) {
        for (unsigned u = 0; u <= t->last; u++) {
            unsigned next = u < t->last ? u + 1 : t->beyond;
            double low = value(t, u), middle = (low + value(t, u + 1)) / 2;
            float above = nextafterf((float)middle, INFINITY);
            check_narrow(t, low, u);
            check_narrow(t, (double)(float)((low + middle) / 2), u);
            check_narrow(t, (double)nextafterf((float)middle, 0), u);
            check_narrow(t, middle, u % 2 ? next : u);
            if (isfinite(above)) check_narrow(t, (double)above, next);
        }
        for (int e = -149; e < 128; e++) {
            if (ldexp(1, e) < value(t, 1) / 2) check_narrow(t, ldexp(1, e), 0);
            if (ldexp(1, e) > value(t, t->last + 1)) check_narrow(t, ldexp(1, e), t->beyond);
        }
        check_narrow(t, 3.4028234663852886e38, t->beyond);
        check_narrow(t, INFINITY, t->beyond);
    }
}

Test(types, nan_stays_quiet_and_keeps_its_sign)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0x7f801fff, 0x7f80ffff,
                                    0x7fc0dead, 0xff800001, 0xffc00000, 0xff801fff};
    for (EACH_SMALL_FORMAT(t)) {
        unsigned sign = sign_of(t), quiet = 1u << (t->f - 1);
        for (size_t n = 0; n < sizeof nans / sizeof *nans; n++) {
            unsigned got = narrowed(t, f32_from_bits(nans[n]));
            cr_assert((got & (sign - 1)) > t->beyond && (got & quiet) && !(got & sign) == !(nans[n] >> 31),
                      "%s of NaN %08x: got %04x", t->name, nans[n], got);
        }
        for (unsigned u = t->beyond + 1; u < sign; u++) {
            float wide = widened(t, u);
            cr_assert(isnan(wide) && (f32_bits(wide) & 0x400000) && narrowed(t, wide) == (u | quiet),
                      "%s %04x: widened to %08x", t->name, u, f32_bits(wide));
        }
    }
}

/* Vectors, and what is left of a row, against one number at a time. */
Test(types, a_row_is_converted_as_its_numbers_are)
{
    enum { N = 0x10000 - 3 };
    static const uint32_t lower[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
    static float x[N], back[N];
    static uint16_t y[N], one;
    for (enum dtype type = F16; type <= BF16; type++)
        for (size_t n = 0; n < sizeof lower / sizeof *lower; n++) {
            for (uint32_t u = 0; u < N; u++) x[u] = f32_from_bits(u << 16 | lower[n]);
            narrow_row(type, x, 1, N, y);
            widen_row(type, y, N, back);
            for (size_t u = 0; u < N; u++) {
                store_number(type, &one, 0, x[u]);
                float want = load_number(type, &one, 0);
                cr_assert(y[u] == one && (isnan(want) ? isnan(back[u]) : back[u] == want),
                          "%a: got %04x = %a, want %04x", (double)x[u], y[u], (double)back[u], one);
            }
        }
}
