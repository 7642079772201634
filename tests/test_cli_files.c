/* test_cli_files.c: where the outputs of a stage program go: full disks, pipes, the standard
 * output. */
#include "cli.h"

TestSuite(cli_files, .init = make_place, .fini = remove_place, .timeout = 900);

Test(cli_files, full_disk_exits_1_and_keeps_the_old_files)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 100,
                        .seqlen_k = 3, .head_dim = 8, .head_dim_v = 64 };
    save_problem(&t, 2);
    for (int s = 0; s < N_STAGES; s++) {
        cr_expect(run(stages[s], "run " FILES "> /dev/full") == 1, "%s: stdout: %s",
                  stages[s], complained);
        write_text("lse.npy", "old");
        int before = n_files();
        cr_expect(run(stages[s], "run --q q.npy --k k.npy --v v.npy --o /dev/full "
                      "--lse lse.npy") == 1, "%s: %s", stages[s], complained);
        cr_expect(strstr(complained, "/dev/full") && holds("lse.npy", "old") &&
                  n_files() == before, "%s: %s", stages[s], complained);
    }
}

/* A limit on the size of files stands for the disk: o.npy needs 25 kB. */
Test(cli_files, file_size_limit_exits_1_and_keeps_the_old_files)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 100,
                        .seqlen_k = 3, .head_dim = 8, .head_dim_v = 64 };
    const char *build = getenv("BUILD");
    save_problem(&t, 2);
    for (int s = 0; s < N_STAGES; s++) {
        write_text("o.npy", "old"), write_text("lse.npy", "old");
        int before = n_files();
        char command[2048];
        snprintf(command, sizeof command, "ulimit -f 8; %s/%s/%s run " FILES
                 ">.stdout 2>.stderr", root, build ? build : "build", stages[s]);
        int status = system(command);
        slurp(".stderr", complained, sizeof complained);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s: %x %s", stages[s],
                  status, complained);
        cr_expect(strstr(complained, "o.npy"), "%s: %s", stages[s], complained);
        cr_expect(holds("o.npy", "old") && holds("lse.npy", "old") && n_files() == before,
                  "%s: an old file is gone or a temporary is left", stages[s]);
    }
}

Test(cli_files, pipes_carry_arrays_in_and_out)
{
    free(SAVE("x.npy", 1, 3, 4));
    cr_assert(run(stages[2], "run --x x.npy --y y.npy") == 0, "%s", complained);
    cr_assert(run(stages[2], "run --x /dev/stdin --y z.npy < x.npy") == 0, "%s",
              complained);
    cr_assert(!system("cmp -s y.npy z.npy"));
    cr_assert(!system("mkfifo pipe && (cat x.npy > pipe &)"));
    cr_assert(run(stages[2], "run --x pipe --y z2.npy") == 0, "%s", complained);
    cr_assert(!system("cmp -s y.npy z2.npy"));
    cr_assert(run(stages[2], "run --x x.npy --y /dev/fd/3 3>&1 >.said | cat > z3.npy")
              == 0, "%s", complained);
    cr_assert(!system("cmp -s y.npy z3.npy"));
}

/* The array alone goes to the standard output: what is told goes to stderr. */
Test(cli_files, array_on_the_standard_output_is_not_mixed_with_the_report)
{
    free(SAVE("x.npy", 1, 3, 4));
    for (int s = 0; s < 4; s++) {
        cr_assert(run(stages[s], "run --x x.npy --y y.npy") == 0, "%s", complained);
        cr_expect(strstr(printed, "variant") && !*complained);
        cr_assert(run(stages[s], "run --x x.npy --y /dev/stdout 2>.said | cat >z.npy") == 0);
        cr_assert(!system("cmp y.npy z.npy"), "%s: through a pipe", stages[s]);
        slurp(".said", complained, sizeof complained);
        cr_expect(strstr(complained, "variant"), "%s: %s", stages[s], complained);
        cr_assert(run(stages[s], "run --x x.npy --y /dev/stdout >z.npy") == 0, "%s",
                  complained);
        cr_assert(!system("cmp y.npy z.npy"), "%s: into a file", stages[s]);
        cr_expect(strstr(complained, "variant"), "%s: %s", stages[s], complained);
        cr_assert(run(stages[s], "run --x x.npy --y /dev/null >/dev/null") == 0);
        cr_expect(!*complained, "%s: %s", stages[s], complained);
    }
}
