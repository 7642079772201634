/* test_cli.c: list, check, help, and which variant a stage program takes. */
#include "cli.h"

TestSuite(cli, .init = make_place, .fini = remove_place, .timeout = 900);

Test(cli, list_prints_one_line_a_variant)
{
    for (int s = 0; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "list") == 0, "%s: %s", stages[s], complained);
        cr_expect(!*complained && *printed, "%s list: '%s'", stages[s], complained);
        cr_expect(*printed != '\n' && !strstr(printed, "\n\n"), "%s: empty line",
                  stages[s]);
        int lines = 0;
        cr_expect(!strncmp(printed, "# ", 2), "%s: no heading", stages[s]);
        for (char *line = strtok(printed, "\n"); line; line = strtok(NULL, "\n")) {
            cr_expect(strlen(line) <= 100, "%s: %zu columns: '%s': shorten its .idea",
                      stages[s], strlen(line), line);
            cr_expect(!strstr(line, "..."), "%s: cut: '%s'", stages[s], line);
            if (!strncmp(line, "# ", 2)) continue;
            cr_expect(line[0] >= 'a' && line[0] <= 'z', "%s: '%s'", stages[s], line);
            cr_expect(strstr(line, "f32") || strstr(line, "f16"), "%s: '%s'", stages[s],
                      line);
            lines++;
        }
        cr_expect(lines >= 1);
    }
}

