/* Shares of a ceiling: how they are counted, and the reason of one that cannot be. */
#include <criterion/criterion.h>
#include <math.h>

#include "measurement/ceiling.h"
#include "program/bench.h"

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
