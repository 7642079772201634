/* test_check.c: the verb check on a stage of planted variants: what it counts, prints and
 * returns; and shares of a ceiling. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "measurement/ceiling.h"
#include "verification/check_variant.h"
#include "program/bench.h"
#include "program/options.h"

/* ---- variants, right and wrong ---- */

extern const struct variant safe_simd; /* of stage 2 */

static void right(const struct problem *p, const struct arrays *a)
{
    variant_call(&safe_simd, p, a);
}

static void spoils_its_input(const struct problem *p, const struct arrays *a)
{
    right(p, a);
    ((float *)(size_t)a->x)[0] += 1;
}

static void never_twice_the_same(const struct problem *p, const struct arrays *a)
{
    static int calls;
    right(p, a);
    uint32_t *y = a->y;
    if (calls++ % 2 && y[0] > 0x00800000u && y[0] < 0x7f800000u) y[0] ^= 1;
}

static void zero(const struct problem *p, const struct arrays *a)
{
    memset(a->y, 0, p->rows * p->cols * sizeof(float));
}

static const char *no_single_column(const struct problem *p)
{
    return p->cols == 1 ? "a single column" : NULL;
}

#define VARIANT(id, function, ...)                                                       \
    static const struct variant id = {.name = #id,                                       \
                                      .types = TYPE(F32),                                \
                                      .masked_rows = 1,                                  \
                                      .max_score = INFINITY,                             \
                                      .does = {{OP_SOFTMAX, function}},                  \
                                      __VA_ARGS__}
VARIANT(good, right);
VARIANT(choosy, right, .refuses = no_single_column);
VARIANT(spoiler, spoils_its_input);
VARIANT(restless, never_twice_the_same);
VARIANT(flat, zero);
VARIANT(elsewhere, right, .device = ON_GPU, .only_arch = 1);
static const struct variant modest = {
    .name = "modest", .types = TYPE(F32), .max_score = 10, .does = {{OP_SOFTMAX, right}}};

/* Runs check on these variants with its output caught in `text`; returns its status. */
static char text[200000];
static int run_check(const struct variant *const *variants, struct options opt)
{
    struct stage stage = {.number = 9, .name = "99_planted", .variants = variants};
    FILE *f = tmpfile();
    fflush(stdout);
    int old = dup(STDOUT_FILENO);
    dup2(fileno(f), STDOUT_FILENO);
    int status = check_stage(&stage, &opt);
    fflush(stdout);
    dup2(old, STDOUT_FILENO);
    close(old);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return status;
}

static const struct options quick = {.quick = 1};

Test(check, every_planted_fault_fails)
{
    const struct variant *const faults[] = {&spoiler, &restless, &flat};
    static const char *const reasons[] = {"an input was overwritten", "a second run gives other bits",
                                          "error above the allowed"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct variant *v[] = {&good, faults[i], NULL};
        cr_expect(run_check(v, quick) == 1, "%s passed", faults[i]->name);
        cr_expect(strstr(text, reasons[i]), "%s: no '%s' in %s", faults[i]->name,
                  reasons[i], text);
        cr_expect(!strstr(text, "FAILED   good"), "%s", text);
    }
}

/* The printed command must show the failure again. */
Test(check, failure_is_printed_with_its_repetition)
{
    const struct variant *v[] = {&flat, NULL};
    run_check(v, quick);
    char name[100], type[10];
    unsigned long long seed;
    const char *line = strstr(text, "build/99_planted check --case ");
    cr_assert(line, "%s", text);
    int n = sscanf(
        line, "build/99_planted check --case %99s --variant flat --dtype %9s --seed %llu",
        name, type, &seed);
    cr_assert(n == 3 && !strcmp(type, "f32"), "%s", line);
    struct options again = {.only_case = name,
                            .has_seed = 1,
                            .seed = seed,
                            .variant = "flat",
                            .has_dtype = 1,
                            .dtype = F32};
    cr_expect(run_check(v, again) == 1);
    cr_expect(strstr(text, "0 checks passed, 1 failed, 0 skipped\n"), "%s", text);
}

Test(check, what_is_not_promised_is_skipped_not_passed)
{
    const struct variant *v[] = {&good, &modest, &choosy, NULL};
    cr_expect(run_check(v, quick) == 0, "%s", text);
    unsigned passed, skipped, all;
    const char *row = strstr(text, "good"), *limited = strstr(text, "modest");
    cr_assert(row && limited);
    cr_assert(sscanf(row, "good softmax f32 %u 0 0", &all) == 1);
    cr_assert(sscanf(limited, "modest softmax f32 %u 0 %u", &passed, &skipped) == 2);
    cr_expect(skipped > 5 && passed > 5 && passed + skipped == all, "%u %u %u", passed,
              skipped, all);
}

Test(check, status_77_when_nothing_could_run)
{
    const struct variant *v[] = {&good, &elsewhere, NULL};
    cr_expect(run_check(v, quick) == 0, "%s", text);
    cr_expect(strstr(text, "1 of 2 variants was not run"), "%s", text);
    struct options only = {.quick = 1, .variant = "elsewhere"};
    cr_expect(run_check(v, only) == 77, "%s", text);
    cr_expect(strstr(text, "0 checks passed, 0 failed, 0 skipped\n"), "%s", text);
    cr_expect(strstr(text, "not run: "), "the reason is missing: %s", text);
    const struct variant *w[] = {&modest, NULL};
    struct options wide = {.only_case = "softmax-large-4x37"};
    cr_expect(run_check(w, wide) == 77, "%s", text);
    cr_expect(strstr(text, "scores up to "), "%s", text);
}

Test(check, bench_ends_with_1_where_a_result_is_wrong)
{
    struct stage stage = {.number = 9, .name = "99_planted"};
    struct problem p = {.op = OP_SOFTMAX, .rows = 3, .cols = 40};
    struct pace pace;
    cr_expect(bench_measure(&stage, &good, p, 0.01, NULL, &pace) == 0);
    cr_expect(bench_measure(&stage, &flat, p, 0.01, NULL, &pace) == 1);
}

/* ---- shares of a ceiling ---- */

Test(ceiling, a_share_above_it_has_its_reason)
{
    cr_expect_str_eq(ceiling_exceeded("copy", 0, 187, 75), "a cache served some of the passes");
    cr_expect_str_eq(ceiling_exceeded("gemm", 1, 108, 108),
                     "faster than the library's matrix product");
    const char *error = "above its ceiling: an error until explained; measure again";
    cr_expect_str_eq(ceiling_exceeded("copy", 0, 892, 892), error); /* no cache does that */
    cr_expect_str_eq(ceiling_exceeded("gemm", 0, 108, 108), error); /* products alone */
    cr_expect_str_eq(ceiling_exceeded("fma", 0, 106, 106), error);
}

/* What a plain store writes is fetched first: 3 GB and the fetch of 1 GB in a second are 40 % of 10 GB/s. */
Test(ceiling, a_copy_counts_what_is_fetched_to_be_written)
{
    struct measurement m = {.variant = "some", .p = {.op = OP_SOFTMAX, .rows = 1, .cols = 1},
                            .ceiling_kind = "copy", .ceiling = 10, .bytes_predicted = 3e9};
    struct timing t = {.median_s = 1, .min_s = 1};
    bench_report(&m, &t, 1e9, "", NULL);
    cr_expect(m.gbps == 3 && m.pct_ceiling == 40, "%g GB/s, %g %%", m.gbps, m.pct_ceiling);
}
