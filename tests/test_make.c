/* test_make.c: make itself: what it refuses and in which words, what it needs and names,
 * what it skips, and what it must not touch.  Everything is built below /tmp, or not at all. */
#include "make_place.h"

#include <glob.h>

TestSuite(make, .init = make_place, .fini = remove_place, .timeout = 900);

/* One line on stderr, none on stdout, status 2, and nothing was built. */
static void refused(const char *request, const char *line)
{
    int status = shell(MAKE "%s", request);
    char *end = strchr(complained, '\n');
    cr_expect(status == 2, "make %s: exit status %d", request, status);
    cr_expect(!strncmp(complained, line, strlen(line)), "make %s says: %s, not: %s", request,
              complained, line);
    cr_expect(end && !end[1], "make %s: not one line: %s", request, complained);
    cr_expect(!*printed, "make %s prints: %s", request, printed);
    cr_expect(access("b/obj", F_OK), "make %s builds something", request);
}

Test(make, what_cannot_be_meant_is_refused_with_one_line)
{
    static const char *const cases[][2] = {
        {"stage 9", "no stage '9'; valid stages: 1 2 3 4 5\n"},
        {"-k stage 3 9", "no stage '9'; valid stages: 1 2 3 4 5\n"},
        {"-s -j2 stage 9 3", "no stage '9'; valid stages: 1 2 3 4 5\n"},
        {"-n bench 0", "no stage '0'; valid stages: 1 2 3 4 5\n"},
        {"stage test", "no stage 'test'; valid stages: 1 2 3 4 5\n"},
        {"3", "a stage number follows a verb: make stage 3\n"},
        {"3 stage", "a stage number follows a verb: make stage 3\n"},
        {"test 2", "a stage number follows a verb: make stage 2\n"},
        {"diff", "make diff needs a stage number: make diff 3\n"},
        {"trace", "make trace needs a stage number: make trace 3\n"},
        {"diff RUNG=99", "no rung '99'; stage 5 has the rungs 1 2 3 "},
        {"diff RUNG=\"x'y\"", "no rung 'x'y'; stage 5 has the rungs 1 "},
        {"diff 3 FILE=nowhere.c", "make diff: no file 02_safe_softmax/nowhere.c; FILE="},
        {"exercise 1 EX=nosuch", "EX: no exercise 'nosuch'; "},
        {"grade", "make grade needs SUBMISSIONS=dir: one folder for each student\n"},
        {"grade SUBMISSIONS=nowhere", "SUBMISSIONS: 'nowhere' is no folder "},
        {"grade SUBMISSIONS=$PLACE/file", "SUBMISSIONS: '/tmp/"},
        {"grade SUBMISSIONS=$PLACE/class OUT=$PLACE/file/x", "OUT: cannot write into '/tmp/"},
        {"grade SUBMISSIONS=$PLACE/class OUT=$PLACE/class/../class/x/y", "OUT: '/tmp/"},
        {"grade SUBMISSIONS=$PLACE/class OUT=$PLACE/class", "OUT: '/tmp/"},
        {"stage 1 BUILD=$PLACE/file/b", "BUILD: cannot write into '/tmp/"},
        {"BUILD=/proc/nowhere", "BUILD: cannot write into '/proc/nowhere'"},
        {"build BUILD='a b'", "BUILD: 'a b' holds a character "},
        {"plot RESULTS=$PLACE/file", "RESULTS: cannot write into '/tmp/"},
        {"cuda NVCC=", "make cuda needs nvcc; "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refused(cases[i][0], cases[i][1]);
    cr_expect(access("class/x", F_OK), "a folder was made among the submissions");
}

/* A PATH with the shell's own tools and make, without compilers, python, git and apt-get. */
static void bare_path(const char *more)
{
    int status = shell("mkdir $PLACE/bin; for t in make sh id mkdir cat rm grep tail head sed tr"
                       " find cmp date ls sort awk diff touch mktemp dirname basename env %s; do"
                       " ln -s $(command -v $t) $PLACE/bin/ || exit 1; done", more);
    cr_assert(status == 0, "%s", complained);
}
#define BARE "PATH=$PLACE/bin make BUILD=$PLACE/b CUDA=0 "

Test(make, missing_tools_are_named_with_the_command_that_installs_them)
{
    static const char *const cases[][3] = {
        {"exercise", "missing: python3;", "apt-get install python3\n"},
        {"NO_INSTALL=1 exercise", "missing: python3;", "brew install python\n"},
        {"stage 1", "missing: cc g++;", "dnf install gcc gcc-c++\n"},
        {"stage 1 CXX=sh CC=gcc-77", "missing: gcc-77;", "apt-get install gcc-77\n"},
        {"stage 1 CXX=sh CC='ccache sh -m64'", "missing: ccache;", "apt-get install ccache\n"},
        {"b/01_naive CC=clang-77", "missing: clang-77 clang++-77;", "install clang-77\n"},
        {"gallery CC=sh CXX=sh", "missing: git, patch, criterion", "install git patch "},
        {"grade SUBMISSIONS=$PLACE/class CC=sh CXX=sh", "missing: python3;", "install python3\n"},
    };
    bare_path("");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = shell(BARE "%s", cases[i][0]);
        cr_expect(status == 2 && strstr(complained, cases[i][1]) &&
                  strstr(complained, cases[i][2]), "make %s: exit status %d, not '%s' and '%s': "
                  "%s", cases[i][0], status, cases[i][1], cases[i][2], complained);
        cr_expect(!strstr(complained, "***") && access("b/obj", F_OK), "make %s: %s",
                  cases[i][0], complained);
    }
}

Test(make, every_need_names_its_packages)
{
    static const char *const needs[][2] = {
        {"git", " git\n"}, {"patch", " gpatch\n"}, {"python3", " python3\n"},
        {"criterion", " libcriterion-dev\n"}, {"mpi", " openmpi-bin libopenmpi-dev\n"},
        {"aarch64", " gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user\n"},
        {"browser", " chromium chromium-driver\n"},
        {"git patch git mpi", " git patch openmpi-bin libopenmpi-dev\n"},
    };
    bare_path("");
    cr_assert(!unlink("bin/make"));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        int status = shell("PATH=$PLACE/bin BUILD=$PLACE/b sh common/make/require.sh %s",
                           needs[i][0]);
        cr_expect(status == 1 && strstr(complained, "missing: ") &&
                  strstr(complained, needs[i][1]), "%s: exit status %d, not '%s': %s",
                  needs[i][0], status, needs[i][1], complained);
    }
    cr_expect(shell("sh common/make/require.sh sh") == 2, "an unknown need is accepted");
    cr_expect(shell("CC='env A=1 sh -m64' CXX=sh sh common/make/require.sh compiler") == 0,
              "several words in CC: %s", complained);
}

