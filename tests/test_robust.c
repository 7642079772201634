/* test_robust.c: what happens when the machine does not play along: full and read-only
 * disks, too little memory, closed streams, interruptions, missing tools.  One clear line,
 * the right exit status, and nothing lost. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npy/npy.h"

static const char *const stages[] = {"01_naive", "02_safe_softmax", "03_online_softmax",
                                     "04_monoid_tiled_cpu", "05_flash_cuda"};
enum { N_STAGES = 5 };

static char root[1024], place[64];
static char printed[1 << 14], complained[1 << 14];

static void make_place(void)
{
    const char *build = getenv("BUILD");
    cr_assert(getcwd(root, sizeof root) != NULL);
    setenv("ROOT", root, 1);
    char programs[1200];
    snprintf(programs, sizeof programs, "%s/%s", root, build ? build : "build");
    setenv("B", programs, 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    strcpy(place, "/tmp/test_robust.XXXXXX");
    cr_assert(mkdtemp(place) && !chdir(place));
}

static void remove_place(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(!chdir("/") && !system(command));
}

TestSuite(robust, .init = make_place, .fini = remove_place, .timeout = 900);

static void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

/* Runs a line of shell in which $B is the directory of the programs and $ROOT the
 * repository's; returns its exit status, 128 + the signal that ended it. */
static int shell(const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    FILE *f = fopen(".line", "w");
    cr_assert(f && fputs(line, f) >= 0 && !fclose(f));
    int status = system("sh .line >.stdout 2>.stderr");
    slurp(".stdout", printed, sizeof printed);
    slurp(".stderr", complained, sizeof complained);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int is_one_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return end && !end[1];
}

/* May this process mount a file system of its own? */
static int can_mount(void)
{
    return shell("mkdir -p small && unshare -m mount -t tmpfs -o size=4k none small") == 0;
}

#define FIXTURE "--q $ROOT/tests/fixture/q.npy --k $ROOT/tests/fixture/k.npy " \
                "--v $ROOT/tests/fixture/v.npy "

/* x [n] of numbers that are 0. */
static void save_zeros(const char *path, size_t rows, size_t cols)
{
    float *x = calloc(rows * cols, sizeof *x);
    const char *error = npy_write_f32(path, 2, (size_t[]){rows, cols}, x);
    cr_assert(!error, "%s", error);
    free(x);
}

/* q [2^20, 1] and v [1, 2^20] make an output of 4 TiB. */
Test(robust, output_beyond_memory_is_refused)
{
    save_zeros("q.npy", 1 << 20, 1), save_zeros("k.npy", 1, 1);
    save_zeros("v.npy", 1, 1 << 20);
    for (int s = 0; s < N_STAGES; s++) {
        int status = shell("$B/%s run --q q.npy --k k.npy --v v.npy --o o.npy", stages[s]);
        cr_expect(status == 2 && is_one_line(complained), "%s: %d %s", stages[s], status,
                  complained);
        cr_expect(access("o.npy", F_OK) != 0, "%s left a file", stages[s]);
    }
}

Test(robust, shapes_beyond_memory_are_not_measured)
{
    const char *const shapes[] = {
        "--rows 1099511627776 --cols 16", "--rows 1099511627776 --cols 1099511627776",
        "--seqlen-q 1099511627776 --head-dim 1099511627776 --batch 1099511627776",
        "--seqlen-q 16777216 --seqlen-k 16777216 --heads-q 4096"};
    for (int s = 0; s < N_STAGES; s++)
        for (size_t i = s == 4 ? 2 : 0; i < sizeof shapes / sizeof *shapes; i++) {
            int status = shell("$B/%s bench %s", stages[s], shapes[i]);
            cr_expect(status == 2 && is_one_line(complained), "%s %s: %d %s", stages[s],
                      shapes[i], status, complained);
        }
}

