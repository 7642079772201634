/* test_cases.c: the suite is what it says: stable names, repeatable inputs, recipes that
 * do what they are for. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include "verification/cases.h"
#include "verification/check_variant.h"
#include "vector/half.h"
#include "problem/random.h"
#include "problem/variant.h"

static const struct test_case *find(const char *name)
{
    const struct test_case *c = test_case_find(name);
    cr_assert(c, "no case %s", name);
    return c;
}

/* The first numbers of the generator, so that a printed seed means the same everywhere:
 * splitmix64 from 0 and 1 as published. */
Test(cases, generator_is_splitmix64)
{
    struct random r = {0};
    cr_expect(random_bits(&r) == 0xe220a8397b1dcdafu);
    cr_expect(random_bits(&r) == 0x6e789e6aa1b965f4u);
    cr_expect(random_bits(&r) == 0x06c45d188009454fu);
    r.state = 0; /* the sum of the twelve 16-bit parts of these three is 397544 */
    cr_expect(random_normal(&r) == (397544 - 12 * 32767.5f) / 65536);
    cr_expect(random_seed("") == 0xcbf29ce484222325u);
    cr_expect(random_seed("a") == 0xaf63dc4c8601ec8cu);
}

/* ---- what a variant promises ---- */

static const char *promise(const char *name, struct variant v)
{
    struct prepared p = prepare(find(name), F32, 1);
    const char *why = not_promised(&v, &p);
    prepared_free(&p);
    return why;
}

Test(cases, promises_decide_what_is_skipped)
{
    struct variant all = {.max_score = INFINITY, .masked_rows = 1, .isolates_v = 1};
    struct variant limited = all, no_rows = all, leaks = all;
    limited.max_score = 80;
    no_rows.masked_rows = 0;
    leaks.isolates_v = 0;
    static const char *const wide = "attention-wide-21x70-d64";
    static const char *const row = "attention-mask_row@3-18x70-d64-bias";
    static const char *const nan = "attention-nan_v@37-20x70-d64-bias";
    static const char *const plain = "attention-random-37x67-d40";
    cr_expect(!promise(wide, all) && !promise(row, all) && !promise(nan, all));
    cr_expect(!promise(plain, limited) && !promise(plain, no_rows) &&
              !promise(plain, leaks));
    cr_expect_str_eq(promise(row, no_rows), "a fully masked row");
    cr_expect_str_eq(promise(nan, leaks), "NaN or inf in v");
    const char *why = promise(wide, limited);
    cr_expect(why && !strncmp(why, "scores up to ", 13));
    cr_expect(!promise(row, limited), "a masked score has no size");
}

/* The sums have a closed form; here they are added up. */
Test(cases, keys_of_tiles_are_the_sum_over_the_tiles)
{
    struct random r = {7};
    for (int i = 0; i < 2000; i++) {
        struct problem p = {.op = OP_ATTENTION, .seqlen_q = 1 + random_below(&r, 40),
                            .seqlen_k = 1 + random_below(&r, 40), .causal = random_below(&r, 2),
                            .has_window = random_below(&r, 2)};
        p.window_left = (ptrdiff_t)random_below(&r, 30) - 1;
        p.window_right = (ptrdiff_t)random_below(&r, 30) - 1;
        size_t br = 1 + random_below(&r, 9);
        double pairs, keys = keys_of_tiles(&p, br, &pairs);
        for (size_t t = 0; t < p.seqlen_q; t += br) {
            size_t end = t + br < p.seqlen_q ? t + br : p.seqlen_q;
            struct key_range seen = some_row_sees(problem_mask(&p), t, end);
            keys -= (double)(seen.end - seen.first);
            pairs -= (double)(seen.end - seen.first) * (double)(end - t);
        }
        cr_assert(keys == 0 && pairs == 0, "problem %d: %g keys and %g pairs too many", i, keys,
                  pairs);
    }
}
