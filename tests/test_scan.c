/* Prefix scan (04_monoid_tiled_cpu/variants/scan.c): every prefix is right, the work is O(n) and
 * the depth O(log n), both counted. */
#include <criterion/criterion.h>
#include <stdlib.h>

/* The file itself, for its static functions; its variants are linked already. */
#define scan_serial scan_serial_here
#define scan_work_efficient scan_work_efficient_here
#include "../04_monoid_tiled_cpu/variants/scan.c"
#include "attention_problem.h"

/* n elements that know their own place: element j adds 2^j, so that any missing, doubled
 * or misplaced operand shows.  All scores are equal: the sums are exact. */
static struct aggregate *marked(size_t n, float *o)
{
    struct aggregate *x = malloc((n + 1) * sizeof *x);
    for (size_t j = 0; j < n; j++) {
        float v = ldexpf(1.0f, (int)(j % 20));
        x[j] = (struct aggregate){.o = o + j, .d = 1};
        aggregate_lift(&x[j], 0.0f, &v);
    }
    return x;
}

static size_t floor_log2(size_t n)
{
    size_t log = 0;
    while (n >>= 1) log++;
    return log;
}

/* By hand: the up sweep makes n - 1 merges and the down sweep n - 1 - log2 n when n is a
 * power of two; there are log2 n rounds up and log2 n - 1 down. */
Test(scan, merges_are_linear_and_rounds_logarithmic)
{
    float o[4096];
    for (size_t n = 1; n <= 4096; n += n < 300 ? 1 : 379) {
        size_t merges = 999, rounds = 999, log = floor_log2(n);
        struct aggregate *x = marked(n, o);
        prefix_scan(x, n, &merges, &rounds);
        cr_assert(merges <= 2 * n, "n = %zu: %zu merges", n, merges);
        cr_assert(rounds <= 2 * log + 1, "n = %zu: %zu rounds", n, rounds);
        if ((n & (n - 1)) == 0) {
            cr_assert(merges == 2 * n - 2 - log, "n = %zu: %zu merges", n, merges);
            cr_assert(rounds == (log ? 2 * log : 0), "n = %zu: %zu rounds", n, rounds);
        }
        free(x);
    }
}

Test(scan, each_prefix_holds_its_elements_once)
{
    float o[64];
    for (size_t n = 0; n <= 20; n++) {
        struct aggregate *x = marked(n, o);
        prefix_scan(x, n, NULL, NULL);
        for (size_t j = 0; j < n; j++)
            cr_assert(x[j].l == (float)(j + 1) && o[j] == ldexpf(1.0f, (int)j + 1) - 1.0f,
                      "n = %zu, prefix %zu: l = %g, o = %g", n, j, x[j].l, o[j]);
        free(x);
    }
}

Test(scan, merges_are_reported)
{
    struct inputs *in = inputs_of(problem_of(OP_SCAN, (struct shape){1, 3, 1, 1, 64, 4, 4}, 0, 0),
                                  RANDOM, F32);
    size_t merges = 0;
    in->arrays.merges = &merges;
    judge(&scan_work_efficient, in);
    cr_assert(merges == 3 * (2 * 64 - 2 - 6), "%zu merges", merges);
    judge(&scan_serial, in);
    cr_assert(merges == 3 * 64, "%zu merges", merges);
    inputs_free(in);
}
