/* judge.c: is an exercise right?  Runs one worker on the cases that the solution's worker
 * promises to do, compares with the reference, and writes one line a case.
 *
 *     judge SOLUTION WORKER [--quick] [--speed] [--cpu S] [--wall S] [--memory MiB]
 *                           [--seed N] [--draw N] [--skeleton] [--timed WORK [--runs N]]
 *
 * Nothing that the worker prints or returns counts: its outputs are compared in this
 * process, which the worker cannot write to.  A worker that ends, crashes, or computes
 * longer than --cpu seconds for one case has failed that case and is started again for
 * the next, for CRASHES and HANGS times in all.  --seed gives all cases other numbers.
 * --draw adds N problems drawn from the seed: hidden shapes.  --skeleton: SOLUTION is none,
 * it only describes itself (in a repository for students).  --timed measures a worker that is
 * right in all cases (speed.c).
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
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "verification/check_variant.h"
#include "judge.h"
#include "problem/variant.h"

enum { CRASHES = 16, HANGS = 2, SAID = 2000, SPEED_RUNS = 15, THREADS = 1000, SMALL = 8 };
enum { COMPILE_S = 30, COMPILE_MIB = 2048, COMPILED_FILE_MIB = 8 };

static struct limits limits = {
    .cpu_s = 10, .wall_s = 60, .memory = (size_t)2 << 30, .hide_files = 1};
static struct worker *current;   /* what the variant's functions talk to */
size_t region_bytes = REGION;
static int executed;             /* the exercise is a CUDA kernel executed on the CPU */
static int unsolved;             /* the solution's worker is a skeleton */

static double now(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) ? 0 : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

_Noreturn void machine_fails(const char *what, const char *why)
{
    fprintf(stderr, "judge: %s: %s: this machine lacks memory, processes or time\n", what,
            why);
    exit(3);
}

/* In the child: the three descriptors of the protocol, nothing to read, nobody who
 * listens. */
static void become(const struct worker *w, int socket, int said, int report)
{
    int null = open("/dev/null", O_RDWR);
    int region = fcntl(w->region_fd, F_DUPFD, 20);
    int page = memfd_create("page", 0);
    page = page < 0 || ftruncate(page, PAGE_BYTES) ? null : fcntl(page, F_DUPFD, 20);
    socket = fcntl(socket, F_DUPFD, 20);
    said = fcntl(said, F_DUPFD, 20);
    report = fcntl(report, F_DUPFD, 20);
    dup2(null, 0);
    dup2(null, 1);
    dup2(said, 2);
    dup2(region, REGION_FD);
    dup2(socket, SOCKET_FD);
    dup2(page, PAGE_FD);
    fcntl(report, F_SETFD, FD_CLOEXEC);
    for (int fd = PAGE_FD + 1; fd < 64; fd++)
        if (fd != report) close(fd);
    const char *program = w->program;
    char jailed = (char)jail_enter(&limits, &program);
    if (write(report, &jailed, 1) != 1) _exit(127);
    char *const arguments[] = {(char *)"worker", NULL};
    execve(program, arguments, environ);
    _exit(127);
}

static void start(struct worker *w)
{
    int pair[2], said[2], report[2];
    char jailed = 0;
    w->pid = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || pipe(said) || pipe(report))
        machine_fails("no connection to a worker", strerror(errno));
    fcntl(pair[0], F_SETFL, O_NONBLOCK); /* a worker that does not read holds nobody up */
    fcntl(said[0], F_SETFL, O_NONBLOCK);
    fcntl(said[1], F_SETFL, O_NONBLOCK); /* a worker that shouts is not held up */
    w->pid = fork();
    if (w->pid < 0) machine_fails("no process for a worker", strerror(errno));
    if (w->pid == 0) become(w, pair[1], said[1], report[1]);
    close(pair[1]);
    close(said[1]);
    close(report[1]);
    w->jailed = read(report[0], &jailed, 1) == 1 ? jailed : 0;
    close(report[0]);
    w->socket = pair[0];
    w->said = said[0];
}

