/* test_reports.c: the measuring scripts, with clocks and tensors that are stand-ins: what is
 * measured how often, and that no wrong result is published (tests/reports/check.py). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs one fact, or all of them, with python3; the last line that it printed goes to said. */
static int run(const char *fact, char *said, size_t size)
{
    char command[256], line[256];
    int n = 0;
    snprintf(command, sizeof command,
             "python3 -B tests/reports/check.py common/reports %s 2>&1", fact);
    FILE *f = popen(command, "r");
    cr_assert(f != NULL);
    while (fgets(line, sizeof line, f)) snprintf(said, size, "%s", line), n++;
    return pclose(f) ? -1 : n;
}

static void holds(const char *fact)
{
    char said[256] = "";
    if (system("python3 -c '' >/dev/null 2>&1")) cr_skip("no python3");
    cr_assert(run(fact, said, sizeof said) == 1, "%s: %s", fact, said);
}

#define FACT(name) Test(reports, name) { holds(#name); }

FACT(nan_is_never_accepted)
FACT(a_wrong_result_is_not_published)
FACT(softmax_rows_are_checked_too)
FACT(pytorch_on_the_cpu_is_checked_too)
FACT(a_line_says_its_conditions)
FACT(cold_calls_are_flushed_shuffled_and_equally_many)
FACT(sustained_calls_are_not_flushed_and_equally_many)
FACT(an_unstable_method_is_measured_again)
FACT(the_parts_hold_the_shapes_that_are_named)
FACT(a_ratio_is_of_one_run)
FACT(marks_of_a_launch_become_bars)
