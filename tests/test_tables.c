/* test_tables.c: the tables: made from CSV, once, and one line for every malformed file. */
#include "last_rung.h"
#include "report_place.h"

TestSuite(tables, .init = make_place, .fini = remove_place, .timeout = 900);

/* ladder_rate() of synthetic.py says where each rung wins. */
Test(tables, tables_of_the_ladder_say_where_each_rung_wins)
{
    static const char *const want[] = {
        "| 4 `async_copies` over 3 `tensor_cores` | always | always |",
        "| 8 `warp_specialized` over 7 `wgmma` | from 1k | from 1k |",
        "| 9 `ping_pong` over 8 `warp_specialized` | up to 512 | up to 512 |",
        "| 11 `tma_store` over 10 `intra_warpgroup_overlap` | never | never |",
        "| split_kv | 6711 |", /* 67 MB in 10 us */
        "| register_tiled | 114 (0 %) | 114 (0 %) |",
        "| d = 64 | 900 (83 %) |",                 /* 743 of the roof's 900 */
        "the last kernel reaches **743 TFLOP/s, 2.48 times as fast as cuDNN** (bf16, head_dim "
        "128, 4k keys, no mask; one call at a time", "| `pytorch-math` | 1024 |",
        "| 4 async_copies | 128 | 149 | 19 | 50 |  | 30 | 40 | 0.5 | 12 | 1.7 |",
        "| 1.14 | 1.14 | tensor cores busy 13 to 19 %; shared memory busy 40 to 40 % |",
    };
    static const char *const names[] = { "crossover", "roofs", "gpu-memory", "counters",
                                         "steps-3-4", "ladder", "ladder-f32", "decode",
                                         "stage-5-attention", "hopper", "headline" };
    char text[1024] = "", table[1 << 14];
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "results --ladder") == 0, "%s", said);
    for (size_t t = 0; t < sizeof names / sizeof *names; t++)
        sprintf(text + strlen(text), "<!-- table:%s begin -->\n<!-- table:%s end -->\n",
                names[t], names[t]);
    write_text("t.md", text);
    cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
    slurp("t.md", table, sizeof table);
    for (size_t t = 0; t < sizeof want / sizeof *want; t++)
        cr_expect(strstr(table, want[t]), "not '%s' in:\n%s", want[t], table);
    char last[64], wants[3][160];
    int number = last_rung(root, last);
    sprintf(wants[0], "| `split_kv` over %d `%s`, one query |  | from 4k |", number, last);
    sprintf(wants[1], "| %s | 819 |", last); /* 67 MB in 82 us */
    sprintf(wants[2], "`%s`, `pytorch-cudnn` | 256 |", last);
    for (size_t t = 0; t < 3; t++)
        cr_expect(strstr(table, wants[t]), "not '%s' in:\n%s", wants[t], table);
    char *ladder = strstr(table, "table:ladder begin"); /* a roof is no rung: not there */
    cr_expect(ladder && !strstr(ladder, "no_softmax"));
}

struct spoiled { const char *command, *word; };

static const struct spoiled spoiled[] = {
    { "rm results/a.csv", "no .csv files" },
    { ": > results/a.csv", "is empty" },
    { "head -1 good.csv > results/a.csv", "no measurements" },
    { "sed '1s/median_s/median/' good.csv > results/a.csv", "'median_s'" },
    { "sed '1s/min_s/median_s/' good.csv > results/a.csv", "'median_s'" },
    { "sed '3s/,/;/' good.csv > results/a.csv", "a.csv:3: has 34 fields" },
    { "sed '4s/$/,/' good.csv > results/a.csv", "a.csv:4: has 36 fields" },
    { "sed '2s/,20,/,many,/' good.csv > results/a.csv", "'many'" },
    { "sed '2s/,20,/,nan,/' good.csv > results/a.csv", "'nan'" },
    { "sed '5s/^[0-9]*/9/' good.csv > results/a.csv", "'9'" },
    { "sed '5s/^[0-9]*//' good.csv > results/a.csv", "stage" },
    { "head -c 200 /dev/zero > results/a.csv", "a.csv" },
    { "printf '\\377\\376' > results/a.csv", "cannot be read" },
    { "head -c 900 good.csv > results/a.csv", "fields" },
};

