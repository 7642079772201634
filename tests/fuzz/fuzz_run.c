/* fuzz_run.c: combinations of files and options of `run`, drawn at random, given to the
 * stage programs themselves (built with address sanitizer; all five in this process).
 *
 *     fuzz_run FIRST_SEED COUNT      COUNT combinations, one a seed
 *     fuzz_run FIRST_SEED SECONDS s  as many as fit into so many seconds
 *
 * Most files fit together but for one dimension, type or value, because one such
 * difference is what a user's mistake looks like, and what an attacker tries.
 *
 * Whatever the combination: exit status 0, nothing on stderr, and outputs of the right
 * shape that the reader accepts; or 2 (77 for a variant that this machine lacks), exactly
 * one line on stderr that names the program, and no output touched.  No other file is left.
 * A finding prints its seed and its command line, and leaves its directory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "npy/npy.h"
#include "problem/half.h"
#include "problem/random.h"

/* The programs' mains, renamed. */
int main_01_naive(int argc, char **argv);
int main_02_safe_softmax(int argc, char **argv);
int main_03_online_softmax(int argc, char **argv);
int main_04_monoid_tiled_cpu(int argc, char **argv);
int main_05_flash_cuda(int argc, char **argv);

enum { N_STAGES = 5, MOST_VARIANTS = 64, MOST_ARGUMENTS = 64 };

static struct stage_program {
    const char *name;
    int (*main)(int argc, char **argv);
    char variants[MOST_VARIANTS][32];
    size_t n_variants;
} stages[N_STAGES] = {
    {.name = "01_naive", .main = main_01_naive},
    {.name = "02_safe_softmax", .main = main_02_safe_softmax},
    {.name = "03_online_softmax", .main = main_03_online_softmax},
    {.name = "04_monoid_tiled_cpu", .main = main_04_monoid_tiled_cpu},
    {.name = "05_flash_cuda", .main = main_05_flash_cuda},
};

/* A command line that grows. */
struct line {
    const struct stage_program *stage;
    char *argv[MOST_ARGUMENTS + 1];
    int argc;
};

static struct random r;
static uint64_t seed;              /* of the present combination */
static struct line line;
static int terminal;               /* the real stderr; 1 and 2 are files while a stage runs */
static char place[] = "/tmp/fuzz_run.XXXXXX";
static char printed[1 << 16], complained[1 << 16];
static int inside;                 /* is a stage running? */

static void describe(void)
{
    dprintf(terminal, "fuzz_run: seed %llu, in %s: ", (unsigned long long)seed, place);
    for (int i = 0; i < line.argc; i++) dprintf(terminal, "%s ", line.argv[i]);
    dprintf(terminal, "\n");
}

static void fail(const char *what)
{
    inside = 0;
    describe();
    dprintf(terminal, "fuzz_run: %s\n%s", what, complained);
    exit(1);
}

static void slurp(const char *path, char *text, size_t size);

/* A stage returns its status; a program or a sanitizer that ends the process is a finding. */
static void at_exit(void)
{
    if (!inside) return;
    inside = 0;
    describe();
    slurp(".stderr", complained, sizeof complained);
    dprintf(terminal, "fuzz_run: the program ended by itself, or a sanitizer ended it\n%s",
            complained);
}

/* Of the sanitizer's runtime, where there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* ---- Running a program in this process. ---- */

static void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

static void redirect(int to, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) < 0) abort();
    close(fd);
}

/* The exit status of the stage's main; what it prints is in printed and complained. */
static int execute_line(void)
{
    int real = dup(1);
    fflush(stdout);
    redirect(1, ".stdout");
    redirect(2, ".stderr");
    inside = 1;
    int status = line.stage->main(line.argc, line.argv);
    inside = 0;
    fflush(stdout), fflush(stderr);
    dup2(real, 1), dup2(terminal, 2);
    close(real);
    slurp(".stdout", printed, sizeof printed);
    slurp(".stderr", complained, sizeof complained);
    return status;
}

