/* The vector exponentials against double: their error and their edges.  `make test` samples the
 * floats of the range, `make test-long`, which sets LONG, takes every one of them. */
#include <criterion/criterion.h>
#include <float.h>
#include <stdlib.h>

#include "problem/half.h"
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

/* What a scan over the range found: the worst error, and the element that broke a rule. */
struct finding {
    double worst;
    float at, largest, broken;
    const char *rule;
};

typedef vfloat vector_function(vfloat x);

/* Looks at LANES floats from bits `from` on, each `by` after the last.
 *   sign  multiplies them     least  below it the result must be 0
 *   most  above it INFINITY */
static void look(struct finding *f, vector_function *vector, double (*exact)(double),
                 uint32_t from, uint32_t by, float sign, float least, float most)
{
    float x[LANES], y[LANES];
    for (uint32_t i = 0; i < LANES; i++) x[i] = sign * f32_from_bits(from + i * by);
    vstore(y, vector(vload(x)));
    for (int i = 0; i < LANES; i++) {
        if (x[i] < least || x[i] > most) {
            if (y[i] == (x[i] < least ? 0 : INFINITY)) continue;
            f->rule = "neither 0 below the range nor infinite above it";
            f->broken = x[i];
            continue;
        }
        double error = error_in_ulp(y[i], exact(x[i]));
        if (!(error <= f->worst)) {
            f->worst = error;
            f->at = x[i];
        }
        if (!(y[i] <= f->largest)) f->largest = y[i];
    }
}

/* All of the range in steps. */
static struct finding scan(vector_function *vector, double (*exact)(double), float sign,
                           float least, float most)
{
    struct finding f = {0};
    uint32_t by = getenv("LONG") ? 1 : 997;
    for (uint64_t from = FIRST; from <= LAST; from += (uint64_t)by * LANES)
        look(&f, vector, exact, (uint32_t)from, by, sign, least, most);
    return f;
}

static vfloat exp_vector(vfloat x) { return vexp(x); }
static vfloat exp_up_vector(vfloat x) { return vexp_up(x); }
static vfloat exp2_vector(vfloat x) { return vexp2(x); }

static void expect(struct finding f, double ulp, float largest, const char *name)
{
    cr_log_info("%s: worst error %.4f ulp at %a", name, f.worst, f.at);
    cr_expect(f.worst <= ulp, "%s(%a): error %.4f ulp, promised %.2f", name, f.at, f.worst, ulp);
    cr_expect(f.largest <= largest, "%s reaches %.9g", name, f.largest);
    cr_expect(!f.rule, "%s(%a): %s", name, f.broken, f.rule);
}

Test(vexp, exp_is_within_its_error_and_at_most_1_long)
{
    expect(scan(exp_vector, exp, 1, VEXP_LEAST, 0), EXP_ULP, 1, "vexp");
}

Test(vexp, exp2_is_within_its_error_and_at_most_1_long)
{
    expect(scan(exp2_vector, exp2, 1, -126, 0), EXP2_ULP, 1, "vexp2");
}

Test(vexp, exp_up_is_within_its_error_on_both_sides_long)
{
    expect(scan(exp_up_vector, exp, 1, VEXP_LEAST, VEXP_MOST), EXP_ULP, 1, "vexp_up");
    expect(scan(exp_up_vector, exp, -1, VEXP_LEAST, VEXP_MOST), EXP_ULP, FLT_MAX,
           "vexp_up");
}

