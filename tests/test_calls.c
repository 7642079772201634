/* test_calls.c: windows, soft caps, sinks, packed sequences, pages and strides, against
 * their definitions written out here in double. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npy/npy.h"
#include "oracle.h"

enum { HEADS_Q = 4, HEADS_KV = 2, DIM = 6, DIM_V = 5, BATCH = 4, TOTAL_Q = 16, TOTAL_K = 23 };
static const int32_t cu_q[BATCH + 1] = {0, 3, 3, 12, 16}, cu_k[BATCH + 1] = {0, 5, 7, 7, 23};
enum { LONGEST_Q = 9, LONGEST_K = 16 };

/* What one run asks for.   left, right: -1 for no limit */
struct call { const char *options; int causal, window, left, right, sinks, bias; double cap; };

struct files { float *q, *k, *v, *bias, *sinks; };

static char root[1024], place[] = "/tmp/test_calls.XXXXXX";

static void go_to_place(void)
{
    cr_assert(getcwd(root, sizeof root) && mkdtemp(place) && !chdir(place));
}

static void leave_place(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(!chdir("/") && !system(command));
}

TestSuite(calls, .init = go_to_place, .fini = leave_place, .timeout = 900);

/* Runs a stage; returns its exit status, with what it prints in .out and .err. */
static int run(const char *stage, const char *arguments)
{
    const char *build = getenv("BUILD");
    char command[2400];
    snprintf(command, sizeof command, "OMP_NUM_THREADS=2 %s/%s/%s %s >.out 2>.err", root,
             build ? build : "build", stage, arguments);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static const char *complaint(void)
{
    static char text[4096];
    FILE *f = fopen(".err", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
    return text;
}

static void save_ints(const char *path, const char *type, const void *data, size_t n, size_t size)
{
    char header[118];
    FILE *f = fopen(path, "wb");
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }",
             type, n);
    fprintf(f, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, header);
    cr_assert(fwrite(data, size, n, f) == n && !fclose(f));
}

static float *save_normals(const char *path, struct random *r, size_t ndim, const size_t *shape)
{
    size_t n = 1;
    for (size_t i = 0; i < ndim; i++) n *= shape[i];
    float *x = oracle_normals(r, n, 2);
    cr_assert(!npy_write_f32(path, ndim, shape, x));
    return x;
}

static struct files save_files(void)
{
    struct random r = {7};
    const size_t q[] = {HEADS_Q, TOTAL_Q, DIM}, k[] = {HEADS_KV, TOTAL_K, DIM};
    const size_t v[] = {HEADS_KV, TOTAL_K, DIM_V}, bias[] = {LONGEST_Q, LONGEST_K};
    const size_t heads = HEADS_Q;
    struct files f = {save_normals("q.npy", &r, 3, q), save_normals("k.npy", &r, 3, k),
                      save_normals("v.npy", &r, 3, v), save_normals("bias.npy", &r, 2, bias),
                      save_normals("sinks.npy", &r, 1, &heads)};
    save_ints("cq.npy", "<i4", cu_q, BATCH + 1, 4);
    save_ints("ck.npy", "<i4", cu_k, BATCH + 1, 4);
    return f;
}

static void free_files(struct files *f)
{
    free(f->q), free(f->k), free(f->v), free(f->bias), free(f->sinks);
}

/* The definition, of query i of sequence b and head h: o (DIM_V) and lse. */
static double define(const struct call *c, const struct files *f, int b, int h, int i, double *o)
{
    int n_q = cu_q[b + 1] - cu_q[b], n_k = cu_k[b + 1] - cu_k[b], i_0 = i + n_k - n_q;
    const float *q = f->q + (h * TOTAL_Q + cu_q[b] + i) * DIM;
    double l = c->sinks ? exp((double)f->sinks[h]) : 0;
    for (int d = 0; d < DIM_V; d++) o[d] = 0;
    for (int j = 0; j < n_k; j++) {
        size_t row = (size_t)(h / 2 * TOTAL_K + cu_k[b] + j);
        double s = 0;
        for (int d = 0; d < DIM; d++) s += (double)q[d] * (double)f->k[row * DIM + (size_t)d];
        s *= 0.25;
        if (c->cap > 0) s = c->cap * tanh(s / c->cap);
        if (c->bias) s += (double)f->bias[i * LONGEST_K + j];
        if (c->causal && j > i_0) continue;
        if (c->window && c->left >= 0 && j < i_0 - c->left) continue;
        if (c->window && c->right >= 0 && j > i_0 + c->right) continue;
        l += exp(s);
        for (int d = 0; d < DIM_V; d++) o[d] += exp(s) * (double)f->v[row * DIM_V + (size_t)d];
    }
    for (int d = 0; d < DIM_V; d++) o[d] = l > 0 ? o[d] / l : 0;
    return l > 0 ? log(l) : -INFINITY;
}