Test(make, what_needs_no_tool_runs_without_it)
{
    static const char *const requests[] = {"help", "stage", "diff 2", "diff RUNG=2", "diff 1"};
    bare_path("");
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        int status = shell(BARE "%s", requests[i]);
        cr_expect(status == 0 && *printed && !*complained, "make %s: exit status %d: %s",
                  requests[i], status, complained);
    }
}

/* The programs are stand-ins: with -o make takes them as they are. */
Test(make, a_target_that_cannot_run_here_is_skipped)
{
    static const char *const requests[] = {
        "-o fuzz-run-built fuzz",
        "-o $PLACE/b/01_naive profile 1", "-o $PLACE/b/05_flash_cuda profile 5",
        "-o $PLACE/b/03_online_softmax stage 3", "-o $PLACE/b/03_online_softmax bench 3",
    };
    bare_path("git");
    cr_assert(!system("mkdir -p b/sanitize/quick && ln -s /bin/true b/sanitize/quick/fuzz_run;"
                      " for s in 01_naive 03_online_softmax 05_flash_cuda; do"
                      " printf '#!/bin/sh\\necho skipped: nothing here; exit 77\\n' > b/$s;"
                      " chmod +x b/$s; done"));
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        int status = shell(BARE "CC=sh CXX=sh %s 2>&1", requests[i]);
        char *line = strstr(printed, "skipped: ");
        cr_expect(status == 0, "make %s: exit status %d: %s", requests[i], status, printed);
        cr_expect(line && (line == printed || line[-1] == '\n'), "make %s: no line 'skipped: "
                  "why' in: %s", requests[i], printed);
        cr_expect(!strstr(printed, "***"), "make %s: %s", requests[i], printed);
    }
    cr_assert(!system("printf '#!/bin/sh\\nexit 1\\n' > b/03_online_softmax"));
    int status = shell(BARE "CC=sh CXX=sh -o $PLACE/b/03_online_softmax stage 3");
    cr_expect(status == 2, "a failed check: exit status %d", status);
}