static void begin_line(const struct stage_program *stage)
{
    for (int i = 0; i < line.argc; i++) free(line.argv[i]);
    memset(&line, 0, sizeof line);
    line.stage = stage;
    line.argv[line.argc++] = strdup(stage->name);
}

static void add(const char *option, const char *value)
{
    if (line.argc + 2 > MOST_ARGUMENTS) abort();
    line.argv[line.argc++] = strdup(option);
    if (value) line.argv[line.argc++] = strdup(value);
    line.argv[line.argc] = NULL;
}

/* The names of a stage's variants, from its list. */
static void learn_variants(struct stage_program *stage)
{
    char *next;
    begin_line(stage);
    add("list", NULL);
    if (execute_line() != 0) fail("list fails");
    for (char *at = strtok_r(printed, "\n", &next); at; at = strtok_r(NULL, "\n", &next))
        if (*at >= 'a' && *at <= 'z' && stage->n_variants < MOST_VARIANTS)
            sscanf(at, "%31s", stage->variants[stage->n_variants++]);
}

/* ---- Drawing. ---- */

static size_t below(size_t n) { return random_below(&r, n); }

/* One time in n. */
static int rarely(size_t n) { return below(n) == 0; }

/* A file to be written: rank, shape and form. */
struct array {
    size_t ndim, shape[6];
    char kind;            /* 'f', rarely 'i' */
    int size;             /* bytes per element: 2, 4, 8 */
    int big, fortran;
    float special;        /* a value that is strewn in, or 0 */
};

static const size_t huge_sizes[] = {
    (size_t)1 << 31, (size_t)1 << 32, ((size_t)1 << 40) + 1, (size_t)1 << 45,
    (size_t)1 << 56, (size_t)1 << 57, (size_t)1 << 59, (size_t)1 << 60, (size_t)1 << 61,
    (size_t)1 << 62, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX, 1085102592571150096,
    576460752303423488, 6148914691236517206,
};

static size_t huge_size(void)
{
    return huge_sizes[below(sizeof huge_sizes / sizeof *huge_sizes)];
}

static size_t some_size(void)
{
    static const size_t edges[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40};
    return edges[below(sizeof edges / sizeof *edges)];
}

/* Elements of the array; SIZE_MAX when they are more than a file of this test can hold. */
static size_t elements(const struct array *a)
{
    size_t n = 1;
    for (size_t t = 0; t < a->ndim; t++)
        if (a->shape[t] == 0) return 0;
    for (size_t t = 0; t < a->ndim; t++) {
        if (a->shape[t] > 100000 / n) return SIZE_MAX;
        n *= a->shape[t];
    }
    return n;
}

/* One dimension of a becomes 0, one more, one less, or enormous. */
static void perturb(struct array *a)
{
    if (a->ndim == 0) return;
    size_t *n = &a->shape[below(a->ndim)];
    switch (below(5)) {
    case 0: *n = 0; break;
    case 1: *n += 1; break;
    case 2: *n -= *n > 0; break;
    case 3: *n = some_size(); break;
    default: *n = huge_size();
    }
    if (rarely(3)) perturb(a);
}

static float some_value(const struct array *a)
{
    static const float edges[] = {0, 1, -1, 1e-30f, 65504, 1e5f, -1e4f, 3e38f};
    if (a->special != 0 && rarely(6)) return a->special;
    if (rarely(20)) return edges[below(sizeof edges / sizeof *edges)];
    return random_normal(&r);
}

static void write_value(FILE *f, const struct array *a, float x)
{
    double wide = (double)x;
    uint16_t half = float_to_half(x);
    const void *number = a->size == 2 ? (void *)&half : a->size == 4 ? (void *)&x : &wide;
    const unsigned char *bytes = number;
    for (int t = 0; t < a->size; t++) fputc(bytes[a->big ? a->size - 1 - t : t], f);
}

