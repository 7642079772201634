/* test_calls_fast.c: windows and sinks in the fast variants of stage 4: what they read, the model
 * of their scores, rows without keys. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attention_problem.h"
#include "oracle.h"
#include "problem/part.h"
#include "problem/variant.h"

extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores;
static const struct variant *const fast[] = {&tiled_loops, &tiled_microkernel,
                                             &tiled_all_cores};

/* n floats behind a page that nobody may touch. */
static float *fenced(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = n * sizeof(float) + page;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED && !mprotect(memory, page, PROT_NONE));
    return (float *)(void *)(memory + page);
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
    float *seen = fenced((N_K + 8 - FIRST / 16 * 16) * D);
    memcpy(seen, all + FIRST / 16 * 16 * D, (N_K - FIRST / 16 * 16) * D * sizeof *seen);
    const float *k = seen - FIRST / 16 * 16 * D;
    for (int i = 0; i < 3; i++) {
        struct arrays a = {.q = q, .k = k, .v = k, .o = o, .lse = lse, .page_table = table};
        struct problem paged = p, plain = p;
        run_variant(fast[i], &paged, &a);
        float first = o[0];
        plain.page_size = plain.n_pages = plain.pages_per_sequence = 0;
        run_variant(fast[i], &plain, &a);
        cr_expect(fabsf(first - o[0]) < 1e-6f && isfinite(first));
    }
    free(q), free(o), free(all);
}

/* One row of NaN sends its panel through the product of a tile twice.  Here the scores of the
 * other rows rise from tile to tile too, and rows from 72 on see no key of the first tile. */
Test(calls, nan_of_one_row_leaves_the_rows_beside_it)
{
    enum { N = 128, D = 16, BAD = 70 };
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = N, .seqlen_k = N, .head_dim = D, .head_dim_v = D,
                        .has_window = 1, .window_left = 8, .window_right = 20, .scale = 1};
    struct random r = {5};
    float q[N * D] = {0}, k[N * D] = {0}, o[2][N * D], lse[2][N], *v = oracle_normals(&r, N * D, 1);
    for (int i = 0; i < N; i++) q[i * D] = 1, k[i * D] = 0.5f * (float)i;
    for (int f = 0; f < 3; f++) {
        for (int bad = 0; bad < 2; bad++) {
            q[BAD * D] = bad ? NAN : 1;
            struct arrays a = {.q = q, .k = k, .v = v, .o = o[bad], .lse = lse[bad]};
            run_variant(fast[f], &p, &a);
        }
        for (int i = 0; i < N; i++) {
            int same = fabsf(lse[0][i] - lse[1][i]) < 1e-5f;
            for (int c = i * D; c < (i + 1) * D; c++) same &= fabsf(o[0][c] - o[1][c]) < 1e-5f;
            cr_expect(same == (i != BAD), "%s, row %d", fast[f]->name, i);
            cr_expect(i != BAD || isnan(o[1][i * D]));
        }
    }
    free(v);
}

/* Keys outside of the windows, counted: of a window the model computes the scores of the panels
 * around it. */
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
        run_variant(fast[i], &p, &a);
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
