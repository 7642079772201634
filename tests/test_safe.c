/* Stage 2: what subtracting the maximum guarantees. */
#include <criterion/criterion.h>
#include <string.h>

#include "problem/random.h"

#define main unused_main_of_stage_2
#define stage safe_stage
#include "../02_safe_softmax/variants.c"
#undef main
#undef stage

/* The last value of a variable that softmax_row watches. */
static const char *watched;
static double last_seen;

static void see(const char *name, size_t j, double number, const float *row, size_t n)
{
    (void)j, (void)row, (void)n;
    if (!strcmp(name, watched)) last_seen = number;
}

static void run_softmax(const struct variant *v, const float *x, float *y, size_t n)
{
    struct problem p = {.op = OP_SOFTMAX, .rows = 1, .cols = n};
    struct arrays a = {.x = x, .y = y};
    variant_call(v, &p, &a);
}

/* In real arithmetic every term lies in (0, 1]; in float it may underflow to 0.  The term
 * of the maximum is exp(0) = 1 exactly, so the sum is at least 1 and at most n. */
Test(safe, terms_lie_in_0_1_and_their_sum_between_1_and_n)
{
    enum { N = 1000 };
    static const float spreads[] = {0, 1, 30, 200, 1e4f, 1e30f};
    struct random r = {1};
    for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++) {
        float x[N], y[N];
        for (int j = 0; j < N; j++) x[j] = spreads[s] * random_normal(&r);
        watched = "l", watcher = see;
        softmax_row(x, y, N);
        watcher = NULL;
        double l = last_seen;
        cr_assert(l >= 1 && l <= N, "spread %g: sum %g", spreads[s], l);
        for (int j = 0; j < N; j++) /* y_j = term / l */
            cr_assert(y[j] >= 0 && y[j] <= (float)(1 / l), "spread %g, element %d: %g", spreads[s],
                      j, y[j]);
    }
}

Test(safe, recompute_and_reload_agree_bit_for_bit)
{
    float x[257], y[257], z[257];
    struct random r = {2};
    for (int j = 0; j < 257; j++) x[j] = 20 * random_normal(&r);
    run_softmax(&recompute, x, y, 257);
    run_softmax(&reload, x, z, 257);
    cr_assert(!memcmp(y, z, sizeof y));
}

Test(safe, any_shift_cancels)
{
    /* multiples of 1/8 shifted by 2^10 stay exact in float */
    float x[64], shifted[64], y[64], z[64];
    struct random r = {3};
    for (int j = 0; j < 64; j++) {
        x[j] = (float)random_below(&r, 100) / 8;
        shifted[j] = x[j] + 1024;
    }
    run_softmax(&recompute, x, y, 64);
    run_softmax(&recompute, shifted, z, 64);
    cr_assert(!memcmp(y, z, sizeof y));
}