static void save(const char *path, const struct array *a)
{
    char header[512];
    size_t n = elements(a);
    int length = snprintf(header, sizeof header, "{'descr': '%c%c%d', 'fortran_order': %s, "
                          "'shape': (", a->big ? '>' : '<', a->kind, a->size,
                          a->fortran ? "True" : "False");
    for (size_t t = 0; t < a->ndim; t++)
        length += snprintf(header + length, sizeof header - (size_t)length, "%zu, ",
                           a->shape[t]);
    if (a->ndim > 1) length -= 2;
    length += snprintf(header + length, sizeof header - (size_t)length, "), }\n");
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fprintf(f, "\x93NUMPY%c%c%c%c%s", 1, 0, length & 255, length >> 8, header);
    if (n == SIZE_MAX) n = below(50); /* the file is too short for its shape */
    if (rarely(100)) n += 1;
    for (size_t i = 0; i < n; i++) write_value(f, a, some_value(a));
    fclose(f);
}

static void draw_form(struct array *a, const struct array *like)
{
    static const float specials[] = {0, 0, 0, 0, NAN, INFINITY, -INFINITY};
    static const int sizes[] = {2, 4, 4, 4, 8};
    a->kind = rarely(200) ? 'i' : 'f';
    a->size = like && !rarely(10) ? like->size : sizes[below(5)];
    a->big = rarely(6);
    a->fortran = rarely(6);
    a->special = specials[below(7)];
}

static void give(const char *option, const char *path, const struct array *a)
{
    if (rarely(300)) return; /* the option is missing */
    add(option, path);
    if (!rarely(300)) save(path, a);
}

static void draw_softmax(void)
{
    struct array x = {.ndim = rarely(10) ? below(6) : 2};
    for (size_t t = 0; t < x.ndim; t++) x.shape[t] = some_size();
    draw_form(&x, NULL);
    if (rarely(3)) perturb(&x);
    give("--x", "x.npy", &x);
    add("--y", "first.npy");
    if (rarely(3)) add("--log", NULL);
    if (rarely(100)) add("--causal", NULL);
}

/* Without keys or heads the arrays have no data, and the other sizes may be anything: also
 * so large that a product of sizes wraps to a small number. */
static void draw_empty(size_t *heads_q, size_t *heads_kv, size_t *nq, size_t *nk, size_t *d,
                       size_t *dv)
{
    if (rarely(2)) {
        *nk = 0;
        *dv = rarely(2) ? huge_size() : SIZE_MAX / 4 / (*heads_q * *nq) + 1 + below(3);
        return;
    }
    size_t *const sizes[] = {nq, nk, d, dv};
    *heads_q = *heads_kv = 0;
    for (int i = 0; i < 2; i++) *sizes[below(4)] = huge_size();
}

/* Prefix sums of a few sequences that end at `total`, now and then with a mistake. */
static void give_sums(const char *option, const char *path, size_t total)
{
    char header[128];
    size_t n = 1 + below(5), at = 0;
    int wide = rarely(4);
    int length = snprintf(header, sizeof header, "{'descr': '<i%d', 'fortran_order': False, "
                          "'shape': (%zu,), }\n", wide ? 8 : 4, n + 1);
    if (rarely(300)) return;
    add(option, path);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fprintf(f, "\x93NUMPY%c%c%c%c%s", 1, 0, length & 255, length >> 8, header);
    for (size_t i = 0; i <= n; i++) {
        int64_t sum = (int64_t)(i == n ? total : at);
        if (rarely(60)) sum += (int64_t)below(3) - 1;
        if (rarely(200)) sum = (int64_t)huge_size();
        fwrite(&sum, wide ? 8 : 4, 1, f);
        at += total > at ? below(total - at + 1) : 0;
    }
    fclose(f);
}

/* What calls of real models ask for. */
static void draw_call(size_t heads_q, size_t total_q, size_t total_k, int may_pack)
{
    static const char *const windows[] = {"0,0", "3,0", "-1,2", "7,-1", "-1,-1", "1000,1000",
                                          "1099511627776,1099511627776", "-2,0", "3", "1,2,3"};
    static const char *const caps[] = {"30", "0.01", "1e30", "0", "-5"};
    if (rarely(4)) add("--window", windows[below(rarely(10) ? 10 : 7)]);
    if (rarely(4)) add("--softcap", caps[below(rarely(10) ? 5 : 3)]);
    if (rarely(4)) {
        struct array sinks = {.ndim = 1, .shape = {heads_q}};
        draw_form(&sinks, NULL);
        if (rarely(10)) perturb(&sinks);
        give("--sinks", "sinks.npy", &sinks);
    }
    if (rarely(may_pack ? 4 : 100)) {
        give_sums("--cu-seqlens-q", "cq.npy", total_q);
        give_sums("--cu-seqlens-k", "ck.npy", total_k);
    }
}