Test(tables, malformed_csv_is_refused_with_one_line)
{
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "good.csv") == 0, "%s", said);
    write_text("t.md", "<!-- table:memory begin -->\nold\n<!-- table:memory end -->\n");
    for (size_t t = 0; t < sizeof spoiled / sizeof *spoiled; t++) {
        cr_assert(!system("cp good.csv results/a.csv && cp t.md old.md"));
        cr_assert(!system(spoiled[t].command));
        int status = run("common/reports/tables.py", "--results results t.md");
        char *newline = strchr(said, '\n');
        cr_expect(status == 2 && newline && !newline[1] && strstr(said, spoiled[t].word),
                  "%s: exit %d, want '%s' in '%s'", spoiled[t].command, status,
                  spoiled[t].word, said);
        cr_expect(!system("cmp -s t.md old.md"), "%s: the table was touched",
                  spoiled[t].command);
    }
}

Test(tables, tables_are_rewritten_once_and_checked)
{
    static const char *const names[] = { "attention", "softmax", "memory", "ladder", "stages",
                                         "stage-4-attention", "stage-3-softmax" };
    char text[1 << 10] = "# Title\n";
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv --gpu") == 0, "%s", said);
    for (size_t t = 0; t < sizeof names / sizeof *names; t++)
        sprintf(text + strlen(text), "<!-- table:%s begin -->\n<!-- table:%s end -->\n",
                names[t], names[t]);
    write_text("t.md", text);
    cr_expect(run("common/reports/tables.py", "--results results --check t.md") == 1, "%s", said);
    cr_expect(!system("grep -q '|' t.md; test $? = 1"), "--check changed the file");
    cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
    cr_expect(!system("test $(grep -c '^| :-- |' t.md) = 7"), "not seven tables");
    cr_expect(run("common/reports/tables.py", "--results results --check t.md") == 0, "%s", said);
    cr_expect(!system("sed -i 's/invented GPU/other GPU/' t.md"));
    cr_expect(run("common/reports/tables.py", "--results results --check t.md") == 1, "%s", said);
}

/* One run of projects-check, in which every program was judged as it should be. */
Test(tables, programs_of_projects_check_without_times_or_linkers_words)
{
    static const char head[] = "project,program,points,of,said,ok,runs,seconds,machine,driver,date,commit\n";
    static const char end[] = ",1,3,2,Some GPU,570,2026-01-01,abc\n";
    char csv[1 << 10];
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir -p results/course"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv --gpu") == 0, "%s", said);
    write_text("t.md", "<!-- table:projects begin -->\n<!-- table:projects end -->\n");
    snprintf(csv, sizeof csv, "%sp,fast,9.5,40,\"61.2 %% of copy, 3 ms\"%sp,links,0.0,40,"
             "\"does not link: (.text): x\"%s", head, end, end);
    write_text("results/course/projects.csv", csv);
    cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
    cr_expect(!system("grep -q '| fast | 9.5 of 40 | 61.2 % of copy | 3 | 2 |$' t.md"));
    cr_expect(!system("grep -q '| links | 0.0 of 40 | does not link | 3 | 2 |$' t.md"));
    cr_expect(!system("grep -q '^[*]Some GPU; driver 570; commit abc; 2026-01-01.[*]$' t.md"));
    cr_assert(!system("sed -i '3s/,1,3,2,/,0,3,2,/' results/course/projects.csv"));
    cr_expect(run("common/reports/tables.py", "--results results t.md") == 2);
    cr_expect(strstr(said, "as it should be") != NULL, "%s", said);
}

/* Aligned tiles of 64 queries with a window of 256 keys compute 5 blocks of 64. */
Test(tables, a_window_has_the_bound_of_whole_blocks_beside_its_ratio)
{
    static const char *const want[] = { "| ratio | bound |", "| 0.50 | 0.80 |", "| 0.50 |  |" };
    char command[2048], table[1 << 14];
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir -p results/hopper"));
    cr_assert(run("tests/plots/synthetic.py", "good.csv") == 0, "%s", said);
    cr_assert(!system("awk -F, -v OFS=, 'NR == 1 { print } NR == 2 { $2 = \"window: 256 keys\"; "
                      "$17 = $18 = 0.002; $NF = \"ideal_s 0.001; bound 0.8\"; print; "
                      "$2 = \"layout: views\"; sub(\"; bound.*\", \"\", $NF); print }' "
                      "good.csv > results/hopper/serving.csv && cp good.csv results/a.csv"));
    write_text("t.md", "<!-- table:serving begin -->\n<!-- table:serving end -->\n");
    cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
    slurp("t.md", table, sizeof table);
    for (size_t t = 0; t < sizeof want / sizeof *want; t++)
        cr_expect(strstr(table, want[t]), "not '%s' in:\n%s", want[t], table);
    snprintf(command, sizeof command, "cd '%s/common/reports' && python3 -B -c 'import "
             "serving_pairs as s; exit((s.whole_blocks(640, 255, 64), s.whole_blocks(64, 63, 128)) "
             "!= (64 * 64 * (1 + 2 + 3 + 4 + 6 * 5), 64 * 128))'", root);
    cr_expect(!system(command), "whole_blocks()");
}

