/* judge.c: is an exercise right?  Runs one worker on the cases that the solution's worker
 * promises to do, compares with the reference, and writes one line a case.
 *
 *     judge SOLUTION WORKER [--quick] [--speed] [--cpu S] [--wall S] [--memory MiB]
 *                           [--seed N] [--draw N] [--skeleton] [--timed WORK [--runs N]]
 *                           [--dtype f16] [--executed] [--gpu COPIER] [--gpu-jail] [--jail N]
 *
 * Nothing that the worker prints or returns counts: its outputs are compared in this
 * process, which the worker cannot write to.  A worker that ends, crashes, or computes
 * longer than --cpu seconds for one case has failed that case and is started again for
 * the next, for CRASHES and HANGS times in all.  --seed gives all cases other numbers.
 * --draw adds N problems drawn from the seed: hidden shapes.  --skeleton: SOLUTION is none,
 * it only describes itself (in a repository for students).  --timed measures a worker that is
 * right in all cases (speed.c).  --dtype: all arrays have this type.  --executed: the worker
 * executes a CUDA kernel on the CPU, so only cases that are small enough.  --gpu: it computes on a
 * GPU, which a jail must let it use (jail.h), and COPIER is the program of copier.cu; --gpu-jail:
 * in that jail, without a GPU.  --memory: in that jail at least GPU_MIB, of which CUDA itself needs
 * some.  --jail: less of it, to find out what a driver needs (0: none of the system's, 1: the files
 * are not hidden).
 *
 * A submission that crashes or takes too long is not always to blame.  The solution is then
 * asked the same; when it has no answer either, the judge ends with status 3 and no verdict:
 * this machine lacks memory, processes or time.
 *
 * Lines on stdout, fields separated by tabs:
 *     jail    1 when the system-call filter is in force, 2 when files are hidden too
 *     case    name, type, elements, "ok" or why not, where, got, want, error, allowed
 *     array   of a case that failed and whose arrays have up to SMALL elements: the case,
 *             the array, "is" or "expected", the numbers
 *     speed   least seconds of worker and solution on one shape
 *     timed   median and least seconds, those of the solution, solution / worker, percent of
 *             the ceiling, the ceiling's name and size (GB/s, GFLOP/s), the clock in MHz before
 *             and after, runs
 *     untimed why the speed does not count
 *     said    what the worker wrote to stderr before its first failure, a line each
 *     done    cases, failed
 * Exit status: 0 judged (right or wrong), 2 bad usage, 3 the solution's worker fails, or
 * this machine does.
 *
 *     judge compile WRITABLE READABLE ... -- COMMAND ARGUMENTS
 *
 * runs a compiler on somebody else's source: it writes below one folder only, and reads only
 * that, the system's tools and headers, and the READABLE paths.  Without a command: is
 * that so on this machine (status 0) or not (1)? */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "place.h"
#include "problem/variant.h"
#include "speed.h"
#include "trial.h"

enum { COMPILE_S = 30, COMPILE_MIB = 2048, COMPILED_FILE_MIB = 8, GPU_MIB = 4096 };