static void draw_attention(void)
{
    size_t heads_kv = 1 + below(3), heads_q = heads_kv * (1 + below(3)), batch = 1 + below(2);
    size_t d = some_size(), dv = rarely(3) ? some_size() : d;
    size_t nq = some_size(), nk = rarely(3) ? nq : some_size(), from = below(3);
    if (from > 0) batch = 1;
    if (from > 1) heads_q = heads_kv = 1;
    int empty = rarely(5);
    if (empty) draw_empty(&heads_q, &heads_kv, &nq, &nk, &d, &dv);
    struct array a[4] = {
        {.shape = {batch, heads_q, nq, d}}, {.shape = {batch, heads_kv, nk, d}},
        {.shape = {batch, heads_kv, nk, dv}}, {.ndim = 2, .shape = {nq, nk}}};
    static const char *const options[] = {"--q", "--k", "--v", "--bias"};
    static const char *const files[] = {"q.npy", "k.npy", "v.npy", "bias.npy"};
    int has_bias = rarely(3);
    for (int i = 0; i < 3; i++) {
        a[i].ndim = 4 - from;
        memmove(a[i].shape, a[i].shape + from, a[i].ndim * sizeof *a[i].shape);
    }
    for (int i = 0; i < 4; i++) {
        draw_form(&a[i], i ? &a[0] : NULL);
        if (rarely(empty ? 20 : 6)) perturb(&a[i]);
        if (i < 3 || has_bias) give(options[i], files[i], &a[i]);
    }
    add("--o", "first.npy");
    if (rarely(2)) add("--lse", "second.npy");
    if (rarely(3)) add("--causal", NULL);
    if (rarely(4)) add("--scale", rarely(10) ? "nan" : rarely(2) ? "0.5" : "-3e38");
    if (rarely(100)) add("--log", NULL);
    if (rarely(2)) draw_call(heads_q, nq, nk, from > 0 && !has_bias);
}

static void draw_options(void)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    static const char *const threads[] = {"1", "2", "3", "7"};
    if (rarely(2)) add("--variant", line.stage->variants[below(line.stage->n_variants)]);
    if (rarely(3)) add("--dtype", types[below(3)]);
    if (rarely(5)) add("--threads", threads[below(4)]);
    if (rarely(8)) add("--device", "cpu");
    if (rarely(8)) add("--verbose", NULL);
}

/* ---- Judging. ---- */

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
    char *newline = strchr(complained, '\n');
    if (status == 0) {
        if (*complained) fail("a complaint although the status is 0");
        check_files(outputs_before, status, has_second);
        check_shapes(softmax, has_second);
        return;
    }
    if (status != 2 && status != 77) fail("a status that is none of 0, 2 and 77");
    if (!newline || newline[1]) fail("not exactly one line");
    if (strncmp(complained, line.stage->name, length) || complained[length] != ':')
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
    r = (struct random){seed};
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

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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
    atexit(at_exit);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(at_exit);
    for (int s = 0; s < N_STAGES; s++) learn_variants(&stages[s]);
    for (; seed < last && (end == 0 || now() < end); seed++) {
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
    double end = argc > 3 ? now() + (double)count : 0;
    uint64_t last = end > 0 ? UINT64_MAX : first + count;
    terminal = fcntl(2, F_DUPFD_CLOEXEC, 10);
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    if (counts == MAP_FAILED || !mkdtemp(place) || chdir(place))
        return perror("fuzz_run: /tmp"), 1;
    for (seed = first; seed < last && (end == 0 || now() < end); seed += BLOCK)
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
