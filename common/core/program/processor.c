/* processor.c: a program that was copied to a processor without its instructions says so and
 * exits with 2.  The compiler may use them anywhere, so this file alone is compiled for the
 * plainest processor of the architecture (common/core/make/programs.mk), and its check runs
 * before everything else in the program. */
#include "program/processor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void needs(const char *program, const char *set, int is_built_for, int is_here)
{
    const char *slash = strrchr(program, '/');
    if (!is_built_for || is_here) return;
    fprintf(stderr, "%s: this processor lacks %s, for which the program was built; build it on "
            "this machine, or with ARCH_FLAGS=-march=x86-64\n", slash ? slash + 1 : program, set);
    _exit(2);
}

__attribute__((constructor(101))) static void check_processor(int argc, char **argv)
{
    const char *program = argc > 0 ? argv[0] : "program", *const *built = built_for;
    (void)program, (void)built, (void)needs;
#if defined __x86_64__
    __builtin_cpu_init();
#define ASK(name, macro) \
    needs(program, name, !strcmp(*built++, "1"), __builtin_cpu_supports(name) != 0);
    INSTRUCTION_SETS(ASK)
#endif
}