/* Keeps what the worker has written to stderr, until the first failure.  Not longer than
 * a full pipe: who writes faster than we read would be listened to for ever. */
static void listen_to(struct worker *w, int keep)
{
    char text[4096];
    ssize_t n;
    for (int pages = 0; pages < 16 && (n = read(w->said, text, sizeof text)) > 0; pages++)
        for (ssize_t i = 0; keep && i < n && w->n_words < SAID; i++)
            w->words[w->n_words++] = text[i];
}

/* Has the worker ended, or does it soon?  It stays to be waited for. */
static int ends_by_itself(const struct worker *w)
{
    for (int i = 0; i < 100; i++) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT)) return 0;
        if (info.si_pid) return 1;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return 0;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Ends the worker, with all that is in its group; notes why. */
static void stop(struct worker *w, const char *why)
{
    int status = 0;
    struct rusage used = {0};
    if (!w->pid) return;
    int by_itself = !*why && ends_by_itself(w);
    kill(-w->pid, SIGKILL);
    kill(w->pid, SIGKILL);
    listen_to(w, !w->crashes && !w->hangs);
    while (wait4(w->pid, &status, 0, &used) < 0 && errno == EINTR) continue;
    int used_up = seconds(used.ru_utime) + seconds(used.ru_stime) >= 20 * limits.cpu_s;
    if (by_itself && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !used_up)
        machine_fails(w->program, "killed by the system");
    if (*why) snprintf(w->failure, sizeof w->failure, "%s", why);
    else if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || used_up))
        snprintf(w->failure, sizeof w->failure, "used up its processor time");
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        snprintf(w->failure, sizeof w->failure, "closed its connection");
    else if (WIFSIGNALED(status))
        snprintf(w->failure, sizeof w->failure, "crashed: %s",
                 strsignal(WTERMSIG(status)));
    else
        snprintf(w->failure, sizeof w->failure, "ended by itself, exit status %d",
                 WEXITSTATUS(status));
    close(w->socket);
    close(w->said);
    w->pid = 0;
}

/* Threads of a process; 0 where that is not known. */
static long threads_of(pid_t pid)
{
    char path[40];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    return stat(path, &s) ? 0 : (long)s.st_nlink - 2;
}

/* Waits for n bytes.  Returns 1; 0 when the worker ended; else minus the failure. */
enum { TOO_LONG = 1, TOO_MANY };
static const char *const too[] = {"", "took too long", "started too many threads"};
static int await(struct worker *w, void *to, size_t n)
{
    clockid_t clock;
    int has_clock = !clock_getcpuclockid(w->pid, &clock);
    double wall = now(CLOCK_MONOTONIC), cpu = has_clock ? now(clock) : 0;
    for (size_t got = 0; got < n;) {
        struct pollfd p = {.fd = w->socket, .events = POLLIN};
        int ready = poll(&p, 1, 50);
        if (ready > 0) {
            ssize_t r = read(w->socket, (char *)to + got, n - got);
            if (r <= 0) return 0;
            got += (size_t)r;
            continue;
        }
        w->waited = now(CLOCK_MONOTONIC) - wall > limits.wall_s;
        if (w->waited) return -TOO_LONG;
        if (has_clock && now(clock) - cpu > limits.cpu_s) return -TOO_LONG;
        if (threads_of(w->pid) > THREADS) return -TOO_MANY;
    }
    return 1;
}

