/* speed.c: how fast is a submission?  Nothing that it does to its own process changes the
 * answer:
 *
 *     the clock      is read in this process, before the request and after the worker stands
 *                    still (SIGSTOP) and the judge has looked at some of its results: what a
 *                    thread or a kernel of it writes later is seen as a change
 *     the inputs     of each run are drawn after the run before it has been compared, from the
 *                    system's random numbers: nothing can be prepared or kept
 *     the outputs    are compared after each run, some rows chosen after the worker stands still
 *                    in double, the sum or the range of all rows
 *     the yardstick  is the solution, in turn with it on the same inputs, and the memory or the
 *                    arithmetic of this machine, measured between the runs; the worker stands
 *                    still meanwhile, and has one core.  On a GPU it is a copy of the same bytes
 *                    by a program of ours (copier.cu) in the worker's place, or cuBLAS; what an
 *                    empty kernel takes there is taken off both
 *     the floor      a result above the ceiling is no speed but an error
 *
 * The arrays lie in the worker's place (place.h), and are not copied. */
#include "speed.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "contest.h"
#include "gpu/gpu.h"
#include "measurement/ceiling.h"
#include "measurement/timing.h"

enum { WARM_UP = 2, MOST_RUNS = 99, LOOKS = 3 };
#define TURN_S 1e-3 /* by which copies are later when somebody else's kernel runs */
#define LOOK_S 4e-3 /* of copies: longer than a turn of the GPU */

/* Nothing of the worker's process moves after this. */
static void freeze(struct worker *w)
{
    int status;
    if (!w->pid || kill(-w->pid, SIGSTOP)) return;
    while (waitpid(w->pid, &status, WUNTRACED | __WALL) < 0 && errno == EINTR) continue;
}

/* Seconds from the request until the worker stands still and the judge has seen some of its
 * results. */
static double turn(struct contest *c, struct worker *w, struct place *place,
                   const struct request *q, int *answered)
{
    struct reply r;
    double t = seconds_now();
    if (w->pid) kill(-w->pid, SIGCONT);
    *answered = worker_ask(w, q, &r);
    freeze(w);
    contest_choose(c);
    place->kind->look(place, c->at, SAMPLES, c->seen);
    return seconds_now() - t;
}

/* Seconds of one run, or -1 and why: the worker gave no answer, or a wrong one. */
static double run(struct contest *c, struct worker *w, struct place *place, const char **why)
{
    int answered;
    contest_hand_over(c, place);
    c->q.gpu_bytes = place->gpu_bytes;
    double t = turn(c, w, place, &c->q, &answered);
    *why = answered ? contest_take(c, place) : w->failure;
    if (!*why) *why = contest_mistake(c);
    return *why ? -1 : t;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* The clock of the processor, in MHz, as the system tells it; 0: it does not. */
static double clock_mhz(void)
{
    char line[256];
    double mhz = 0, most = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "cpu MHz : %lf", &mhz) == 1 && mhz > most) most = mhz;
    if (f) fclose(f);
    return most;
}

/* The clock of the GPU, likewise. */
static double gpu_clock_mhz(void)
{
    double mhz = 0;
    FILE *f = popen("nvidia-smi --query-gpu=clocks.sm --format=csv,noheader,nounits -i 0 "
                    "2>/dev/null", "r");
    if (f && fscanf(f, "%lf", &mhz) != 1) mhz = 0;
    if (f) pclose(f);
    return mhz;
}

/* What the machine can do at most, and what the work needs of it. */
struct yardstick {
    int rows, gpu;                  /* softmax, or attention */
    struct ceiling_memory memory;   /* of a CPU */
    struct worker *copier;          /* of a GPU; it has the worker's place */
    double copy, empty;             /* its least seconds for a copy and for no work */
    int copies;                     /* by the judge, in one look */
    double idle;                    /* their seconds before the worker used the GPU */
};

static const char *name_of(const struct yardstick *y)
{
    return y->rows ? "copy" : y->gpu ? "gemm" : "fma";
}

/* Seconds of n copies on the GPU. */
static double gpu_copies(const struct contest *c, struct place *place, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double s = place->kind->copy(place, c->n_in[0] * dtype_size(c->p.dtype));
        if (s <= 0) machine_fails("no memory for a copy", "on the GPU");
        sum += s;
    }
    return sum;
}

/* A GPU gives programs turns of a millisecond or more: a kernel that the worker left running,
 * which would read the next inputs before the clock starts, makes our copies wait, each time. */
static int gpu_is_ours(const struct yardstick *y, const struct contest *c, struct place *place)
{
    for (int i = 0; i < LOOKS; i++)
        if (gpu_copies(c, place, y->copies) < y->idle + TURN_S) return 1;
    return 0;
}

/* The copier's seconds, in the worker's place and by the worker's clock: of the copy of x into y,
 * or of an empty kernel, if they are the least. */
static void copier_runs(struct yardstick *y, struct contest *c, struct place *place, enum op op)
{
    struct request q = c->q;
    int answered;
    double *least = op == OP_SOFTMAX ? &y->copy : &y->empty;
    q.gpu_bytes = place->gpu_bytes;
    q.problem.op = op;
    double t = turn(c, y->copier, place, &q, &answered);
    if (!answered) machine_fails("the copier", y->copier->failure);
    if (t < *least) *least = t;
}

/* Between the runs, while the worker stands still.  Returns whether the machine is ours. */
static int look_at_machine(struct yardstick *y, struct contest *c, struct place *place)
{
    if (!y->gpu && y->rows) ceiling_memory_look(&y->memory);
    if (!y->gpu) return 1;
    if (!gpu_is_ours(y, c, place)) return 0;
    if (y->rows) copier_runs(y, c, place, OP_SOFTMAX);
    copier_runs(y, c, place, OP_ATTENTION);
    return 1;
}