/* NaN of any payload: its bits are shifted into an exponent on the way. */
Test(vexp, nan_stays_nan)
{
    static const uint32_t bits[] = {0x7fc00000, 0xffc00000, 0x7fc0dead, 0x7fffffff, 0x7f800001,
                                    0xffc000ff, 0x7fc001ff};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        float x = f32_from_bits(bits[i]);
        cr_expect(isnan(vexp(vset(x))[0]), "vexp of NaN %08x", bits[i]);
        cr_expect(isnan(vexp_up(vset(x))[0]), "vexp_up of NaN %08x", bits[i]);
        cr_expect(isnan(vexp2(vset(x))[0]), "vexp2 of NaN %08x", bits[i]);
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
        cr_expect(vexp_up(vset(x))[0] == cases[i].exp, "vexp_up(%g)", x);
        cr_expect(vexp2(vset(x))[0] == cases[i].exp2, "vexp2(%g)", x);
    }
    for (int n = 0; n <= 126; n++)
        cr_expect(vexp2(vset((float)-n))[0] == ldexpf(1, -n), "vexp2(%d)", -n);
    cr_expect(vexp_up(vset(VEXP_MOST))[0] < INFINITY);
    cr_expect(vexp_up(vset(nextafterf(VEXP_MOST, 100)))[0] == INFINITY);
    cr_expect(vexp_up(vset(INFINITY))[0] == INFINITY);
}

/* Eight at once: the same bits as one at a time, but for what is below 2^-126. */
Test(vexp, lockstep_gives_the_same_bits)
{
    static const uint32_t edges[] = {0xff800000, 0x7fc0dead, 0x80000000, 0, 0xc2fd0000,
                                     0xc2fcffff, 0xc2fc0000, 0xff7fffff};
    size_t wrong = 0, tried = 0;
    float at = 0;
    for (uint64_t from = FIRST; from <= LAST; from += 8 * LANES * 997) {
        float x[8 * LANES], y[8 * LANES];
        vfloat v[8];
        for (uint32_t i = 0; i < 8 * LANES; i++)
            x[i] = f32_from_bits(from == FIRST ? edges[i % 8] : (uint32_t)from + i * 997);
        for (int u = 0; u < 8; u++) v[u] = vload(x + u * LANES);
        vexp2_lockstep(8, v);
        for (int u = 0; u < 8; u++) vstore(y + u * LANES, v[u]);
        for (int i = 0; i < 8 * LANES; i++, tried++) {
            int same = f32_bits(y[i]) == f32_bits(sexp2(x[i]));
            int low = x[i] < -126 && y[i] >= 0 && y[i] < 0x1p-126f && (x[i] > -126.6f || y[i] == 0);
            if (same || low || (isnan(x[i]) && isnan(y[i]))) continue;
            at = x[i];
            wrong++;
        }
    }
    cr_expect(wrong == 0 && tried > 100000, "%zu of %zu, e.g. %a", wrong, tried, at);
}

/* Lengths on both sides of every unrolling; m below, at and above the largest score. */
Test(vexp, sum_in_one_look_is_the_sum_of_the_terms)
{
    static const size_t lengths[] = {1, 15, 16, 17, 127, 128, 129, 1000};
    static const float m[] = {-INFINITY, 1, 2.5f, 3, 9};
    float x[1000];
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (size_t k = 0; k < sizeof m / sizeof m[0]; k++) {
            size_t n = lengths[i];
            double want = 0;
            for (size_t j = 0; j < n; j++) x[j] = 2 - (float)((j * 7 + 5) % 11);
            x[n / 2] = -INFINITY;
            x[n / 3] = 3;
            for (size_t j = 0; j < n; j++)
                want += exp((double)x[j] - (m[k] == -INFINITY ? 0 : m[k]));
            struct block_sum got = vexp_sum(x, n, m[k]);
            double sum = vsum(got.sum);
            cr_expect(got.top == 3, "n %zu, m %g: the largest is %g", n, m[k], got.top);
            cr_expect(fabs(sum - want) <= 1e-6 * want, "n %zu, m %g: sum %.9g, want %.9g", n,
                      m[k], sum, want);
            x[n / 2] = NAN;
            cr_expect(isnan(vsum(vexp_sum(x, n, m[k]).sum)), "n %zu, m %g: NaN lost", n, m[k]);
        }
}

/* Nothing linked into the program may have set flush-to-zero, as -ffast-math does. */
Test(vexp, denormal_floats_are_kept)
{
    volatile float least = FLT_MIN;
    cr_expect(least / 2 != 0);
    cr_expect(least / 2 * 2 == FLT_MIN);
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
