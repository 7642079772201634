/* speed.c: how fast is a submission?  Nothing that it does to its own process changes the
 * answer:
 *
 *     the clock      is read in this process, before the request and after the worker stands
 *                    still (SIGSTOP): what a thread of it does later is never seen
 *     the inputs     of each run are drawn after the run before it has been compared, from the
 *                    system's random numbers: nothing can be prepared or kept
 *     the outputs    are compared after each run, some rows chosen after the worker stands still
 *                    in double, the sum or the range of all rows
 *     the yardstick  is the solution, in turn with it on the same inputs, and the memory or the
 *                    arithmetic of this machine, measured between the runs; the worker stands
 *                    still meanwhile, and has one core
 *     the floor      a result above the ceiling is no speed but an error
 *
 * The arrays lie in the shared file, and are not copied. */
#include "speed.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>

#include "measurement/ceiling.h"
#include "measurement/timing.h"
#include "problem/random.h"

enum { WARM_UP = 2, MOST_RUNS = 99, ROWS_CHECKED = 24, FRAME = 4096 };
#define UNWRITTEN 0x7fc0dead

struct contest {
    struct problem p;
    size_t n_in[3], n_out[2];   /* softmax: x; y.  attention: q, k, v; o, lse */
    float *in[3], *out[2];      /* ours: the workers' memory may change at any time */
    struct request q;           /* TIMED: where the arrays lie in the shared file */
};

static struct random fresh(void)
{
    struct random r = {0};
    if (getrandom(&r.state, sizeof r.state, 0) != sizeof r.state)
        machine_fails("no random numbers", strerror(errno));
    return r;
}

/* Reads the description of the work.  Returns 0 when it is none, or too large. */
static int understand(struct contest *c, const char *work)
{
    static const int in_at[] = {AT_Q, AT_K, AT_V}, out_at[] = {AT_O, AT_LSE};
    struct problem *p = &c->p;
    size_t heads, n, d, used = 0;
    char end;
    if (sscanf(work, "softmax:%zux%zu%c", &p->rows, &p->cols, &end) == 2) {
        p->op = OP_SOFTMAX;
        if (!p->rows || !p->cols || p->rows > (1 << 25) / p->cols) return 0;
        c->n_in[0] = c->n_out[0] = p->rows * p->cols;
    } else if (sscanf(work, "attention:%zux%zux%zu%c", &heads, &n, &d, &end) == 3) {
        if (!heads || !n || !d || heads > 64 || n > 65536 || d > 256) return 0;
        p->op = OP_ATTENTION;
        p->batch = 1;
        p->heads_q = p->heads_kv = heads;
        p->seqlen_q = p->seqlen_k = n;
        p->head_dim = p->head_dim_v = d;
        p->scale = 1 / sqrtf((float)d);
        for (int i = 0; i < 3; i++) c->n_in[i] = heads * n * d;
        c->n_out[0] = heads * n * d;
        c->n_out[1] = heads * n;
    } else {
        return 0;
    }
    c->q = (struct request){.kind = TIMED, .problem = *p, .guard = FRAME};
    int rows = p->op == OP_SOFTMAX;
    for (int i = 0; i < 3; i++) {
        struct span *s = &c->q.span[rows ? AT_X : in_at[i]];
        if (!c->n_in[i]) continue;
        *s = (struct span){used, c->n_in[i] * sizeof(float)};
        used += (s->bytes + FRAME - 1) / FRAME * FRAME;
    }
    for (int i = 0; i < 2; i++) {
        struct span *s = &c->q.span[rows ? AT_Y : out_at[i]];
        if (!c->n_out[i]) continue;
        *s = (struct span){used, c->n_out[i] * sizeof(float) + 2 * FRAME};
        used += (s->bytes + FRAME - 1) / FRAME * FRAME;
    }
    for (int i = 0; i < 3; i++)
        if (c->n_in[i]) c->in[i] = aligned_alloc(64, (c->n_in[i] * sizeof(float) + 63) / 64 * 64);
    for (int i = 0; i < 2; i++)
        if (c->n_out[i]) c->out[i] = aligned_alloc(64, (c->n_out[i] * sizeof(float) + 63) / 64 * 64);
    return used <= region_bytes;
}