int ask(struct worker *w, const struct request *q, struct reply *r)
{
    w->failure[0] = 0;
    w->waited = 0;
    if (w->hangs >= HANGS || w->crashes >= CRASHES) {
        snprintf(w->failure, sizeof w->failure, "not run, after so many that %s",
                 w->hangs >= HANGS ? "took too long" : "crashed");
        return 0;
    }
    if (!w->pid) start(w);
    listen_to(w, 0);
    int done = write(w->socket, q, sizeof *q) == sizeof *q ? await(w, r, sizeof *r) : 0;
    if (done == 1) return 1;
    stop(w, too[-done]);
    if (done < 0) w->hangs++;
    else w->crashes++;
    return 0;
}

/* Where the arrays of p lie in the shared file; 0 when it is too small. */
static int lay_out(struct request *q, const struct arrays *a, const void *at[N_ARRAYS])
{
    const struct problem *p = &q->problem;
    struct sizes n = problem_sizes(p);
    size_t size = dtype_size(p->dtype), used = 0;
    const void *const from[N_ARRAYS] = {a->x, a->w, a->q, a->k, a->v, a->bias, a->index,
                                        a->k_new, a->v_new, a->y, a->o, a->lse};
    const size_t bytes[N_ARRAYS] = {
        n.x * size, n.w * size, n.q * size, n.k * size, n.v * size,
        n.bias * sizeof(float), n.index * sizeof(size_t), n.k_new * size, n.v_new * size,
        n.y * size, n.o * size, n.lse * sizeof(float)};
    q->guard = GUARD;
    for (int i = 0; i < N_ARRAYS; i++) {
        int output = i >= AT_Y;
        at[i] = from[i] ? (const char *)from[i] - (output ? GUARD : 0) : NULL;
        if (!from[i] || !bytes[i]) continue;
        q->span[i].offset = used;
        q->span[i].bytes = bytes[i] + (output ? 2 * GUARD : 0);
        used += (q->span[i].bytes + 63) / 64 * 64;
    }
    return used <= region_bytes;
}

/* What the judge's variant does for every operation: the worker does it. */
static void compute(const struct problem *p, const struct arrays *a)
{
    struct request q = {.kind = COMPUTE, .problem = *p};
    struct reply r;
    const void *at[N_ARRAYS];
    current->failure[0] = 0;
    if (!lay_out(&q, a, at)) {
        fprintf(stderr, "judge: a case is larger than the shared file\n");
        exit(3);
    }
    for (int i = 0; i < N_ARRAYS; i++)
        if (q.span[i].bytes)
            memcpy(current->region + q.span[i].offset, at[i], q.span[i].bytes);
    if (!ask(current, &q, &r)) return;
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!q.span[i].bytes) continue;
        const char *new = current->region + q.span[i].offset;
        if (i >= AT_Y) memcpy((void *)at[i], new, q.span[i].bytes);
        else if (memcmp(new, at[i], q.span[i].bytes))
            snprintf(current->failure, sizeof current->failure,
                     "an input was overwritten");
    }
}

/* The shared file: memory of a size that cannot be changed and that is there, so that
 * nobody is killed for touching it. */
