/* test_tables_rows.c: the table that tells stage 1's few blocks from its scattered accesses. */
#include "report_place.h"

TestSuite(tables_rows, .init = make_place, .fini = remove_place, .timeout = 900);

/* Makes the table `mark` from blocks() of synthetic.py; t.md has it. */
static const char *made(const char *mark)
{
    static char text[1 << 14];
    snprintf(text, sizeof text, "<!-- table:%s begin -->\n<!-- table:%s end -->\n", mark, mark);
    write_text("t.md", text);
    cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
    slurp("t.md", text, sizeof text);
    return text;
}

static void invent(void)
{
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "results --blocks") == 0, "%s", said);
}

/* Cold medians; the profile's own time only where nothing else was measured. */
Test(tables_rows, each_cause_alone_beside_what_was_counted)
{
    static const char *const want[] = {
        "| gpu_thread_per_row | f32 | [256k, 1k] | 1024 | 30.0 ms | 30.0 | "
        "3.50 G | 32 | 87.5 % |  | 99 % |",
        "| gpu_thread_per_row | f32 | [4k, 64k] | 16 | 60.0 ms | 60.0 | "
        "3.50 G | 31.5 | 87.5 % |  | 12.1 % |",
        "| gpu_block_per_row | f32 | [4k, 64k] | 4096 | 2.00 ms | 2.00 |",
        "| gpu_block_per_row | f32 | [16, 16M] | 16 | 80.0 ms, one launch | 80.0 |",
        "| slower by this factor | f32 |\n",
        "| scattered instead of coalesced accesses, [256k, 1k] | 20 |",
        "| 16 blocks instead of 1024, scattered accesses | 2.0 |",
        "| scattered instead of coalesced accesses, 16 blocks each | 0.75 |",
        "| 16 blocks instead of 4096, coalesced accesses | 40 |",
        "| both: the two kernels at [4k, 64k] | 30 |",
    };
    invent();
    const char *text = made("gpu-blocks");
    for (size_t t = 0; t < sizeof want / sizeof *want; t++)
        cr_expect(strstr(text, want[t]), "not '%s' in:\n%s", want[t], text);
}

Test(tables_rows, without_a_profile_of_this_machine_there_are_times_only)
{
    static const char *const hide[] = { "sed -i 's/invented GPU/other GPU/' %s", "rm %s" };
    invent();
    for (size_t t = 0; t < 2; t++) {
        char command[128];
        snprintf(command, sizeof command, hide[t], "results/profile_01_naive.csv");
        cr_assert(!system(command));
        const char *text = made("gpu-blocks");
        cr_expect(strstr(text, "| blocks | time | copies |\n"), "%s", text);
        cr_expect(strstr(text, "| 1024 | 30.0 ms | 30.0 |\n"), "%s", text);
        cr_expect(!strstr(text, "16M") && !strstr(text, "16 blocks each"), "%s", text);
    }
}

/* A line without repeats has no time of its own: no table shows [16, 16M] as a measurement. */
Test(tables_rows, a_shape_that_was_only_counted_is_in_no_other_table)
{
    invent();
    const char *text = made("stage-1-softmax");
    cr_expect(strstr(text, "| gpu_block_per_row | GPU | f32 | 64k | 2.00 ms |"), "%s", text);
    cr_expect(strstr(text, " / 3758 |"), "%s", text); /* 3.5 G of 1074 MB were counted */
    cr_expect(!strstr(text, "16M"), "%s", text);
}

Test(tables_rows, few_and_many_blocks_are_needed)
{
    invent();
    cr_assert(!system("sed -i '/,262144,/d' results/a.csv"));
    write_text("t.md", "<!-- table:gpu-blocks begin -->\n<!-- table:gpu-blocks end -->\n");
    cr_expect(run("common/reports/tables.py", "--results results t.md") == 1, "%s", said);
    cr_expect(strstr(said, "with few and with many blocks"), "%s", said);
}