Test(tables, stage_tables_follow_the_list_of_the_stage)
{
    static const char *const orders[][2] = {{ "tiled", "threads" }, { "threads", "tiled" }};
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results 04_here"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv --gpu") == 0, "%s", said);
    write_text("t.md", "<!-- table:stage-4-attention begin -->\n"
                       "<!-- table:stage-4-attention end -->\n");
    for (size_t t = 0; t < 2; t++) {
        char source[256], command[128];
        snprintf(source, sizeof source, "... *const variants[] = {\n &%s,\n &%s,\n NULL,\n};\n",
                 orders[t][0], orders[t][1]);
        write_text("04_here/variants.h", source);
        snprintf(command, sizeof command, "grep -oE '^. (tiled|threads) ' t.md | head -n 1 | "
                 "grep -q %s", orders[t][0]);
        cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
        cr_expect(!system(command), "%s is not first", orders[t][0]);
    }
}

/* Where the reference was too slow the longest length that was compared; the error alone
 * where no bound is known. */
Test(tables, stage_tables_say_at_which_length_an_error_was_compared)
{
    static const char *const spoil[] = { "NR > 1 && $12 > 4096 { $29 = $30 = \"\" }",
                                         "NR > 1 { $30 = \"\" }" };
    static const char *const want[] = { "4.0e-07 / 2.0e-06 at 4k |", "4.0e-07 / – |" };
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "good.csv") == 0, "%s", said);
    write_text("t.md", "<!-- table:stage-4-attention begin -->\n"
                       "<!-- table:stage-4-attention end -->\n");
    for (size_t t = 0; t < 2; t++) {
        char command[256], text[4096];
        snprintf(command, sizeof command, "awk -F, -v OFS=, '%s 1' good.csv >results/a.csv",
                 spoil[t]);
        cr_assert(!system(command));
        cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
        slurp("t.md", text, sizeof text);
        cr_expect(strstr(text, want[t]), "not '%s' in:\n%s", want[t], text);
    }
}

/* The text of t.md after its one table `mark` was made; the exit status is in *status. */
static const char *made(const char *mark, int *status)
{
    static char text[1 << 14];
    snprintf(text, sizeof text, "<!-- table:%s begin -->\n<!-- table:%s end -->\n", mark, mark);
    write_text("t.md", text);
    *status = run("common/reports/tables.py", "--results results t.md");
    slurp("t.md", text, sizeof text);
    return text;
}

Test(tables, a_table_names_its_machine_and_may_ask_for_another)
{
    static const struct { const char *mark, *has, *lacks; int status; } cases[] = {
        { "attention", "*invented machine", "other machine", 0 },
        { "attention@other", "*other machine", "invented", 0 },
        { "machines", "| invented machine, 16 cores at 2.0 GHz | 2.00 | 1.90 | 1.70 | 40.0 | "
          "610 (64 %) |", "@", 0 },
        { "machines", "| other machine; 16 cores | 4.00 | 3.80 | 3.40 | 80.0 |", "@", 0 },
        { "attention@nobody", "", "|", 2 },
        { "untuned?", "Not measured yet: no measurement of the untuned", "|", 0 },
        { "untuned", "", "|", 1 },
    };
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv") == 0, "%s", said);
    cr_assert(run("tests/plots/synthetic.py", "results/cpu_b.csv --other") == 0, "%s", said);
    /* More lines do not make a further machine the first one. */
    cr_assert(!system("tail -n +2 results/cpu_b.csv > t && cat t t >> results/cpu_b.csv"));
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        int status;
        const char *text = made(cases[t].mark, &status);
        cr_expect(status == cases[t].status, "%s: exit %d: %s", cases[t].mark, status, said);
        cr_expect(strstr(text, cases[t].has) && !strstr(text, cases[t].lacks),
                  "%s: not '%s', or '%s', in:\n%s", cases[t].mark, cases[t].has,
                  cases[t].lacks, text);
    }
}