/* Every line has as many commas as the header and ends. */
#define WHOLE_LINES "awk -F, 'NR == 1 {n = NF} NF < n {exit 1}' a.csv && " \
                    "[ \"$(tail -c 1 a.csv | od -An -c | tr -d ' ')\" = '\\n' ]"

/* A file system of one page: the header and some lines fit. */
Test(robust, csv_lines_stay_whole_when_the_disk_is_full)
{
    if (!can_mount()) cr_skip_test("no right to mount a small file system");
    int status = shell("unshare -m sh -c 'mount -t tmpfs -o size=4k none small && cd small &&"
                       " for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do"
                       " $B/01_naive bench --rows 4 --cols 8 --variant naive --csv a.csv ||"
                       " { status=$?; break; }; done; cp a.csv ..; exit $status'");
    cr_expect(status == 1, "%d: %s", status, complained);
    cr_expect(strstr(complained, "No space left"), "%s", complained);
    cr_expect(shell(WHOLE_LINES) == 0);
    cr_expect(shell("[ $(wc -l <a.csv) -ge 5 ]") == 0, "lines already measured are gone");
}

Test(robust, outputs_on_a_full_disk_are_whole_or_absent)
{
    if (!can_mount()) cr_skip_test("no right to mount a small file system");
    save_zeros("x.npy", 100, 100);
    for (int s = 0; s < 4; s++) {
        int status = shell("unshare -m sh -c 'mount -t tmpfs -o size=8k none small &&"
                           " echo old >small/y.npy && $B/%s run --x x.npy --y small/y.npy;"
                           " status=$?; [ \"$(cat small/y.npy)\" = old ] &&"
                           " [ $(ls -A small | wc -l) = 1 ] || status=99; exit $status'",
                           stages[s]);
        cr_expect(status == 1 && is_one_line(complained), "%s: %d %s", stages[s], status,
                  complained);
    }
}

Test(robust, read_only_directories_are_named)
{
    if (!can_mount()) cr_skip_test("no right to mount a small file system");
    const char *const uses[] = {"run " FIXTURE "--o small/o.npy", "bench --csv small/a.csv"};
    for (int s = 0; s < N_STAGES; s++)
        for (int i = 0; i < 2; i++) {
            int status = shell("unshare -m sh -c 'mount -t tmpfs -o ro none small &&"
                               " $B/%s %s'", stages[s], uses[i]);
            cr_expect(status == 2 && is_one_line(complained) &&
                      strstr(complained, "small/"), "%s %s: %d %s", stages[s], uses[i],
                      status, complained);
        }
}

/* Interrupted after the first line is there. */
Test(robust, interrupted_bench_keeps_whole_lines)
{
    int status = shell("(trap - INT; exec $B/03_online_softmax bench --quick --csv a.csv) &"
                       " p=$!; i=0; while [ $i -lt 600 ] &&"
                       " [ $(cat a.csv 2>/dev/null | wc -l) -lt 2 ]; do sleep 0.1;"
                       " i=$((i + 1)); done; kill -TERM $p; wait $p");
    cr_expect(status == 128 + 15, "exit status %d", status);
    cr_expect(shell("[ $(wc -l <a.csv) -ge 2 ]") == 0, "the measured lines are gone");
    cr_expect(shell(WHOLE_LINES) == 0, "a line is cut off");
}

Test(robust, closed_streams_end_with_1_and_spoil_no_file)
{
    for (int s = 0; s < N_STAGES; s++) {
        int status = shell("$B/%s list >&-", stages[s]);
        cr_expect(status == 1 && is_one_line(complained), "%s list: %d %s", stages[s],
                  status, complained);
        /* without a stand-in the output file would get what is printed */
        status = shell("$B/%s run " FIXTURE "--o o.npy >&- 2>&- <&-", stages[s]);
        cr_expect(status == 1, "%s run: %d", stages[s], status);
        cr_expect(shell("$B/%s run " FIXTURE "--o p.npy && cmp o.npy p.npy", stages[s]) == 0,
                  "%s: o.npy holds something else", stages[s]);
    }
}

