/* processor.c: a program that was copied to a processor without its instructions says so and
 * exits with 2. */
#include <signal.h>
#include <unistd.h>

static void say(int number)
{
    static const char text[] = "this processor lacks instructions for which the program was built; "
                               "build it on this machine, or with ARCH_FLAGS=-march=x86-64\n";
    (void)number;
    _exit(write(STDERR_FILENO, text, sizeof text - 1) > 0 ? 2 : 1);
}

/* Before everything else in the program, of which any line may have such an instruction. */
__attribute__((constructor(101))) static void expect_them(void) { signal(SIGILL, say); }
