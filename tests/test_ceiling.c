/* Shares of a ceiling: how they are counted, and the reason of one that cannot be. */
#include <criterion/criterion.h>
#include <math.h>

#include "measurement/ceiling.h"
#include "program/bench.h"

Test(ceiling, a_share_within_the_ceiling_is_not_marked)
{
    cr_expect(ceiling_exceeded("copy", 0, 99, 99) == NULL);
    cr_expect(ceiling_exceeded("copy", 0, 104.9, 20) == NULL);
    cr_expect(ceiling_exceeded("gemm", 1, 105, 105) == NULL);
    cr_expect(ceiling_exceeded("fma", 0, NAN, NAN) == NULL); /* no ceiling was measured */
}

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

/* 7 % below a whole number means that something else took part of the core. */
Test(ceiling, units_are_whole_numbers_of_vectors_per_cycle)
{
    cr_expect(ceiling_units_are_whole(1.0) && ceiling_units_are_whole(2.04));
    cr_expect(ceiling_units_are_whole(3.8) && ceiling_units_are_whole(0.95));
    cr_expect(!ceiling_units_are_whole(0.125) && !ceiling_units_are_whole(1.5));
    cr_expect(!ceiling_units_are_whole(1.86) && !ceiling_units_are_whole(0));
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
