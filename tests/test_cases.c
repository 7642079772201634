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
