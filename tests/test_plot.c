/* test_plot.c: the figures: drawn from CSV, and the same from the same CSV. */
#include "report_place.h"

TestSuite(plot, .init = make_place, .fini = remove_place, .timeout = 900);

Test(plot, every_figure_is_drawn_and_is_the_same_again)
{
    static const char *const names[] = { "length", "ceiling", "flash", "ladder",
                                         "traffic", "error", "memory", "arc", "map" };
    const char *build = getenv("BUILD");
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results one two"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv --gpu") == 0, "%s", said);
    int status = run("common/reports/plot.py", "--results results --out one --program %s/%s/"
                     "03_online_softmax --fixture %s/tests/fixture", root,
                     build ? build : "build", root);
    if (status == 77) cr_skip("no matplotlib");
    cr_assert(status == 0, "%s", said);
    cr_assert(run("common/reports/plot.py", "--results results --out two") == 0, "%s", said);
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        char path[64], head[9], command[128];
        snprintf(path, sizeof path, "one/%s.png", names[t]);
        slurp(path, head, sizeof head);
        cr_expect(!memcmp(head, "\x89PNG\r\n\x1a\n", 8), "%s is no picture", path);
        snprintf(command, sizeof command, "cmp -s one/%s.png two/%s.png", names[t],
                 names[t]);
        cr_expect(!strcmp(names[t], "map") || !system(command), "%s differs", names[t]);
    }
    cr_expect(!system("test $(ls -A one | wc -l) = 9"), "something else was left there");
}

/* The command of the top README, and what stops it. */
Test(plot, the_map_is_drawn_by_its_own_command)
{
    static const char *const spoil[][2] = {
        { "--head 12", "out of bounds" }, { "--fixture nowhere", "nowhere" },
        { "--program ./nothing", "nothing" },
    };
    const char *build = getenv("BUILD");
    char program[3000];
    if (!has_python()) cr_skip("no python3");
    snprintf(program, sizeof program, "--program %s/%s/03_online_softmax --fixture "
             "%s/tests/fixture --out out", root, build ? build : "build", root);
    int status = run("common/reports/plot_map.py", "%s", program);
    if (status == 77) cr_skip("no matplotlib");
    cr_expect(status == 0 && !system("head -c 4 out/map.png | grep -q PNG"), "%s", said);
    for (size_t t = 0; t < sizeof spoil / sizeof *spoil; t++) {
        status = run("common/reports/plot_map.py", "%s %s", program, spoil[t][0]);
        cr_expect(status == 1 && strstr(said, spoil[t][1]), "%s: exit %d: %s", spoil[t][0],
                  status, said);
    }
}

Test(plot, pictures_and_rooflines_are_drawn_and_are_the_same_again)
{
    static const char *const names[] = { "memories.svg", "tiles.svg", "timeline.svg",
                                         "roofline_cpu.png", "roofline_gpu.png" };
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results one two"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv --gpu") == 0, "%s", said);
    for (int pass = 0; pass < 2; pass++) {
        const char *out = pass ? "two" : "one";
        int status = run("common/reports/pictures.py", "--out %s", out);
        if (status == 77) cr_skip("no matplotlib");
        cr_assert(status == 0, "%s", said);
        cr_assert(run("common/reports/roofline.py", "--results results --out %s", out) == 0, "%s", said);
    }
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        char command[128];
        snprintf(command, sizeof command, "test -s one/%s && cmp -s one/%s two/%s", names[t],
                 names[t], names[t]);
        cr_expect(!system(command), "%s is missing or differs", names[t]);
    }
}

/* Without the ceiling of the matrix unit there is nothing to draw, and a line says so. */
Test(plot, the_matrix_unit_is_drawn_beside_the_exponentials)
{
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results one two"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv --matrix") == 0, "%s", said);
    for (int pass = 0; pass < 2; pass++) {
        int status = run("common/reports/roofline_matrix.py", "--results results --out %s",
                         pass ? "two" : "one");
        if (status == 77) cr_skip("no matplotlib");
        cr_assert(status == 0, "%s", said);
    }
    cr_expect(!system("test -s one/roofline_matrix.png && "
                      "cmp -s one/roofline_matrix.png two/roofline_matrix.png"));
    cr_assert(!system("sed -i s/,gemm,/,exp,/ results/a.csv"));
    cr_expect(run("common/reports/roofline_matrix.py", "--results results --out three") == 1);
    cr_expect(strstr(said, "not drawn: no measurement of amx beside ceiling 'gemm'"), "%s", said);
}

Test(plot, the_ladder_is_drawn_and_is_the_same_again)
{
    static const char *const names[] = { "staircase", "crossover", "decode", "gpu_memory" };
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results one two"));
    cr_assert(run("tests/plots/synthetic.py", "results --ladder") == 0, "%s", said);
    for (int pass = 0; pass < 2; pass++) {
        int status = run("common/reports/ladder_figures.py", "--results results --out %s",
                         pass ? "two" : "one");
        if (status == 77) cr_skip("no matplotlib");
        cr_assert(status == 0, "%s", said);
    }
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        char command[128];
        snprintf(command, sizeof command, "test -s one/%s.png && cmp -s one/%s.png two/%s.png",
                 names[t], names[t], names[t]);
        cr_expect(!system(command), "%s is missing or differs", names[t]);
    }
    cr_assert(!system("rm results/profile*"));
    cr_expect(run("common/reports/ladder_figures.py", "--results results --out two") == 0);
    cr_expect(strstr(said, "staircase.png not drawn: no file"), "%s", said);
}

Test(plot, missing_columns_skip_a_figure_with_one_line)
{
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv") == 0, "%s", said);
    int status = run("common/reports/plot.py", "--results results --out out");
    if (status == 77) cr_skip("no matplotlib");
    cr_assert(status == 0, "%s", said);
    cr_expect(strstr(said, "ladder.png not drawn: no measurement of stage 5 on a GPU"),
              "%s", said);
    cr_expect(access("out/ladder.png", F_OK) && !access("out/length.png", F_OK));
    cr_assert(run("common/reports/plot.py", "--results missing --out out") == 2);
    cr_expect(strstr(said, "missing: has no .csv files"), "%s", said);
}

/* sh commands that spoil results/a.csv, and a word of the line that must be printed. */
