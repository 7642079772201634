/* Every stage and variant on the whole case suite, through the program that a reader runs.
 * Stage 5's teaching kernels are executed on the CPU where there is no GPU. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Runs `build/<stage> check`; the last line must count checks, none of them failed. */
static void check_passes(const char *stage, const char *more)
{
    const char *build = getenv("BUILD"), *flags = getenv("CHECK_FLAGS");
    char command[512], line[512], last[512] = "";
    snprintf(command, sizeof command, "%s/%s check %s %s 2>&1", build ? build : "build", stage,
             flags ? flags : "", more);
    FILE *f = popen(command, "r");
    cr_assert(f, "cannot run %s", command);
    while (fgets(line, sizeof line, f)) {
        if (strstr(line, "FAIL")) fputs(line, stderr);
        if (line[0] != '\n') memcpy(last, line, sizeof last);
    }
    int status = pclose(f);
    unsigned passed = 0, failed = 1;
    int fields = sscanf(last, "%u checks passed, %u failed", &passed, &failed);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: exit status %d: %s", command,
              WIFEXITED(status) ? WEXITSTATUS(status) : -1, last);
    cr_assert(fields == 2 && passed > 0 && failed == 0, "%s ended with: %s", command, last);
}

Test(stages, naive_passes_its_cases) { check_passes("01_naive", ""); }
Test(stages, safe_softmax_passes_its_cases) { check_passes("02_safe_softmax", ""); }
Test(stages, online_softmax_passes_its_cases) { check_passes("03_online_softmax", ""); }
Test(stages, monoid_passes_its_cases) { check_passes("04_monoid_tiled_cpu", ""); }
Test(stages, flash_passes_its_cases) { check_passes("05_flash_cuda", ""); }

/* Problems drawn at random, the same ones every time; `make differential` draws more. */
Test(stages, random_problems_pass)
{
    static const char *const stages[] = {"01_naive", "02_safe_softmax", "03_online_softmax",
                                         "04_monoid_tiled_cpu", "05_flash_cuda"};
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        check_passes(stages[i], "--random 200 --seed 20261");
}
