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

Test(cases, names_are_unique_and_fit)
{
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++) {
        cr_expect(strlen(c[i].name) < sizeof c[i].name - 1, "%s is cut off", c[i].name);
        cr_expect(strcspn(c[i].name, " '\"$;&|<>*?") == strlen(c[i].name),
                  "%s needs quoting", c[i].name);
        for (size_t k = i + 1; k < n; k++)
            cr_expect(strcmp(c[i].name, c[k].name) != 0, "%s twice", c[i].name);
    }
}

/* What the harness promises about the suite: every operation, recipe and tile edge
 * occurs. */
Test(cases, suite_is_complete)
{
    size_t n, per_op[N_OPS] = {0}, quick[N_OPS] = {0}, executed = 0,
              recipes[N_RECIPES] = {0};
    const struct test_case *c = test_cases(&n);
    int edge[258] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct problem *p = &c[i].problem;
        per_op[p->op]++;
        quick[p->op] += (size_t)c[i].quick;
        recipes[c[i].recipe]++;
        executed += p->op == OP_ATTENTION && c[i].executed;
        if (p->op == OP_ATTENTION && p->seqlen_k <= 257) edge[p->seqlen_k] |= 1;
        if (p->op == OP_ATTENTION && p->seqlen_q <= 257) edge[p->seqlen_q] |= 2;
        if (c[i].executed && p->op == OP_ATTENTION)
            cr_expect(p->batch * p->heads_q * p->seqlen_q * p->seqlen_k <= 8 * 300 * 300,
                      "%s is too large to execute CUDA kernels on", c[i].name);
    }
    for (int op = 0; op < N_OPS; op++)
        cr_expect(per_op[op] >= 20 && quick[op] >= 10, "%s: %zu, %zu quick", op_name(op),
                  per_op[op], quick[op]);
    for (int r = 0; r < N_RECIPES; r++)
        cr_expect(recipes[r] > 0, "recipe %d is not used", r);
    cr_expect(executed >= 60, "%zu", executed);
    static const int tiles[] = {16, 32, 48, 64, 128, 176, 256};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int d = -1; d <= 1; d++)
            cr_expect(edge[tiles[i] + d] == 3, "%d is missing", tiles[i] + d);
}

static int same(const void *a, const void *b, size_t bytes)
{
    return (!a && !b) || (a && b && !memcmp(a, b, bytes));
}

Test(cases, inputs_repeat_and_follow_the_seed)
{
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i += 11) {
        if (c[i].only_gpu) continue;
        struct inputs *a = inputs_new(&c[i], F32, 5), *b = inputs_new(&c[i], F32, 5);
        for (int k = 0; k < N_ARRAYS; k++)
            if (array_role(&a->problem, k) == INPUT)
                cr_expect(same(array_start(&a->problem, &a->arrays, k),
                               array_start(&b->problem, &b->arrays, k),
                               array_bytes(&a->problem, k)), "%s: %s", c[i].name,
                          array_list[k].name);
        inputs_free(a);
        inputs_free(b);
    }
    struct inputs *a = inputs_new(find("softmax-random-3x64"), F32, 1);
    struct inputs *b = inputs_new(find("softmax-random-3x64"), F32, 2);
    cr_expect(!same(a->arrays.x, b->arrays.x, 3 * 64 * 4), "two seeds, one input");
    inputs_free(a);
    inputs_free(b);
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

Test(cases, half_inputs_are_numbers_of_their_type)
{
    static const char *const names[] = {
        "attention-low-21x70-d64", "attention-large-21x70-d64",
        "attention-zero_q-21x70-d64", "attention-tiny-21x70-d64",
        "attention-markers-49x300-d128"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct inputs *in = inputs_new(find(names[i]), F16, 1);
        int finite = 1;
        for (int k = ARRAY_Q; k <= ARRAY_V; k++)
            for (size_t j = 0; j < array_count(&in->problem, k); j++)
                finite &= isfinite(dtypes[F16].load(array_of(&in->arrays, k), j)) != 0;
        cr_expect(finite, "%s overflows in f16", names[i]);
        inputs_free(in);
    }
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
