/* test_mpi.c: several processes, several hosts and several GPUs, by the scripts of tests/mpi (make
 * mpi does more ranks, and plants bugs). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* Runs `settings sh script BUILD`; skips the test where it ends with 77. */
static void run_script(const char *settings, const char *script)
{
    const char *build = getenv("BUILD");
    char command[256], printed[8192];
    snprintf(command, sizeof command, "%s sh %s %s 2>&1", settings, script,
             build ? build : "build");
    FILE *f = popen(command, "r");
    cr_assert(f != NULL);
    printed[fread(printed, 1, sizeof printed - 1, f)] = 0;
    int status = pclose(f);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77) cr_skip("%s", printed);
    cr_assert(code == 0, "%s", printed);
}

Test(mpi, suite_files_and_faults_on_several_ranks, .timeout = 900)
{
    run_script("RANKS='1 3' ONLY='suite usage files faults'", "tests/mpi/run.sh");
}

Test(mpi, two_hosts_of_a_network, .timeout = 900)
{
    run_script("", "tests/mpi/network.sh");
}

Test(mpi, gpus_of_this_machine, .timeout = 900)
{
    run_script("QUICK=1", "tests/mpi/gpus.sh");
}