static void check_outputs(const char *stage, const struct call *c, const struct files *f)
{
    struct npy o, lse;
    cr_assert(!npy_read("o.npy", &o) && !npy_read("lse.npy", &lse));
    cr_assert(o.ndim == 3 && o.shape[1] == TOTAL_Q && lse.ndim == 2 && lse.shape[1] == TOTAL_Q);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS_Q; h++)
            for (int i = 0; i < cu_q[b + 1] - cu_q[b]; i++) {
                double want[DIM_V], want_lse = define(c, f, b, h, i, want);
                size_t row = (size_t)(h * TOTAL_Q + cu_q[b] + i);
                double got = (double)((float *)lse.data)[row];
                cr_assert(got == want_lse || fabs(got - want_lse) < 1e-4,
                          "%s %s: lse of sequence %d, head %d, query %d is %g, want %g", stage,
                          c->options, b, h, i, got, want_lse);
                for (size_t d = 0; d < DIM_V; d++)
                    cr_assert(fabs((double)((float *)o.data)[row * DIM_V + d] - want[d]) < 1e-4,
                              "%s %s: sequence %d, head %d, query %d, column %zu: %g, want %g",
                              stage, c->options, b, h, i, d,
                              (double)((float *)o.data)[row * DIM_V + d], want[d]);
            }
    npy_free(&o), npy_free(&lse);
}

#define FILES "run --q q.npy --k k.npy --v v.npy --o o.npy --lse lse.npy --scale 0.25 "
#define PACKED "--cu-seqlens-q cq.npy --cu-seqlens-k ck.npy "

/* Every stage does every combination, whatever its variants know: stage 1 has a promise
 * about scores, which these keep. */
Test(calls, every_stage_runs_packed_sequences_with_every_option)
{
    static const char *const stages[] = {"01_naive", "02_safe_softmax", "03_online_softmax",
                                         "04_monoid_tiled_cpu",
                                         "05_flash_cuda"};
    static const struct call calls[] = {
        {"", 0, 0, -1, -1, 0, 0, 0},
        {"--window 2,0", 0, 1, 2, 0, 0, 0, 0},
        {"--window -1,1 --sinks sinks.npy", 0, 1, -1, 1, 1, 0, 0},
        {"--softcap 1.5 --bias bias.npy", 0, 0, 0, 0, 0, 1, 1.5},
        {"--causal --window 4,-1 --softcap 2 --sinks sinks.npy --bias bias.npy", 1, 1, 4, -1, 1,
         1, 2},
    };
    struct files f = save_files();
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            char arguments[400];
            snprintf(arguments, sizeof arguments, FILES PACKED "%s%s", calls[i].options,
                     s == 4 ? " --device cpu" : "");
            cr_assert(run(stages[s], arguments) == 0, "%s %s: %s", stages[s], arguments,
                      complaint());
            check_outputs(stages[s], &calls[i], &f);
        }
    free_files(&f);
}

Test(calls, hostile_values_exit_2_with_one_line)
{
    static const int32_t late[] = {1, 16}, falls[] = {0, 9, 5, 12, 16}, ends[] = {0, 3, 3, 12, 17};
    static const int32_t few[] = {0, 16};
    static const int64_t wide[] = {0, 1ll << 32};
    static const float one = 1;
    struct files f = save_files();
    save_ints("late.npy", "<i4", late, 2, 4), save_ints("falls.npy", "<i4", falls, 5, 4);
    save_ints("ends.npy", "<i4", ends, 5, 4), save_ints("few.npy", "<i4", few, 2, 4);
    save_ints("none.npy", "<i4", few, 0, 4), save_ints("wide.npy", "<i8", wide, 2, 8);
    const size_t single = 1;
    cr_assert(!npy_write_f32("single.npy", 1, &single, &one));
    static const struct { const char *options, *word; } misuses[] = {
        {"--window 3", "--window"}, {"--window 3,", "--window"}, {"--window ,3", "--window"},
        {"--window 3,4,5", "--window"}, {"--window -2,0", "--window"},
        {"--window 0,99999999999999999999", "--window"}, {"--window ' 1,2'", "--window"},
        {"--softcap 0", "--softcap"}, {"--softcap -1", "--softcap"},
        {"--softcap nan", "--softcap"}, {"--softcap inf", "--softcap"},
        {"--sinks single.npy", "single.npy"}, {"--sinks q.npy", "q.npy"},
        {"--sinks missing.npy", "missing.npy"}, {"--sinks cq.npy", "cq.npy"},
        {"--cu-seqlens-q cq.npy", "--cu-seqlens-k is missing"},
        {"--cu-seqlens-k ck.npy", "--cu-seqlens-q is missing"},
        {"--cu-seqlens-q late.npy --cu-seqlens-k ck.npy", "late.npy: begins with 1"},
        {"--cu-seqlens-q falls.npy --cu-seqlens-k ck.npy", "falls from 9 to 5"},
        {"--cu-seqlens-q ends.npy --cu-seqlens-k ck.npy", "ends with 17"},
        {"--cu-seqlens-q few.npy --cu-seqlens-k ck.npy", "4 sequences"},
        {"--cu-seqlens-q none.npy --cu-seqlens-k ck.npy", "none.npy"},
        {"--cu-seqlens-q wide.npy --cu-seqlens-k ck.npy", "no int32"},
        {"--cu-seqlens-q q.npy --cu-seqlens-k ck.npy", "int32 is needed"},
        {PACKED "--variant fold", "packed sequences"},
        {"--sinks sinks.npy --variant chunk", "sinks"},
    };
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        char arguments[400];
        unlink("o.npy");
        snprintf(arguments, sizeof arguments, FILES "%s", misuses[i].options);
        int status = run("04_monoid_tiled_cpu", arguments);
        const char *newline = strchr(complaint(), '\n');
        cr_expect(status == 2 && newline && !newline[1], "%s: exit %d: %s", misuses[i].options,
                  status, complaint());
        cr_expect(strstr(complaint(), misuses[i].word), "%s: %s", misuses[i].options,
                  complaint());
        cr_expect(access("o.npy", F_OK) != 0, "%s touched the output", misuses[i].options);
    }
    free_files(&f);
}
