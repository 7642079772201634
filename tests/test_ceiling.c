/* A share of the ceiling that cannot be one is called so. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "measurement/ceiling.h"

Test(ceiling, a_share_within_the_ceiling_is_not_marked)
{
    cr_expect(ceiling_exceeded(99, 99) == NULL);
    cr_expect(ceiling_exceeded(104.9, 20) == NULL);
    cr_expect(ceiling_exceeded(105, 105) == NULL);
    cr_expect(ceiling_exceeded(NAN, NAN) == NULL); /* no ceiling was measured */
}

Test(ceiling, a_share_above_it_is_marked_with_the_reason_where_one_is_known)
{
    const char *why = ceiling_exceeded(187, 75);
    cr_assert(why && strstr(why, "ceiling wrong or model wrong"));
    cr_expect(strstr(why, "a cache served a pass"));
    why = ceiling_exceeded(892, 892);
    cr_assert(why && strstr(why, "ceiling wrong or model wrong"));
    cr_expect(!strstr(why, "cache"), "arrays moved once exceed the ceiling: no cache does that");
}

/* 7 % below a whole number means that something else took part of the core. */
Test(ceiling, units_are_whole_numbers_of_vectors_per_cycle)
{
    cr_expect(ceiling_units_are_whole(1.0) && ceiling_units_are_whole(2.04));
    cr_expect(ceiling_units_are_whole(3.8) && ceiling_units_are_whole(0.95));
    cr_expect(!ceiling_units_are_whole(0.125) && !ceiling_units_are_whole(1.5));
    cr_expect(!ceiling_units_are_whole(1.86) && !ceiling_units_are_whole(0));
}