Test(make, every_rung_is_compared_with_the_one_before_it)
{
    glob_t rungs;
    char pattern[1100], before[64] = "";
    snprintf(pattern, sizeof pattern, "%s/05_flash_cuda/*/[0-9][0-9]_*.cu", root);
    cr_assert(glob(pattern, 0, NULL, &rungs) == 0 && rungs.gl_pathc >= 2);
    for (int number = 0, seen = 0; number < 100; number++)
        for (size_t i = 0; i < rungs.gl_pathc; i++) {
            char *name = strrchr(rungs.gl_pathv[i], '/') + 1, want[160];
            unsigned added, removed;
            if (atoi(name) != number) continue;
            int status = shell(MAKE "diff RUNG=%d", number);
            cr_expect(status == 0, "rung %d: exit status %d: %s", number, status, complained);
            snprintf(want, sizeof want, "/%s", name);
            cr_expect(strstr(printed, want) && strstr(printed, before), "rung %d: neither %s nor "
                      "%s in: %.300s", number, name, before, printed);
            if (seen++) {
                char *end = printed + strlen(printed) - 1;
                *end = 0;
                while (end > printed && end[-1] != '\n') end--;
                int fields = sscanf(end, "%u lines added, %u removed", &added, &removed);
                cr_expect(fields == 2 && added + removed > 0, "rung %d ends: %s", number, end);
            } else {
                cr_expect(strstr(printed, "is the first rung"), "%s", printed);
            }
            snprintf(before, sizeof before, "/%s", name);
        }
    globfree(&rungs);
}

Test(make, diff_counts_the_lines_that_it_shows)
{
    shell("mkdir -p $PLACE/one $PLACE/two && printf 'a\\nb\\n--x\\n' > $PLACE/one/f.c"
          " && printf 'a\\n++y\\nc\\nd\\n' > $PLACE/two/f.c");
    int status = shell("S=$PWD/common/make/diff.sh; cd $PLACE && sh $S two f.c one two");
    cr_expect(status == 0 && strstr(printed, "\n3 lines added, 2 removed\n"), "%d %s", status,
              printed);
}

Test(make, a_dry_run_makes_and_installs_nothing)
{
    static const char *const requests[] = {"", "test", "stage 3", "bench", "exercise 2",
                                           "grade SUBMISSIONS=$PLACE/class OUT=$PLACE/marks"};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        int status = shell("make BUILD=$PLACE/b CUDA=0 CC=gcc-77 -n %s", requests[i]);
        cr_expect(status == 0 && *printed, "make -n %s: exit status %d: %s",
                  requests[i], status, complained);
        cr_expect(access("b", F_OK) && access("marks", F_OK), "make -n %s: made a folder",
                  requests[i]);
    }
}

Test(make, a_folder_of_submissions_may_have_any_name)
{
    if (shell("python3 -c ''")) cr_skip_test("no python3");
    cr_assert(!system("mkdir \"it's \\$HOME \\\"x\\\"\""));
    int status = shell("make BUILD=$PLACE/b CUDA=0 -o exercises-built grade EX=nosuch"
                       " SUBMISSIONS=\"$PLACE/it's \\$HOME \\\"x\\\"\"");
    cr_expect(status == 2 && strstr(complained, "no stage or exercise 'nosuch'"), "%d %s",
              status, complained);
}

/* Readable in two minutes. */
Test(make, makefiles_are_short_and_help_fits_a_terminal)
{
    int status = shell("make help | awk 'length > 90 { bad = 1; print } END { exit bad }'");
    cr_expect(status == 0, "wider than 90 columns: %s", printed);
    status = shell("[ $(wc -l < Makefile) -le 140 ] || exit 1; cd common/make; for f in *.mk; do"
                   " [ $(wc -l < $f) -le 120 ] && [ \"$(head -c $((${#f} + 3)) $f)\" = \"# $f:\" ]"
                   " || { echo $f; exit 1; }; done");
    cr_expect(status == 0, "too long, or without its head comment: %s", printed);
}
