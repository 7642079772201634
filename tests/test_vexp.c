/* The vector exponentials against double: their error and their edges.  `make test` samples the
 * floats of the range, `make test-long`, which sets LONG, takes every one of them. */
#include <criterion/criterion.h>
#include <float.h>
#include <stdlib.h>

#include "vector/half.h"
#include "vector/vexp.h"

/* Bit patterns of the floats from -0 down to -104, whose exponential is below every float. */
#define FIRST 0x80000000u
#define LAST 0xc2d00000u

/* Promised errors in ulp (vexp.h). */
#define EXP_ULP 1.02
#define EXP2_ULP (HAS_FMA ? 0.96 : 1.25)

/* |got - want| in units of the last place that a float near want has. */
static double error_in_ulp(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1, exponent - 24);
}

/* The last of eight in lockstep. */
static vfloat lockstep_vector(vfloat x)
{
    vfloat all[8] = {x, x, x, x, x, x, x, x};
    vexp2_lockstep(8, all);
    return all[7];
}

/* An exponential on `sign` times the range: no normal float below `least`, infinite above `most`,
 * between them within `ulp` and no larger than `largest`. */
struct promise {
    const char *name;
    vfloat (*vector)(vfloat x);
    double (*exact)(double);
    float sign, least, most, largest;
    double ulp;
};

/* The error of y at x; infinite where a rule is broken. */
static double error_of(const struct promise *p, float x, float y)
{
    if (x < p->least) return y >= 0 && y < FLT_MIN ? 0 : INFINITY;
    if (x > p->most) return y == INFINITY ? 0 : INFINITY;
    return y <= p->largest ? error_in_ulp(y, p->exact(x)) : INFINITY;
}

Test(vexp, every_form_keeps_its_promise_long)
{
    static const struct promise of[] = {
        {"vexp", vexp, exp, 1, VEXP_LEAST, 0, 1, EXP_ULP},
        {"vexp2", vexp2, exp2, 1, -126, 0, 1, EXP2_ULP},
        {"vexp2_lockstep", lockstep_vector, exp2, 1, -126, 0, 1, EXP2_ULP},
        {"vexp", vexp, exp, -1, VEXP_LEAST, VEXP_MOST, FLT_MAX, EXP_ULP}};
    uint32_t by = getenv("LONG") ? 1 : 997;
    for (size_t f = 0; f < sizeof of / sizeof *of; f++) {
        double worst = 0;
        float at = 0;
        for (uint64_t from = FIRST; from <= LAST; from += (uint64_t)by * LANES) {
            float x[LANES], y[LANES];
            for (uint32_t i = 0; i < LANES; i++)
                x[i] = of[f].sign * f32_from_bits((uint32_t)from + i * by);
            vstore(y, of[f].vector(vload(x)));
            for (int i = 0; i < LANES; i++)
                if (error_of(&of[f], x[i], y[i]) > worst)
                    worst = error_of(&of[f], x[i], y[i]), at = x[i];
        }
        cr_log_info("%s: worst error %.4f ulp at %a", of[f].name, worst, at);
        cr_expect(worst <= of[f].ulp, "%s(%a): error %.4f ulp, promised %.2f", of[f].name, at, worst,
                  of[f].ulp);
    }
}

/* NaN of any payload: its bits are shifted into an exponent on the way. */
Test(vexp, nan_stays_nan)
{
    static const uint32_t bits[] = {0x7fc00000, 0xffc00000, 0x7fc0dead, 0x7fffffff, 0x7f800001,
                                    0xffc000ff, 0x7fc001ff};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        float x = f32_from_bits(bits[i]);
        cr_expect(isnan(vexp(vset(x))[0]), "vexp of NaN %08x", bits[i]);
        cr_expect(isnan(vexp2(vset(x))[0]), "vexp2 of NaN %08x", bits[i]);
        cr_expect(isnan(lockstep_vector(vset(x))[0]), "vexp2_lockstep of NaN %08x", bits[i]);
    }
}

Test(vexp, ends_of_the_range_are_exact)
{
    static const struct { float x, exp, exp2; } cases[] = {
        {0.0f, 1, 1}, {-0.0f, 1, 1}, {-INFINITY, 0, 0}, {-FLT_MAX, 0, 0}, {-FLT_MIN / 2, 1, 1},
        {-1e30f, 0, 0}, {-128, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float x = cases[i].x;
        cr_expect(vexp(vset(x))[0] == cases[i].exp, "vexp(%g)", x);
        cr_expect(vexp2(vset(x))[0] == cases[i].exp2, "vexp2(%g)", x);
    }
    for (int n = 0; n <= 126; n++)
        cr_expect(vexp2(vset((float)-n))[0] == ldexpf(1, -n), "vexp2(%d)", -n);
    cr_expect(vexp(vset(VEXP_MOST))[0] < INFINITY);
    cr_expect(vexp(vset(nextafterf(VEXP_MOST, 100)))[0] == INFINITY);
    cr_expect(vexp(vset(INFINITY))[0] == INFINITY);
}

/* Within 4 ulp on both sides of its two formulas, odd, and never beyond 1. */
Test(vexp, tanh_is_within_its_error_and_below_1)
{
    double worst = 0;
    for (uint32_t bits = 0x30000000u; bits < 0x42000000u; bits += 997) {
        float x = f32_from_bits(bits), up = vtanh(vset(x))[0], down = vtanh(vset(-x))[0];
        double err = error_in_ulp(up, tanh((double)x));
        cr_assert(up <= 1 && down == -up, "tanh(%g) is %g, of its negative %g", (double)x,
                  (double)up, (double)down);
        worst = err > worst ? err : worst;
    }
    cr_expect(worst < 4, "%g ulp", worst);
    cr_expect(vtanh(vset(INFINITY))[0] == 1 && vtanh(vset(-INFINITY))[0] == -1);
    cr_expect(vtanh(vset(0))[0] == 0 && isnan(vtanh(vset(NAN))[0]));
}