/* GB/s or GFLOP/s. */
static double ceiling_of(struct yardstick *y, const struct contest *c)
{
    if (y->rows && y->gpu)
        return 2e-9 * (double)(c->n_in[0] * dtype_size(c->p.dtype)) / (y->copy - y->empty);
    if (y->rows) return ceiling_memory_gbps(&y->memory);
    return y->gpu ? gpu_gemm_gflops(c->p.dtype) : ceiling_fma_gflops(1);
}

/* A share above this is an error.  What a library reaches is no hard limit: the best kernels of
 * stage 5 are a few percent above cuBLAS. */
static double most_of(const struct yardstick *y) { return y->gpu && !y->rows ? 125 : CEILING_MOST; }

/* The share of `ceiling` when the work takes s seconds, in percent. */
static double share_of(const struct yardstick *y, const struct contest *c, double s, double ceiling)
{
    double needed = y->rows ? 2e-9 * (double)(c->n_out[0] * dtype_size(c->p.dtype))
                            : 4e-9 * (double)c->n_out[0] * (double)c->p.seqlen_k;
    return 100 * needed / s / ceiling;
}

/* Runs everything.  Returns NULL, or why the worker's speed does not count. */
static const char *take_turns(struct contest *c, struct worker *const who[2], struct place place[2],
                              struct yardstick *y, int runs, double t[2][MOST_RUNS])
{
    for (int i = -WARM_UP; i < runs; i++) {
        if (!look_at_machine(y, c, &place[0])) return "something of it still runs on the GPU";
        contest_draw(c);
        for (int k = 0; k < 2; k++) {
            int turn = (i & 1) ^ k;
            const char *why;
            if (!who[turn]) continue;
            double s = run(c, who[turn], &place[turn], &why);
            if (why && turn == 1) machine_fails("the solution, timed", why);
            if (why) return why;
            if (i >= 0) t[turn][i] = s;
        }
    }
    return NULL;
}

/* Before the worker uses the GPU: how long copies take. */
static void start_copier(struct yardstick *y, struct contest *c, struct place *place,
                         const char *program, int gpu_fd)
{
    static struct worker copier;
    y->copier = &copier;
    if (!worker_new(&copier, program)) machine_fails("no shared file", strerror(errno));
    copier.gpu_fd = gpu_fd;
    double one = gpu_copies(c, place, 4) / 4, warm = gpu_copies(c, place, 4) / 4;
    y->copies = 1 + (int)(LOOK_S / (warm < one ? warm : one));
    y->idle = gpu_copies(c, place, y->copies);
    for (int i = 0; i < LOOKS; i++) copier_runs(y, c, place, y->rows ? OP_SOFTMAX : OP_ATTENTION);
}

/* Where the arrays of w lie.  On a GPU its process of the cases ends before, and with it all that
 * it has launched and allocated there.  Returns 0 when they do not fit into the shared file. */
static int make_place(struct place *place, struct worker *w, size_t n, int gpu)
{
    if (gpu) worker_stop(w, "end");
    place->kind = gpu ? on_gpu() : &in_shared_file;
    int made = place->kind->make(place, w, n);
    if (gpu && !made) machine_fails("no memory for the timed work", "on the GPU");
    return made;
}

int time_worker(struct worker *w, struct worker *solution, const struct timed_work *work)
{
    static struct contest c;
    static struct yardstick y;
    static double t[2][MOST_RUNS];
    struct worker *const who[2] = {w, work->gpu ? NULL : solution};
    struct place place[2] = {{0}};
    double ratio[MOST_RUNS], (*mhz)(void) = work->gpu ? gpu_clock_mhz : clock_mhz;
    double first_mhz = mhz(), least = INFINITY;
    int runs = work->runs;
    if (runs < 1 || runs > MOST_RUNS || !contest_understand(&c, work->words, work->dtype)) return 2;
    y = (struct yardstick){.rows = c.p.op == OP_SOFTMAX, .gpu = work->gpu};
    if (y.gpu) y.copy = y.empty = INFINITY;
    y.memory = (struct ceiling_memory){.x = c.in[0], .y = c.out[0], .n = c.n_out[0], .threads = 1};
    for (int k = 0; k < 2; k++)
        if (who[k] && !make_place(&place[k], who[k], c.bytes, work->gpu)) return 2;
    if (work->gpu) {
        omp_set_num_threads(omp_get_num_procs()); /* gigabytes are drawn and compared */
        start_copier(&y, &c, &place[0], work->copier, w->gpu_fd);
    }
    const char *why = take_turns(&c, who, place, &y, runs, t);
    if (why) return printf("untimed\t%s\n", why), 0;
    for (int i = 0; i < runs; i++) {
        ratio[i] = t[1][i] / t[0][i]; /* 0 without a solution */
        if (t[0][i] < least) least = t[0][i];
    }
    worker_stop(w, "end"); /* cuBLAS needs the GPU's memory too */
    double ceiling = ceiling_of(&y, &c), middle = median(t[0], runs) - y.empty;
    least -= y.empty;
    double most = share_of(&y, &c, least, ceiling);
    if (!(most > 0 && most <= most_of(&y))) /* also without a ceiling */
        return printf("untimed\tfaster than possible: %.0f %% of %s\n", most, name_of(&y)), 0;
    printf("timed\t%.6g\t%.6g\t%.6g\t%.4g\t%.4g\t%s\t%.4g\t%.0f\t%.0f\t%d\n", middle, least,
           median(t[1], runs), median(ratio, runs), share_of(&y, &c, middle, ceiling), name_of(&y),
           ceiling, first_mhz, mhz(), runs);
    return 0;
}
