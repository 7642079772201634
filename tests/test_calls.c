/* test_calls.c: windows, soft caps, sinks, packed sequences, pages and strides, against
 * their definitions written out here in double. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npy/npy.h"
#include "oracle.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "problem/part.h"
#include "problem/variant.h"

extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores;
static const struct variant *const fast[] = {&tiled_loops, &tiled_microkernel,
                                             &tiled_all_cores};

/* ---- The programs on packed files. ---- */

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

/* ---- The fast variants. ---- */

/* n floats at the end of the memory before a page that nobody may touch, or behind one. */
static float *fenced(size_t n, int fence_first)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (n * sizeof(float) + page - 1) / page * page;
    char *memory = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    cr_assert(memory != MAP_FAILED);
    cr_assert(!mprotect(fence_first ? memory : memory + bytes, page, PROT_NONE));
    return (float *)(void *)(fence_first ? memory + page : memory + bytes) - (fence_first ? 0 : n);
}

static void call_variant(const struct variant *v, const struct problem *p, struct arrays *a)
{
    a->workspace = memory_new(v->workspace(p));
    variant_does(v, p->op)(p, a);
    memory_free(a->workspace);
}

/* A key outside of all windows is not read: here its memory cannot be.  Its pages may even be
 * gone: their numbers in the table are nonsense. */
Test(calls, keys_outside_of_the_windows_are_never_read)
{
    enum { N_Q = 100, N_K = 1000, D = 16, LEFT = 80 };
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = N_Q, .seqlen_k = N_K, .head_dim = D, .head_dim_v = D,
                        .causal = 1, .has_window = 1, .window_left = LEFT, .window_right = 0,
                        .scale = 0.25f, .page_size = 16, .n_pages = 63,
                        .pages_per_sequence = 63};
    enum { FIRST = N_K - N_Q - LEFT };
    struct random r = {3};
    float *q = oracle_normals(&r, N_Q * D, 1), *o = malloc(N_Q * D * sizeof *o);
    float *all = oracle_normals(&r, N_K * D, 1), lse[N_Q];
    int32_t table[63];
    for (int i = 0; i < 63; i++) table[i] = i < FIRST / 16 ? INT32_MAX : i;
    float *seen = fenced((N_K + 8 - FIRST / 16 * 16) * D, 1);
    memcpy(seen, all + FIRST / 16 * 16 * D, (N_K - FIRST / 16 * 16) * D * sizeof *seen);
    const float *k = seen - FIRST / 16 * 16 * D;
    for (int i = 0; i < 3; i++) {
        struct arrays a = {.q = q, .k = k, .v = k, .o = o, .lse = lse, .page_table = table};
        struct problem paged = p, plain = p;
        call_variant(fast[i], &paged, &a);
        float first = o[0];
        plain.page_size = plain.n_pages = plain.pages_per_sequence = 0;
        call_variant(fast[i], &plain, &a);
        cr_expect(fabsf(first - o[0]) < 1e-6f && isfinite(first));
    }
    free(q), free(o), free(all);
}

/* The same, counted: of a window the model computes the scores of the panels around it. */
Test(calls, predicted_scores_fall_with_the_window)
{
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = 9600, .seqlen_k = 9600, .head_dim = 64, .head_dim_v = 64,
                        .causal = 1, .has_window = 1, .window_left = -1, .window_right = 0};
    double all = tiled_all_cores.cost(&p).exps;
    p.window_left = 95;
    double some = tiled_all_cores.cost(&p).exps;
    /* 200 panels of 48 queries: full they see 48 t keys, t = 1 to 200; else 143, the first two
     * 48 and 96 */
    cr_expect(all == 48.0 * 48 * 20100, "%g", all);
    cr_expect(some == 48.0 * (48 + 96 + 198 * 143.0), "%g", some);
    cr_expect(problem_pairs(&p) == 96 * 97 / 2 + (9600 - 96) * 96.0, "%g", problem_pairs(&p));
}

/* A row without keys, and one whose keys weigh little beside the sink. */
Test(calls, sink_of_a_row_without_keys_is_its_lse)
{
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 2, .heads_kv = 1,
                        .seqlen_q = 2, .seqlen_k = 1, .head_dim = 1, .head_dim_v = 1,
                        .causal = 1, .has_sinks = 1, .scale = 1};
    float q[4] = {1, 1, 1, 1}, k = 0, v = 8, sinks[2] = {0, -INFINITY}, o[4], lse[4];
    for (int i = 0; i < 3; i++) {
        struct arrays a = {.q = q, .k = &k, .v = &v, .sinks = sinks, .o = o, .lse = lse};
        call_variant(fast[i], &p, &a);
        cr_expect(o[0] == 0 && lse[0] == 0, "no key: %g, lse %g", (double)o[0], (double)lse[0]);
        cr_expect(o[1] == 4 && fabsf(lse[1] - logf(2)) < 1e-6f, "half: %g", (double)o[1]);
        cr_expect(o[2] == 0 && lse[2] == -INFINITY && o[3] == 8 && lse[3] == 0, "no sink");
    }
}

/* What the harness does for variants that know nothing of sinks is the same merge. */
Test(calls, sink_merged_into_a_finished_part_is_one_more_element)
{
    float o[2] = {6, 6}, lse[2] = {0, -INFINITY}, sinks[2] = {0, 3};
    struct part part = {.p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 2, .heads_kv = 1,
                              .seqlen_q = 1, .seqlen_k = 1, .head_dim = 1, .head_dim_v = 1},
                        .a = {.o = o, .lse = lse, .sinks = sinks}};
    part_add_sinks(&part);
    cr_expect(o[0] == 3 && fabsf(lse[0] - logf(2)) < 1e-6f);
    cr_expect(o[1] == 0 && lse[1] == 3);
}