/* Stage 5's dispatch, without a GPU: which variant, which tile, and why no later one. */
Test(cli, the_choice_is_explained)
{
    static const struct { const char *options, *want; } cases[] = {
        {"--verbose", "variant register_tiled (cpu-executed, f32)"},
        {"--verbose", "takes tiles of 64 queries and 64 keys, 8 x 4 results a thread"},
        {"--verbose", "\n  not tensor_cores, async_copies, larger_tiles, general_mma, lazy_rescaling: "
                      "does not compute in f32\n"},
        {"--verbose --dtype f16", "takes blocks of 128 queries and 64 keys; head dims up to 64"},
        {"--verbose --dtype f16", "not split_kv: does not support more than 64 queries"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(run("05_flash_cuda", "run --device cpu --q %s/tests/fixture/q.npy "
                      "--k %s/tests/fixture/k.npy --v %s/tests/fixture/v.npy --o o.npy %s",
                      root, root, root, cases[i].options) == 0, "%s", complained);
        cr_expect(strstr(printed, cases[i].want), "no '%s' in:\n%s", cases[i].want, printed);
    }
    cr_expect(run("05_flash_cuda", "list --verbose --device cpu") == 0);
    cr_expect(strstr(printed, "from head_dim 128, 512 keys: tiles of 64 queries and 32 keys"),
              "%s", printed);
    cr_expect(strstr(printed, "from head_dim 64, 16384 keys: tiles of 192 queries"), "%s",
              printed);
    cr_expect(strstr(printed, "from head_dim 64, 512 keys: tiles of 64 queries, 64 keys; three "
                     "blocks a multiprocessor\n    from head_dim 64, 16384 keys: tiles of 192 "
                     "queries, 128 keys\n"), "%s", printed); /* general */
    cr_expect(run("03_online_softmax", "list --verbose") == 0);
    cr_expect(strstr(printed, "from 512 columns: gpu_registers\n"), "%s", printed);
}

/* Asking for f32 by name, of a variant that would have to round to 16 bits. */
Test(cli, f32_is_computed_in_16_bits_only_where_nothing_else_was_asked_for)
{
    static const struct { const char *options; int status; const char *want; } cases[] = {
        { "--dtype f32", 2, "variant tensor_cores does not support f32" },
        { "", 0, "q.npy: f32 converted to bf16" },
        { "--dtype bf16", 0, "q.npy: f32 converted to bf16" },
        { "--dtype f16", 0, "q.npy: f32 converted to f16" },
    };
    free(SAVE("q.npy", 1, 4, 3, 8)), free(SAVE("k.npy", 2, 2, 5, 8));
    free(SAVE("v.npy", 3, 2, 5, 8));
    for (size_t i = 0; i < 4; i++) {
        int status = run(stages[4], "run " FILES "--device cpu --variant tensor_cores %s",
                         cases[i].options);
        cr_expect(status == cases[i].status, "'%s': exit %d: %s", cases[i].options, status,
                  complained);
        cr_expect(strstr(status ? complained : printed, cases[i].want), "'%s': %s%s",
                  cases[i].options, printed, complained);
        cr_expect(n_files() == (i ? 5 : 3), "'%s': %d files", cases[i].options, n_files());
    }
}

/* Their GPU kernels are for a GPU; on the CPU a vector variant widens the 16 bits, or computes
 * in them. */
Test(cli, default_of_stages_1_to_4_executes_no_gpu_kernel_on_the_cpu)
{
    free(SAVE("x.npy", 1, 3, 40)), free(SAVE("q.npy", 1, 4, 3, 8));
    free(SAVE("k.npy", 2, 2, 5, 8)), free(SAVE("v.npy", 3, 2, 5, 8));
    for (int s = 0; s < 4; s++)
        for (int type = 0; type < 3; type++) {
            static const char *const types[] = { "f32", "f16", "bf16" };
            cr_assert(run(stages[s], "run --x x.npy --y y.npy --device cpu --dtype %s",
                          types[type]) == 0, "%s: %s", stages[s], complained);
            cr_expect(strstr(printed, "(cpu, f32)"), "%s: %s", stages[s], printed);
            cr_assert(run(stages[s], "run " FILES "--device cpu --dtype %s",
                          types[type]) == 0, "%s: %s", stages[s], complained);
            int bf16 = s == 3 && type == 2; /* where the processor has instructions for it */
            cr_expect(strstr(printed, "(cpu, f32)") || (bf16 && strstr(printed, "(cpu, bf16)")),
                      "%s: %s", stages[s], printed);
        }
}

/* Wherever an option may stand, and whatever stands beside it. */
Test(cli, help_and_version_follow_every_program_and_verb)
{
    static const char *const verbs[] = { "", "list", "check", "bench", "trace", "run",
                                         "run --q nosuch.npy", "bench --quick", "help" };
    static const char *const options[][2] = { { "--help", "Exit status:" },
                                              { "-h", "Exit status:" },
                                              { "--version", " 1." } };
    for (int s = 0; s < N_STAGES; s++)
        for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++)
            for (int o = 0; o < 3; o++) {
                cr_expect(run(stages[s], "%s %s", verbs[v], options[o][0]) == 0, "%s %s %s: %s",
                          stages[s], verbs[v], options[o][0], complained);
                cr_expect(strstr(printed, options[o][1]) && strstr(printed, stages[s]) &&
                          !*complained, "%s %s: %s", verbs[v], options[o][0], printed);
            }
    cr_expect(run(stages[0], "run --helping") == 2 && run(stages[0], "--helping") == 2);
    cr_expect(run(stages[0], "list --version=1") == 2 && run(stages[0], "-v") == 2);
    cr_expect(n_files() == 0);
}

Test(cli, csv_goes_into_a_pipe)
{
    cr_assert(run(stages[0], "bench --rows 3 --cols 4 --variant naive --csv /dev/stdout "
                  "| cat > .piped") == 0);
    char *text = printed;
    slurp(".piped", text, sizeof printed);
    cr_expect(strstr(text, "stage,variant,op") && strstr(text, "\n01_naive,naive,softmax"),
              "%s", text);
}

Test(cli, check_of_one_operation_runs_no_other)
{
    cr_assert(run(stages[2], "check --quick --op mean") == 0, "%s", complained);
    cr_expect(strstr(printed, "mean_total") && !strstr(printed, "attention-"), "%s", printed);
    cr_expect(run(stages[4], "check --quick --op softmax") == 77, "%s", printed);
}
