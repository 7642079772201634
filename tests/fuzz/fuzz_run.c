/* fuzz_run.c: combinations of files and options of `run`, drawn at random, given to the
 * stage programs themselves (built with address sanitizer; all five in this process).
 *
 *     fuzz_run FIRST_SEED COUNT      COUNT combinations, one a seed
 *     fuzz_run FIRST_SEED SECONDS s  as many as fit into so many seconds
 *
 * Whatever the combination: exit status 0, nothing on stderr, and outputs of the right
 * shape that the reader accepts; or 2 (77 for a variant that this machine lacks), exactly
 * one line on stderr that names the program, and no output touched.  No other file is left.
 * A finding prints its seed and its command line, and leaves its directory. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measurement/timing.h"
#include "npy/npy.h"
#include "run_draw.h"
#include "run_line.h"

/* The programs' mains, renamed. */
int main_01_naive(int argc, char **argv);
int main_02_safe_softmax(int argc, char **argv);
int main_03_online_softmax(int argc, char **argv);
int main_04_monoid_tiled_cpu(int argc, char **argv);
int main_05_flash_cuda(int argc, char **argv);

enum { N_STAGES = 5 };

static struct stage_program stages[N_STAGES] = {
    {.name = "01_naive", .main = main_01_naive},
    {.name = "02_safe_softmax", .main = main_02_safe_softmax},
    {.name = "03_online_softmax", .main = main_03_online_softmax},
    {.name = "04_monoid_tiled_cpu", .main = main_04_monoid_tiled_cpu},
    {.name = "05_flash_cuda", .main = main_05_flash_cuda},
};

static int holds_old(const char *path)
{
    char text[16];
    slurp(path, text, sizeof text);
    return !strcmp(text, "old");
}

/* Are the files here those that the line names, and not a temporary more? */
static void check_files(int outputs_before, int status, int has_second)
{
    int n_outputs = 0;
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));) {
        if (strstr(e->d_name, ".tmp")) fail("a temporary is left");
        n_outputs += !strcmp(e->d_name, "first.npy") || !strcmp(e->d_name, "second.npy");
    }
    closedir(d);
    if (status == 0 ? n_outputs < 1 + has_second : n_outputs != outputs_before)
        fail("an output is missing or appeared");
    if (status && outputs_before && !(holds_old("first.npy") && holds_old("second.npy")))
        fail("an output was touched");
}

/* The outputs have the shape that the inputs ask for. */
static void check_shapes(int softmax, int has_second)
{
    struct npy in = {.ndim = 0}, v = {.ndim = 0}, out = {.ndim = 0}, lse = {.ndim = 0};
    const char *why = npy_read(softmax ? "x.npy" : "q.npy", &in);
    if (!why && !softmax) why = npy_read("v.npy", &v);
    if (!why) why = npy_read("first.npy", &out);
    if (!why && has_second) why = npy_read("second.npy", &lse);
    if (why) fail(why);
    size_t last = in.ndim - 1;
    int right = out.dtype == F32 && out.ndim == in.ndim &&
                !memcmp(out.shape, in.shape, last * sizeof *in.shape) &&
                out.shape[last] == (softmax ? in.shape[last] : v.shape[last]);
    if (right && has_second)
        right = lse.ndim == last && !memcmp(lse.shape, in.shape, last * sizeof *in.shape);
    if (!right) fail("an output has another shape");
    npy_free(&in), npy_free(&v), npy_free(&out), npy_free(&lse);
}

static void judge(int status, int softmax, int has_second, int outputs_before)
{
    size_t length = strlen(line.stage->name);
    char *newline = strchr(error_line, '\n');
    if (status == 0) {
        if (*error_line) fail("a complaint although the status is 0");
        check_files(outputs_before, status, has_second);
        check_shapes(softmax, has_second);
        return;
    }
    if (status != 2 && status != 77) fail("a status that is none of 0, 2 and 77");
    if (!newline || newline[1]) fail("not exactly one line");
    if (strncmp(error_line, line.stage->name, length) || error_line[length] != ':')
        fail("the line does not name the program");
    check_files(outputs_before, status, has_second);
}

static void write_old(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs("old", f) < 0 || fclose(f)) abort();
}

/* One combination; returns its exit status. */
static int combination(void)
{
    static const char *const names[] = {"x.npy", "q.npy", "k.npy", "v.npy", "bias.npy",
                                        "sinks.npy", "cq.npy", "ck.npy", "first.npy",
                                        "second.npy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(names[i]);
    draws = (struct random){seed};
    begin_line(&stages[below(N_STAGES)]);
    add("run", NULL);
    int softmax = rarely(3), outputs_before = rarely(2) ? 2 : 0, has_second = 0;
    if (softmax) draw_softmax();
    else draw_attention();
    draw_options();
    for (int i = 0; i < line.argc; i++) has_second |= !strcmp(line.argv[i], "--lse");
    if (outputs_before) write_old("first.npy"), write_old("second.npy");
    int status = execute_line();
    judge(status, softmax, has_second, outputs_before);
    return status;
}

/* Of the sanitizer's runtime, where there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* What the children count, in memory that they share with their parent. */
static struct { size_t done, accepted; } *counts;

/* Combinations seed .. last - 1, in a process of their own: the runs of one process leave
 * the stacks of ended threads behind, and its end looks for leaks.  Returns its status. */
static int block(uint64_t last, double end)
{
    pid_t child = fork();
    int status;
    if (child > 0) return waitpid(child, &status, 0) == child ? status : 1;
    if (child < 0) return perror("fuzz_run: fork"), 1;
    atexit(end_of_process);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(end_of_process);
    for (int s = 0; s < N_STAGES; s++) learn_variants(&stages[s]);
    for (; seed < last && (end == 0 || seconds_now() < end); seed++) {
        counts->accepted += combination() == 0;
        counts->done++;
    }
    begin_line(&stages[0]);
    free(line.argv[0]);
    exit(0);
}

int main(int argc, char **argv)
{
    enum { BLOCK = 300 };
    if (argc < 3) return fprintf(stderr, "usage: fuzz_run FIRST_SEED COUNT [s]\n"), 2;
    uint64_t first = strtoull(argv[1], NULL, 0), count = strtoull(argv[2], NULL, 0);
    double end = argc > 3 ? seconds_now() + (double)count : 0;
    uint64_t last = end > 0 ? UINT64_MAX : first + count;
    terminal = fcntl(2, F_DUPFD_CLOEXEC, 10);
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    if (counts == MAP_FAILED || !mkdtemp(place) || chdir(place))
        return perror("fuzz_run: /tmp"), 1;
    for (seed = first; seed < last && (end == 0 || seconds_now() < end); seed += BLOCK)
        if (block(last - seed < BLOCK ? last : seed + BLOCK, end)) return 1;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", place);
    if (chdir("/") || system(command)) return 1;
    printf("fuzz run: %zu combinations from seed %llu, %zu accepted, no finding\n",
           counts->done, (unsigned long long)first, counts->accepted);
    /* Everything refused, or nothing, would mean that nothing was tried. */
    return counts->done >= 100 && (counts->accepted < counts->done / 10 ||
                                   counts->accepted == counts->done);
}
