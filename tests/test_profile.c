/* test_profile.c: `make profile` with a stand-in for ncu (tests/profile/): what it asks,
 * and what it makes of the counters. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "last_rung.h"

static char place[64], said[1 << 14];

static void slurp(const char *name, char *text, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", place, name);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

static void make_place(void)
{
    strcpy(place, "/tmp/test_profile.XXXXXX");
    cr_assert(mkdtemp(place) != NULL);
    setenv("ASKED", place, 1);
}

static void remove_place(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(!system(command));
}

TestSuite(profile, .init = make_place, .fini = remove_place, .timeout = 900);

/* counters.sh of a stage with a PATH that begins with `tools`; its exit status. */
static int profile_stage(const char *stage, const char *program, const char *tools,
                         const char *roof)
{
    char command[1024];
    snprintf(command, sizeof command,
             "env ASKED=%s/asked %s sh common/reports/counters.sh %s tests/profile/%s %s %s "
             "> %s/said 2>&1", place, tools, stage, program, place, roof, place);
    int status = system(command);
    slurp("said", said, sizeof said);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static int profile(const char *tools, const char *roof)
{
    return profile_stage("05_flash_cuda", "program", tools, roof);
}

/* The field of a column in the line of a variant that has `value_of_key` in the column
 * `key`, or "none". */
static const char *field_of(const char *file, const char *variant, const char *key,
                            const char *value_of_key, const char *column)
{
    static char text[1 << 14], found[64];
    slurp(file, text, sizeof text);
    char *header = strtok(text, "\n"), names[4096];
    for (char *line; (line = strtok(NULL, "\n"));) {
        char *cell = line, *rest = names;
        int mine = 0;
        strcpy(found, "none");
        snprintf(names, sizeof names, "%s", header);
        for (char *name; (name = strsep(&rest, ","));) {
            char *value = strsep(&cell, ",");
            mine += !strcmp(name, "variant") && !strcmp(value, variant);
            mine += !strcmp(name, key) && !strcmp(value, value_of_key);
            if (!strcmp(name, column)) snprintf(found, sizeof found, "%s", value);
        }
        if (mine == 2) return found;
    }
    return "none";
}

static const char *field(const char *variant, const char *head_dim, const char *column)
{
    return field_of("profile_program.csv", variant, "head_dim", head_dim, column);
}

static int has_python(void) { return !system("python3 -c '' 2>/dev/null"); }

Test(profile, counters_of_every_rung_are_in_the_csv)
{
    if (!has_python()) cr_skip_test("no python3");
    cr_assert(profile("PATH=tests/profile:$PATH", "tests/profile/roof") == 0, "%s", said);
    static const struct { const char *variant, *d, *column, *want; } cases[] = {
        {"lazy_rescaling", "128", "tensor_pct", "71.2"}, {"lazy_rescaling", "64", "exp_pct", "40.0"},
        {"lazy_rescaling", "64", "bytes_measured", "1700500000"}, /* the unit is Mbyte, Gbyte */
        {"lazy_rescaling", "64", "median_s", "0.0025"}, {"lazy_rescaling", "64", "gflops", "800000"},
        {"lazy_rescaling", "64", "reps", ""},            /* so that it is no measured time */
        {"lazy_rescaling", "64", "conflict_pct", "25.0"}, {"tiled", "64", "dtype", "f32"},
        {"lazy_rescaling", "64", "local_bytes", "96"}, {"lazy_rescaling", "64", "clock_ghz", "1.75"},
        {"split_kv", "128", "median_s", "0.003"}, {"split_kv", "128", "registers", "168"},
        {"no_softmax", "128", "stage", "roof"}, {"study", "64", "stage", "none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = field(cases[i].variant, cases[i].d, cases[i].column);
        cr_expect_str_eq(got, cases[i].want, "%s d %s %s: got %s, want %s", cases[i].variant,
                         cases[i].d, cases[i].column, got, cases[i].want);
    }
    char asked[1 << 14];
    slurp("asked", asked, sizeof asked);
    cr_expect(strstr(asked, "regex:tiled_kernel") && !strstr(asked, "tiled --csv /tmp/x"));
    char last[64], want[128];
    last_rung(".", last);
    snprintf(want, sizeof want, "profile/roof bench --quick --variant %s", last);
    cr_expect(strstr(asked, want), "%s", asked);
}

/* 16 blocks of gpu_block_per_row read [16, 16M]; gpu_thread_per_row would have one block of
 * 16 threads there and is not asked. */
Test(profile, stage_1_is_counted_at_shapes_of_few_and_of_many_blocks)
{
    if (!has_python()) cr_skip_test("no python3");
    cr_assert(profile_stage("01_naive", "naive", "PATH=tests/profile:$PATH", "") == 0, "%s", said);
    static const struct { const char *variant, *rows, *column, *want; } cases[] = {
        {"gpu_thread_per_row", "4096", "sectors_per_load", "32.0"},
        {"gpu_thread_per_row", "4096", "l1_hit_pct", "87.4"},
        {"gpu_thread_per_row", "262144", "l1_pct", "61.5"},
        {"gpu_thread_per_row", "262144", "active_pct", "99.5"},
        {"gpu_block_per_row", "262144", "sectors_per_load", "4.0"},
        {"gpu_block_per_row", "16", "active_pct", "12.1"},
        {"gpu_block_per_row", "16", "bytes_measured", "1700500000"},
        {"gpu_block_per_row", "16", "tensor_pct", ""}, /* was not asked for */
        {"gpu_thread_per_row", "16", "stage", "none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = field_of("profile_naive.csv", cases[i].variant, "rows",
                                   cases[i].rows, cases[i].column);
        cr_expect_str_eq(got, cases[i].want, "%s [%s, ] %s: got %s, want %s", cases[i].variant,
                         cases[i].rows, cases[i].column, got, cases[i].want);
    }
    char asked[1 << 14];
    slurp("asked", asked, sizeof asked);
    cr_expect(strstr(asked, "-k regex:thread_per_row_kernel --launch-skip 2 --launch-count 1 "
                            "tests/profile/naive bench --quick --variant gpu_thread_per_row"));
    cr_expect(strstr(asked, "--op softmax --dtype f16 --rows 16 --cols 16777216"), "%s", asked);
}

Test(profile, without_ncu_or_its_permission_is_a_skip_that_says_so)
{
    /* the tools but no ncu: a PATH of links to what the script needs */
    char tools[256];
    snprintf(tools, sizeof tools, "mkdir %s/bin && for t in sh mktemp rm cat grep awk basename;"
             " do ln -s $(command -v $t) %s/bin/; done", place, place);
    cr_assert(!system(tools));
    snprintf(tools, sizeof tools, "PATH=%s/bin", place);
    cr_expect(profile(tools, "") == 77, "%s", said);
    cr_expect(strstr(said, "skipped: ncu (Nsight Compute) is not on the PATH"), "%s", said);
    cr_expect(profile("REFUSES=1 PATH=tests/profile:$PATH", "") == 77, "%s", said);
    cr_expect(strstr(said, "skipped: this machine refuses the counters"), "%s", said);
    cr_expect(strstr(said, "no roof"), "%s", said);
    cr_expect_str_eq(field("tiled", "64", "stage"), "none"); /* and writes nothing */
}
