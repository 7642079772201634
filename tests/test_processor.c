/* A program refuses a processor that lacks its instructions; tests/test_cli.py runs one that does. */
#include <criterion/criterion.h>

#include "program/processor.h"

#if defined __x86_64__
Test(processor, the_first_missing_instruction_is_named)
{
    const char *none[] = {"__SSE4_2__", "__POPCNT__", NULL};
    const char *needs[] = {"0", "0", "0", "1", "0", "0", "1", NULL}; /* avx2 and avx512f */
    cr_expect(processor_lacks(none, 0) == NULL);
    cr_expect(processor_lacks(needs, 1 << 3 | 1 << 6) == NULL);
    cr_expect_str_eq(processor_lacks(needs, 1 << 3), "avx512f");
    cr_expect_str_eq(processor_lacks(needs, 1 << 6), "avx2");
}
#endif

Test(processor, this_one_has_what_this_program_needs)
{
    cr_expect(processor_lacks(built_for, processor_has()) == NULL);
}