static const struct span *span_in(const struct contest *c, int i)
{
    return &c->q.span[c->p.op == OP_SOFTMAX ? AT_X : AT_Q + i];
}

static const struct span *span_out(const struct contest *c, int i)
{
    return &c->q.span[c->p.op == OP_SOFTMAX ? AT_Y : AT_O + i];
}

/* New numbers: scores between -6 and 6, values between -1 and 1. */
static void draw(struct contest *c)
{
    struct random r = fresh();
    float width = c->p.op == OP_SOFTMAX ? 12 : 2;
    for (int a = 0; a < 3; a++)
        for (size_t i = 0; i < c->n_in[a]; i++)
            c->in[a][i] = width * (random_uniform(&r) - 0.5f);
}

/* Puts the inputs into a worker's shared file, and what is not a number into its outputs. */
static void hand_over(const struct contest *c, struct worker *w)
{
    for (int i = 0; i < 3; i++)
        if (c->n_in[i]) memcpy(w->region + span_in(c, i)->offset, c->in[i], span_in(c, i)->bytes);
    for (int i = 0; i < 2; i++) {
        uint32_t *at = (uint32_t *)(w->region + span_out(c, i)->offset);
        for (size_t k = 0; k < span_out(c, i)->bytes / 4; k++) at[k] = UNWRITTEN;
    }
}

/* Nothing of the worker moves after this. */
static void freeze(struct worker *w)
{
    int status;
    if (!w->pid || kill(-w->pid, SIGSTOP)) return;
    while (waitpid(w->pid, &status, WUNTRACED | __WALL) < 0 && errno == EINTR) continue;
}

/* Seconds of one run, or -1: it gave no answer.  After it the worker stands still, and its
 * outputs are in c->out. */
static double run(struct contest *c, struct worker *w)
{
    struct reply r;
    hand_over(c, w);
    if (w->pid) kill(-w->pid, SIGCONT);
    double t = seconds_now();
    int answered = worker_ask(w, &c->q, &r);
    freeze(w);
    t = seconds_now() - t;
    if (!answered) return -1;
    for (int i = 0; i < 2; i++)
        if (c->n_out[i])
            memcpy(c->out[i], w->region + span_out(c, i)->offset + FRAME,
                   c->n_out[i] * sizeof(float));
    return t;
}

/* Did the worker leave its inputs and the frames of its outputs alone? */
static const char *trespass(const struct contest *c, const struct worker *w)
{
    for (int i = 0; i < 3; i++)
        if (c->n_in[i] && memcmp(w->region + span_in(c, i)->offset, c->in[i], span_in(c, i)->bytes))
            return "an input was overwritten";
    for (int i = 0; i < 2; i++) {
        const char *at = w->region + span_out(c, i)->offset;
        for (size_t k = 0; c->n_out[i] && k < FRAME; k += 4) {
            uint32_t before, behind;
            memcpy(&before, at + k, 4);
            memcpy(&behind, at + FRAME + c->n_out[i] * 4 + k, 4);
            if (before != UNWRITTEN || behind != UNWRITTEN) return "something beside an output was written";
        }
    }
    return NULL;
}

/* x (n) -> the probabilities in y (n), in double. */
static double softmax_of(const double *x, double *y, size_t n)
{
    double m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    for (size_t j = 0; j < n; j++) l += y[j] = exp(x[j] - m);
    for (size_t j = 0; j < n; j++) y[j] /= l;
    return m + log(l);
}

/* Row i of the answer against double. */
static int row_is_right(const struct contest *c, size_t i, double *x, double *y)
{
    const struct problem *p = &c->p;
    if (p->op == OP_SOFTMAX) {
        for (size_t j = 0; j < p->cols; j++) x[j] = c->in[0][i * p->cols + j];
        softmax_of(x, y, p->cols);
        for (size_t j = 0; j < p->cols; j++)
            if (!(fabs(c->out[0][i * p->cols + j] - y[j]) <= 1e-6 + 1e-5 * y[j])) return 0;
        return 1;
    }
    size_t n = p->seqlen_k, d = p->head_dim, head = i / n * n;
    for (size_t j = 0; j < n; j++) {
        x[j] = 0;
        for (size_t t = 0; t < d; t++)
            x[j] += (double)p->scale * c->in[0][i * d + t] * c->in[1][(head + j) * d + t];
    }
    double lse = softmax_of(x, y, n);
    if (!(fabs(c->out[1][i] - lse) <= 1e-4)) return 0;
    for (size_t t = 0; t < d; t++) {
        double o = 0;
        for (size_t j = 0; j < n; j++) o += y[j] * c->in[2][(head + j) * d + t];
        if (!(fabs(c->out[0][i * d + t] - o) <= 2e-5)) return 0;
    }
    return 1;
}