static void print_words(struct worker *w)
{
    for (char *c = w->words; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\n') || *c == 127) *c = ' ';
    for (char *line = strtok(w->words, "\n"); line; line = strtok(NULL, "\n"))
        printf("said\t%s\n", line);
}

static int usage(void)
{
    fprintf(stderr, "usage: judge SOLUTION WORKER [--quick] [--speed] [--cpu S] [--wall S] "
                    "[--memory MiB] [--seed N] [--draw N] [--skeleton] "
                    "[--timed WORK [--runs N]] [--dtype f32|f16|bf16] [--executed] [--gpu COPIER] "
                    "[--gpu-jail] [--jail 0|1|2]\n");
    return 2;
}

/* compile WRITABLE READABLE ... -- COMMAND ARGUMENTS */
static int compile(char **word)
{
    const struct limits few = {.cpu_s = COMPILE_S, .memory = (size_t)COMPILE_MIB << 20};
    char *writable = word[0], **end = word;
    while (*end && strcmp(*end, "--")) end++;
    if (!*end || end == word) return 2;
    *end++ = NULL;
    int hidden = jail_compiler(&few, (size_t)COMPILED_FILE_MIB << 20,
                               (const char *const *)(word + 1), writable);
    if (!*end) return !hidden;
    execvp(*end, end);
    fprintf(stderr, "judge: %s: %s\n", *end, strerror(errno));
    return 127;
}

/* The options after SOLUTION and WORKER. */
struct command {
    int quick, speed;
    size_t draw;
    struct timed_work work; /* of --timed */
};

static int read_dtype(const char *word, enum dtype *dtype)
{
    for (int i = 0; i < N_DTYPES; i++) {
        *dtype = (enum dtype)i;
        if (!strcmp(word, dtype_name(*dtype))) return 1;
    }
    return 0;
}

/* Reads the options; also into t and the workers' limits.  Returns 0 when one is wrong. */
static int read_options(int argc, char **argv, struct command *c, struct trial *t)
{
    for (int i = 3; i < argc; i++) {
        double value = i + 1 < argc ? atof(argv[i + 1]) : 0;
        if (!strcmp(argv[i], "--quick")) c->quick = 1;
        else if (!strcmp(argv[i], "--speed")) c->speed = 1;
        else if (!strcmp(argv[i], "--skeleton")) t->unsolved = 1;
        else if (!strcmp(argv[i], "--executed")) t->executed = 1;
        else if (!strcmp(argv[i], "--gpu") && i + 1 < argc)
            c->work.gpu = worker_limits.gpu = 1, c->work.copier = argv[++i];
        else if (!strcmp(argv[i], "--gpu-jail")) worker_limits.gpu = 1;
        else if (!strcmp(argv[i], "--dtype") && i + 1 < argc && read_dtype(argv[i + 1], &t->dtype))
            i++;
        else if (!strcmp(argv[i], "--timed") && i + 1 < argc) c->work.words = argv[++i];
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            t->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--jail") && i + 1 < argc) {
            worker_limits.hide_files = value >= 2, worker_limits.any_call = value < 1, i++;
        }
        else if (value <= 0) return 0;
        else if (!strcmp(argv[i], "--runs")) c->work.runs = (int)value, i++;
        else if (!strcmp(argv[i], "--draw")) c->draw = (size_t)value, i++;
        else if (!strcmp(argv[i], "--cpu")) worker_limits.cpu_s = value, i++;
        else if (!strcmp(argv[i], "--wall")) worker_limits.wall_s = value, i++;
        else if (strcmp(argv[i], "--memory")) return 0;
        else worker_limits.memory = (size_t)(value * 0x1p20), i++;
    }
    if (worker_limits.gpu && worker_limits.memory < (size_t)GPU_MIB << 20)
        worker_limits.memory = (size_t)GPU_MIB << 20;
    worker_limits.one_core = c->work.words && !c->work.gpu;
    if (c->work.words && !c->work.gpu) region_bytes = TIMED_BYTES;
    c->work.dtype = t->dtype;
    return 1;
}

int main(int argc, char **argv)
{
    static struct worker solution, worker;
    struct trial t = {.worker = &worker, .solution = &solution};
    struct command c = {.work = {.runs = 15}};
    if (argc < 3) return usage();
    if (!strcmp(argv[1], "compile")) {
        int status = compile(argv + 2);
        return status == 2 ? usage() : status;
    }
    if (!read_options(argc, argv, &c, &t)) return usage();
    if (c.work.gpu && !on_gpu()) {
        fprintf(stderr, "judge: --gpu: %s\n", gpu_why_not());
        return 3;
    }
    signal(SIGPIPE, SIG_IGN);
#ifdef PR_SET_DUMPABLE
    prctl(PR_SET_DUMPABLE, 0); /* nobody else of this user reads or traces the judge */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (!worker_new(&solution, argv[1]) || !worker_new(&worker, argv[2])) {
        fprintf(stderr, "judge: no shared file: %s\n", strerror(errno));
        return 3;
    }
    trial_describe(&t);
    if (c.work.gpu) t.executed = 0;
    printf("jail\t%d\n", solution.jailed);
    trial_listed(&t, c.quick);
    trial_drawn(&t, c.draw);
    if (c.speed && !t.n_failed && !t.unsolved) trial_speed(&t);
    if (c.work.words && t.n_failed) printf("untimed\tnot right in all cases\n");
    if (c.work.words && !t.n_failed &&
        time_worker(&worker, t.unsolved ? NULL : &solution, &c.work))
        return usage();
    worker_stop(&solution, "end");
    worker_stop(&worker, "end");
    print_words(&worker);
    printf("done\t%zu\t%zu\n", t.n_cases, t.n_failed);
    return 0;
}
