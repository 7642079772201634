/* A program refuses a processor that lacks its instructions; tests/test_cli.py runs one that does. */
#include <criterion/criterion.h>

#include "program/processor.h"

#if defined __x86_64__
Test(processor, the_first_missing_instruction_is_named)
{
    cr_expect(processor_lacks(0, 0) == NULL);
    cr_expect(processor_lacks(1 << 3, 1 << 3) == NULL);
    cr_expect_str_eq(processor_lacks(1 << 3 | 1 << 6, 1 << 3), "avx512f");
    cr_expect_str_eq(processor_lacks(1 << 3 | 1 << 6, 1 << 6), "avx2");
}
#endif

Test(processor, this_one_has_what_this_program_needs)
{
    cr_expect(processor_lacks(built_for, processor_has()) == NULL);
}