/* All rows by what is cheap to see, some by all. */
static const char *mistake(const struct contest *c)
{
    const struct problem *p = &c->p;
    int rows = p->op == OP_SOFTMAX;
    size_t n = rows ? p->rows : p->heads_q * p->seqlen_q, width = rows ? p->cols : p->head_dim;
    double *x = malloc((width + p->seqlen_k) * sizeof *x), *y = malloc((width + p->seqlen_k) * sizeof *y);
    if (!x || !y) machine_fails("no memory for a row", strerror(errno));
    const char *wrong = NULL;
    for (size_t i = 0; i < n && !wrong; i++) {
        double sum = 0;
        for (size_t j = 0; j < width; j++) {
            float e = c->out[0][i * width + j];
            if (!(rows ? e >= 0 && e <= 1.0001f : e >= -1.0001f && e <= 1.0001f))
                wrong = "a result out of range, or not written";
            sum += e;
        }
        if (!wrong && rows && !(fabs(sum - 1) <= 1e-3)) wrong = "a row that does not add up to 1";
        if (!wrong && !rows && !isfinite(c->out[1][i])) wrong = "an lse that is not a number";
    }
    struct random r = fresh();
    for (int k = 0; k < ROWS_CHECKED && !wrong; k++)
        if (!row_is_right(c, random_below(&r, n), x, y)) wrong = "a wrong row";
    free(x);
    free(y);
    return wrong;
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

int time_worker(struct worker *w, struct worker *solution, const char *work, int runs)
{
    static struct contest c;
    static struct ceiling_memory memory;
    double t[2][MOST_RUNS], ratio[MOST_RUNS], first_mhz = clock_mhz();
    struct worker *const who[2] = {w, solution};
    if (!understand(&c, work) || runs < 1 || runs > MOST_RUNS) return 2;
    int rows = c.p.op == OP_SOFTMAX;
    memory = (struct ceiling_memory){.x = c.in[0], .y = c.out[0], .n = c.n_out[0], .threads = 1};
    for (int i = -WARM_UP; i < runs; i++) {
        draw(&c);
        if (rows && i >= 0) ceiling_memory_look(&memory);
        for (int k = 0; k < 2; k++) {
            int turn = (i & 1) ^ k;
            if (!who[turn]) continue;
            double s = run(&c, who[turn]);
            const char *why = s < 0 ? who[turn]->failure : trespass(&c, who[turn]);
            if (!why) why = mistake(&c);
            if (why && turn == 1) machine_fails("the solution, timed", why);
            if (why) return printf("untimed\t%s\n", why), 0;
            if (i >= 0) t[turn][i] = s;
        }
        if (i >= 0) ratio[i] = solution ? t[1][i] / t[0][i] : 0;
        if (i >= 0 && !solution) t[1][i] = 0;
    }
    double least = t[0][0];
    for (int i = 1; i < runs; i++) least = t[0][i] < least ? t[0][i] : least;
    double ceiling = rows ? ceiling_memory_gbps(&memory) : ceiling_fma_gflops(1);
    double needed = rows ? 8e-9 * (double)c.n_out[0]
                         : 4e-9 * (double)c.n_out[0] * (double)c.p.seqlen_k;
    double middle = median(t[0], runs), share = 100 * needed / middle / ceiling;
    if (100 * needed / least / ceiling > CEILING_MOST)
        return printf("untimed\tfaster than possible: %.0f %% of %s\n",
                      100 * needed / least / ceiling, rows ? "copy" : "fma"), 0;
    printf("timed\t%.6g\t%.6g\t%.6g\t%.4g\t%.4g\t%s\t%.4g\t%.0f\t%.0f\t%d\n", middle, least,
           median(t[1], runs), median(ratio, runs), share, rows ? "copy" : "fma", ceiling,
           first_mhz, clock_mhz(), runs);
    return 0;
}
