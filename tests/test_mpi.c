/* test_mpi.c: stage 4 on several processes, by tests/mpi/run.sh (make mpi does more ranks, and
 * plants bugs). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

Test(mpi, suite_files_and_faults_on_several_ranks, .timeout = 900)
{
    const char *build = getenv("BUILD");
    char command[256], printed[8192];
    snprintf(command, sizeof command, "RANKS='1 3' PLANTED=0 sh tests/mpi/run.sh %s 2>&1",
             build ? build : "build");
    FILE *f = popen(command, "r");
    cr_assert(f != NULL);
    printed[fread(printed, 1, sizeof printed - 1, f)] = 0;
    int status = pclose(f);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77) cr_skip("%s", printed);
    cr_assert(code == 0, "%s", printed);
}