static int worker_new(struct worker *w, const char *program)
{
    *w = (struct worker){.program = realpath(program, NULL), .words = calloc(1, SAID + 1)};
    if (!w->program || !w->words) {
        fprintf(stderr, "judge: %s: %s\n", program, strerror(errno));
        exit(3);
    }
    w->region_fd = memfd_create("judge", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (w->region_fd < 0 || ftruncate(w->region_fd, (off_t)region_bytes)) return 0;
    errno = posix_fallocate(w->region_fd, 0, (off_t)region_bytes);
    if (errno || fcntl(w->region_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return 0;
    w->region = mmap(NULL, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->region_fd, 0);
    return w->region != MAP_FAILED;
}

/* The variant under test: as the solution describes itself, computed by `current`. */
static struct variant variant_of(struct worker *solution)
{
    struct request q = {.kind = DESCRIBE};
    struct reply r;
    int described = ask(solution, &q, &r);
    if (!described) { /* perhaps its libraries lie where nobody expects them */
        limits.hide_files = 0;
        described = ask(solution, &q, &r);
    }
    if (!described) {
        fprintf(stderr, "judge: %s: %s\n", solution->program, solution->failure);
        exit(3);
    }
    struct variant v = {.name = "exercise", .device = ON_CPU, .types = r.types, .supports = r.supports};
    executed = r.device == GPU_ON_CPU;
    v.max_score = r.max_score;
    v.masked_rows = r.masked_rows;
    v.isolates_v = r.isolates_v;
    for (int op = 0, n = 0; op < N_OPS; op++)
        if (r.ops >> op & 1) v.does[n++] = (struct op_function){(enum op)op, compute};
    return v;
}

static size_t elements(const struct problem *p)
{
    struct sizes n = problem_sizes(p);
    return n.x + n.w + n.y + n.q + n.k + n.v + n.bias + n.o + n.lse;
}

/* More than a plain loop does in about a second, or than the shared file should hold? */
static int is_large(const struct test_case *c)
{
    return c->only_gpu || problem_flops(&c->problem) > 4e8 ||
           elements(&c->problem) > (size_t)1 << 22;
}

static void print_array(const char *test_case, const char *name, const void *data, size_t n,
                        int is_double)
{
    if (!data || !n) return;
    printf("array\t%s\t%s\t%s\t", test_case, name, is_double ? "expected" : "is");
    for (size_t i = 0; i < n; i++)
        printf("%s%.9g", i ? " " : "",
               is_double ? ((const double *)data)[i] : (double)((const float *)data)[i]);
    printf("\n");
}

/* A case small enough to be computed by hand: its inputs and the right answer. */
static void print_small(const struct prepared *p)
{
    const struct problem *problem = &p->inputs->problem;
    struct sizes n = problem_sizes(problem);
    const struct arrays *a = &p->inputs->arrays;
    const struct reference *r = p->standard->reference;
    const struct { const char *name; const void *data; size_t n; } all[] = {
        {"x", a->x, n.x}, {"w", a->w, n.w}, {"q", a->q, n.q}, {"k", a->k, n.k},
        {"v", a->v, n.v}, {"bias", a->bias, n.bias}, {"k_new", a->k_new, n.k_new},
        {"v_new", a->v_new, n.v_new}, {"y", r->y, r->n_y}, {"o", r->o, r->n_o},
        {"lse", r->lse, r->n_lse}};
    int count = sizeof all / sizeof *all;
    for (int i = 0; i < count; i++)
        if (all[i].data && all[i].n > SMALL) return;
    for (int i = 0; i < count; i++)
        print_array(p->test_case->name, all[i].name, all[i].data, all[i].n, i >= count - 3);
}

/* A worker crashed or took too long on this case.  Can the solution do it? */
static void try_solution(struct worker *solution, const struct variant *v,
                         const struct prepared *p, int waited)
{
    const char *could_not;
    double begin = now(CLOCK_MONOTONIC);
    current = solution;
    struct verdict verdict = check_variant(v, p, 0, &could_not);
    if (solution->failure[0] || could_not || !verdict.ok)
        machine_fails(p->test_case->name, solution->failure[0] ? solution->failure :
                      could_not ? could_not : verdict.reason);
    if (waited && now(CLOCK_MONOTONIC) - begin > limits.wall_s / 4)
        machine_fails(p->test_case->name, "the solution takes long too");
}

/* Prints its line.  Returns whether w was right; -1 for a case that v does not promise,
 * and then prints nothing. */
static int judge_case(struct worker *w, struct worker *solution, const struct variant *v,
                      const struct test_case *c, uint64_t seed)
{
    struct prepared p = prepare(c, F32, test_case_seed(c) + seed);
    if (not_promised(v, &p)) {
        prepared_free(&p);
        return -1;
    }
    const char *could_not;
    char index[80] = "";
    int repeat = c->quick && (c->recipe == RANDOM || c->recipe == ASCENDING);
    current = w;
    int were = w->crashes + w->hangs;
    struct verdict verdict = check_variant(v, &p, repeat, &could_not);
    if (could_not) machine_fails(c->name, could_not);
    if (w->crashes + w->hangs > were && !unsolved) try_solution(solution, v, &p, w->waited);
    const char *why = could_not ? could_not : verdict.reason;
    if (w->failure[0]) why = w->failure;
    int ok = !w->failure[0] && !could_not && verdict.ok;
    if (!ok && verdict.array && !w->failure[0])
        snprintf(index, sizeof index, "%s", verdict.array);
    size_t used = strlen(index);
    if (used) verdict_index(&verdict, index + used, sizeof index - used);
    printf("case\t%s\t%s\t%zu\t%s\t%s\t", c->name, dtype_name(F32),
           elements(&c->problem), ok ? "ok" : why, index);
    printf("%.9g\t%.9g\t%.3g\t%.3g\n", verdict.got, verdict.want, verdict.err,
           verdict.allowed);
    if (!ok) print_small(&p);
    prepared_free(&p);
    return ok;
}

/* A shape on which a plain variant takes some milliseconds. */
static struct test_case speed_case(const struct variant *v)
{
    struct test_case c = {.name = "speed", .recipe = RANDOM};
    struct problem *p = &c.problem;
    p->op = OP_ATTENTION;
    if (variant_does(v, OP_SOFTMAX)) p->op = OP_SOFTMAX;
    if (variant_does(v, OP_LOGSOFTMAX)) p->op = OP_LOGSOFTMAX;
    if (variant_does(v, OP_MEAN)) p->op = OP_MEAN;
    if (p->op != OP_ATTENTION) {
        p->rows = 64;
        p->cols = p->op == OP_MEAN ? 16384 : 4096;
        return c;
    }
    p->batch = p->heads_q = p->heads_kv = 1;
    p->seqlen_q = p->seqlen_k = executed ? 128 : 256;
    p->head_dim = p->head_dim_v = 64;
    p->scale = 0.125f;
    return c;
}

/* Worker and solution in turn, for half a second; the fastest run of each, which a busy
 * machine disturbs least. */
static void speed(struct worker *w, struct worker *solution, const struct variant *v)
{
    struct test_case c = speed_case(v);
    struct inputs *in = inputs_new(&c, F32, 1);
    struct outputs out = outputs_new(&c.problem);
    double least[2] = {INFINITY, INFINITY};
    outputs_bind(&out, &in->arrays);
    double begin = now(CLOCK_MONOTONIC);
    for (int i = 0; i < SPEED_RUNS || now(CLOCK_MONOTONIC) - begin < 0.5; i++)
        for (int k = 0; k < 2; k++) {
            current = k ? solution : w;
            double t = now(CLOCK_MONOTONIC);
            compute(&c.problem, &in->arrays);
            if (current->failure[0]) return;
            t = now(CLOCK_MONOTONIC) - t;
            if (t < least[k]) least[k] = t;
        }
    printf("speed\t%.9g\t%.9g\n", least[0], least[1]);
    outputs_free(&out);
    inputs_free(in);
}

static void print_words(struct worker *w)
{
    for (char *c = w->words; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\n') || *c == 127) *c = ' ';
    for (char *line = strtok(w->words, "\n"); line; line = strtok(NULL, "\n"))
        printf("said\t%s\n", line);
}

/* Judges a case that the solution promises.  Adds to the counts; returns whether it ran. */
static int count_case(struct worker *worker, struct worker *solution, const struct variant *v,
                      const struct test_case *c, uint64_t seed, size_t *n, size_t *failed)
{
    struct request q = {.kind = REFUSES, .problem = c->problem};
    struct reply r = {.ok = 1};
    if (!ask(solution, &q, &r)) machine_fails(c->name, solution->failure);
    if (!r.ok) return 0;
    int ok = judge_case(worker, solution, v, c, seed);
    if (ok < 0) return 0;
    *n += 1;
    *failed += !ok;
    fflush(stdout);
    return 1;
}

/* `draw` problems that nobody has seen: shapes, masks and magnitudes come from the seed. */
static void judge_drawn(struct worker *worker, struct worker *solution,
                        const struct variant *v, uint64_t seed, size_t draw, size_t *n,
                        size_t *failed)
{
    for (size_t i = 0, ran = 0; i < 20 * draw && ran < draw; i++) {
        enum op op = (enum op)(i % N_OPS);
        if (!variant_does(v, op)) continue;
        struct test_case c = test_case_draw(op, seed * 1000003 + i);
        if (is_large(&c) || (executed && problem_flops(&c.problem) > 3e6)) continue;
        ran += (size_t)count_case(worker, solution, v, &c, seed, n, failed);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: judge SOLUTION WORKER [--quick] [--speed] [--cpu S] [--wall S] "
                    "[--memory MiB] [--seed N] [--draw N] [--skeleton] "
                    "[--timed WORK [--runs N]]\n");
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

int main(int argc, char **argv)
{
    int quick = 0, timed = 0;
    uint64_t seed = 0;
    size_t n, n_cases = 0, failed = 0, draw = 0;
    const char *work = NULL;
    int runs = 15;
    static struct worker solution, worker;
    if (argc < 3) return usage();
    if (!strcmp(argv[1], "compile")) {
        int status = compile(argv + 2);
        return status == 2 ? usage() : status;
    }
    for (int i = 3; i < argc; i++) {
        double value = i + 1 < argc ? atof(argv[i + 1]) : 0;
        if (!strcmp(argv[i], "--quick")) quick = 1;
        else if (!strcmp(argv[i], "--speed")) timed = 1;
        else if (!strcmp(argv[i], "--skeleton")) unsolved = 1;
        else if (!strcmp(argv[i], "--timed") && i + 1 < argc) work = argv[++i];
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (value <= 0) return usage();
        else if (!strcmp(argv[i], "--runs")) runs = (int)value, i++;
        else if (!strcmp(argv[i], "--draw")) draw = (size_t)value, i++;
        else if (!strcmp(argv[i], "--cpu")) limits.cpu_s = value, i++;
        else if (!strcmp(argv[i], "--wall")) limits.wall_s = value, i++;
        else if (strcmp(argv[i], "--memory")) return usage();
        else limits.memory = (size_t)(value * 0x1p20), i++;
    }
    limits.one_core = work != NULL;
    if (work) region_bytes = TIMED_BYTES;
    signal(SIGPIPE, SIG_IGN);
#ifdef PR_SET_DUMPABLE
    prctl(PR_SET_DUMPABLE, 0); /* nobody else of this user reads or traces the judge */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (!worker_new(&solution, argv[1]) || !worker_new(&worker, argv[2])) {
        fprintf(stderr, "judge: no shared file: %s\n", strerror(errno));
        return 3;
    }
    struct variant v = variant_of(&solution);
    printf("jail\t%d\n", solution.jailed);
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++) {
        if (!variant_does(&v, c[i].problem.op) || (quick && !c[i].quick)) continue;
        if ((executed && !c[i].executed) || is_large(&c[i])) continue;
        count_case(&worker, &solution, &v, &c[i], seed, &n_cases, &failed);
    }
    judge_drawn(&worker, &solution, &v, seed, draw, &n_cases, &failed);
    if (timed && !failed && !unsolved) speed(&worker, &solution, &v);
    if (work && failed) printf("untimed\tnot right in all cases\n");
    if (work && !failed && time_worker(&worker, unsolved ? NULL : &solution, work, runs))
        return usage();
    stop(&solution, "end");
    stop(&worker, "end");
    print_words(&worker);
    printf("done\t%zu\t%zu\n", n_cases, failed);
    return 0;
}