/* Sustained lines are twice as fast here; they stay out of the tables of the cold ones. */
Test(tables, regimes_are_not_mixed)
{
    int status;
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "results --ladder") == 0, "%s", said);
    cr_expect(strstr(made("hopper", &status), " 743 (2.48) |"), "%s", said);
    cr_expect(strstr(made("hopper-sustained", &status), " 1486 (2.48) |"), "%s", said);
    cr_expect(strstr(made("ladder", &status), " 743 (") && !strstr(made("ladder", &status), " 1486 ("), "%s", said);
    cr_expect(strstr(made("headline", &status), "**743 TFLOP/s"), "%s", said);
}

Test(tables, a_wrong_result_is_not_published)
{
    static const char *const errors[] = { "nan", "1", "inf" };
    int status;
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "good.csv") == 0, "%s", said);
    for (size_t t = 0; t < sizeof errors / sizeof *errors; t++) {
        char command[256];
        snprintf(command, sizeof command, "sed '3s/,4e-07,/,%s,/' good.csv > results/a.csv && "
                 "! cmp -s good.csv results/a.csv", errors[t]);
        cr_assert(!system(command));
        made("attention", &status);
        cr_expect(status == 2 && strstr(said, "not published"), "%s: exit %d: %s", errors[t],
                  status, said);
    }
}

Test(tables, marks_without_partner_and_unknown_tables_are_refused)
{
    static const struct { const char *text, *word; } marks[] = {
        { "<!-- table:dance begin -->\n<!-- table:dance end -->\n", "'dance'" },
        { "\n<!-- table:ladder begin -->\n", "t.md:2" },
        { "<!-- table:ladder end -->\n", "t.md:1" },
        { "<!-- table:ladder begin -->\n<!-- table:memory end -->\n", "t.md:2" },
        { "<!-- table:ladder begin -->\n<!-- table:ladder begin -->\n", "t.md:2" },
        { "<!-- table:stage-6-softmax begin -->\n<!-- table:stage-6-softmax end -->\n",
          "'stage-6-softmax'" },
    };
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "results/a.csv --gpu") == 0, "%s", said);
    for (size_t t = 0; t < sizeof marks / sizeof *marks; t++) {
        write_text("t.md", marks[t].text);
        int status = run("common/reports/tables.py", "--results results t.md");
        char now[256];
        slurp("t.md", now, sizeof now);
        cr_expect(status == 2 && strstr(said, marks[t].word), "%s: exit %d: %s",
                  marks[t].text, status, said);
        cr_expect(!strcmp(now, marks[t].text), "%s: touched", marks[t].text);
    }
}

/* A share above the ceiling is none: the table says so, and why where that is known. */
Test(tables, tables_mark_what_exceeds_the_ceiling)
{
    static const char *const spoil[] = { "NR > 1 { $27 = 130 }",
                                         "NR > 1 { $27 = 900; $17 = $17 / 10 }" };
    static const char *const want[][2] = {
        { "130 %† of copy", "*† ceiling wrong or model wrong: a cache served a pass.*" },
        { "900 %‡ of copy", "*‡ ceiling wrong or model wrong.*" } };
    if (!has_python()) cr_skip("no python3");
    cr_assert(!system("mkdir results"));
    cr_assert(run("tests/plots/synthetic.py", "good.csv") == 0, "%s", said);
    write_text("t.md", "<!-- table:stage-3-softmax begin -->\n"
                       "<!-- table:stage-3-softmax end -->\n");
    for (size_t t = 0; t < 2; t++) {
        char command[256], text[4096];
        snprintf(command, sizeof command, "awk -F, -v OFS=, '%s 1' good.csv >results/a.csv",
                 spoil[t]);
        cr_assert(!system(command));
        cr_expect(run("common/reports/tables.py", "--results results t.md") == 0, "%s", said);
        slurp("t.md", text, sizeof text);
        for (size_t w = 0; w < 2; w++)
            cr_expect(strstr(text, want[t][w]), "not '%s' in:\n%s", want[t][w], text);
    }
}
