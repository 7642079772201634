/* processor.c: a program that was copied to a processor without its instructions says so and
 * exits with 2.  The compiler may use them anywhere, so this file alone is compiled for the
 * plainest processor of the architecture (common/make/programs.mk), and its check runs
 * before everything else in the program. */
#include "program/processor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

unsigned processor_has(void)
{
    unsigned has = 0, bit = 0;
#if defined __x86_64__
    __builtin_cpu_init();
#define ADD(name, macro) has |= (__builtin_cpu_supports(name) ? 1u : 0u) << bit++;
    INSTRUCTION_SETS(ADD)
#endif
    (void)bit;
    return has;
}

const char *processor_lacks(const char *const *needs, unsigned has)
{
#define NAME(name, macro) name,
    static const char *const names[] = {INSTRUCTION_SETS(NAME) NULL};
    for (int i = 0; needs[i]; i++)
        if (!strcmp(needs[i], "1") && !(has & 1u << i)) return names[i];
    return NULL;
}

__attribute__((constructor(101))) static void check_processor(int argc, char **argv)
{
    const char *lacking = processor_lacks(built_for, processor_has());
    if (!lacking) return;
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    fprintf(stderr, "%s: this processor lacks %s, for which the program was built; build it on "
            "this machine, or with ARCH_FLAGS=-march=x86-64\n",
            slash ? slash + 1 : argc > 0 ? argv[0] : "program", lacking);
    _exit(2);
}
