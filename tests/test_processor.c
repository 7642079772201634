/* A program refuses a processor that lacks its instructions. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

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

/* A processor of 2008, in emulation: no AVX. */
Test(processor, a_program_says_in_one_line_what_is_missing)
{
    char line[400] = "", command[400];
    const char *build = getenv("BUILD");
    if (system("qemu-x86_64 --version >/dev/null 2>&1")) cr_skip("no qemu-x86_64");
    if (!processor_lacks(built_for, 3)) cr_skip("built for a processor of 2008");
    snprintf(command, sizeof command,
             "qemu-x86_64 -cpu Nehalem %s/04_monoid_tiled_cpu list 2>&1", build ? build : "build");
    FILE *f = popen(command, "r");
    cr_assert(f && fgets(line, sizeof line, f));
    cr_expect(fgetc(f) == EOF, "more than one line");
    int status = pclose(f);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 2, "status %d", status);
    cr_expect(strstr(line, "04_monoid_tiled_cpu: this processor lacks avx"), "%s", line);
}