Test(robust, a_reader_that_leaves_early_ends_the_program_quietly)
{
    for (int s = 0; s < N_STAGES; s++) {
        /* on a slow machine check says after 10 s how far it is */
        int status = shell("$B/%s check --quick --verbose 2>said | head -n 1 &&"
                           " { grep -v '^checking ' said >&2; true; }", stages[s]);
        cr_expect(status == 0 && !*complained && is_one_line(printed), "%s: %d %s",
                  stages[s], status, complained);
    }
}

Test(robust, any_number_of_threads_gives_the_answer)
{
    const char *const numbers[] = {"1", "3", "7", "33", "0", "-1", "abc", "''"};
    for (int s = 0; s < N_STAGES; s++)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            int status = shell("OMP_NUM_THREADS=%s $B/%s run " FIXTURE "--o o.npy", numbers[i],
                               stages[s]);
            struct npy got, want;
            char at[1100];
            snprintf(at, sizeof at, "%s/tests/fixture/o.npy", root);
            cr_assert(status == 0 && !npy_read("o.npy", &got) && !npy_read(at, &want),
                      "OMP_NUM_THREADS=%s %s: %d %s", numbers[i], stages[s], status,
                      complained);
            for (size_t k = 0; k < want.count; k++) {
                float difference = ((float *)got.data)[k] - ((float *)want.data)[k];
                cr_assert(difference <= 1e-5f && difference >= -1e-5f,
                          "OMP_NUM_THREADS=%s %s: o[%zu]", numbers[i], stages[s], k);
            }
            npy_free(&got), npy_free(&want);
        }
}

/* A stand-in for a driver of CUDA 9.1, which no toolkit in use can work with. */
Test(robust, an_old_driver_is_named_and_the_cpu_computes)
{
    shell("[ -x $ROOT/build/cuda/03_online_softmax ] && B=$ROOT/build/cuda;"
          " $B/03_online_softmax check --huge; echo $B");
    if (strstr(printed, "built without GPU code"))
        cr_skip_test("no program with GPU code; make cuda BUILD=build/cuda makes one");
    char *programs = strrchr(printed, '/');
    cr_assert(programs != NULL);
    while (programs > printed && programs[-1] != '\n') programs--;
    programs[strcspn(programs, "\n")] = 0;
    setenv("B", programs, 1);
    int status = shell("echo 'int cuDriverGetVersion(int *v) { *v = 9010; return 0; }"
                       " int cuInit(unsigned f) { return (int)(f & 0); }' >f.c &&"
                       " ${CC:-cc} -shared -fPIC f.c -o libcuda.so.1");
    cr_assert(status == 0, "%s", complained);
    setenv("LD_LIBRARY_PATH", place, 1);
    status = shell("$B/03_online_softmax check --variant gpu_one_pass --huge");
    cr_expect(status == 77 && strstr(printed, "driver is for CUDA 9.1"), "%d %s", status,
              printed);
    status = shell("$B/05_flash_cuda run " FIXTURE "--o o.npy");
    cr_expect(status == 0 && strstr(printed, "executed on the CPU"), "%d %s", status,
              complained);
}

/* Combinations of files and options of `run`, under address sanitizer (tests/fuzz). */
Test(robust, any_combination_of_files_and_options_is_computed_or_refused, .timeout = 900)
{
    if (shell("[ -x $B/sanitize/quick/fuzz_run ]"))
        cr_skip_test("a build with sanitizers of its own has no fuzz_run");
    int status = shell("ASAN_OPTIONS=detect_stack_use_after_return=0:"
                       "allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1 "
                       "LSAN_OPTIONS=suppressions=$ROOT/tests/leaks.txt:print_suppressions=0 "
                       "$B/sanitize/quick/fuzz_run 1 600");
    cr_expect(status == 0, "%d: %s%s", status, printed, complained);
}
