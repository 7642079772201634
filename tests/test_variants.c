/* test_variants.c: the CPU variants of stages 1 to 4: what the case suite of `check` cannot see. */
#include <criterion/criterion.h>
#include <omp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The list of variants, and those of them that only this file knows. */
#define main main_of_stage_4
#include "../04_monoid_tiled_cpu/variants.c"
#undef main
#include "attention_problem.h"
#include "problem/operation.h"
#include "vector/half.h"

/* Many tests call variants themselves.  They limit the team as the programs and the library do. */
__attribute__((constructor)) static void limit_threads(void)
{
    if (omp_get_max_threads() > MOST_THREADS) omp_set_num_threads(MOST_THREADS);
}

extern const struct variant safe_simd, safe_overlapped, naive_threads, safe_threads;
extern const struct variant online_simd, online_streaming, online_one_look, online_threads;
static const struct variant *const fast[] = {&tiled_loops, &tiled_microkernel, &tiled_all_cores};

static void run_softmax(const struct variant *v, const float *x, float *y, size_t rows, size_t cols)
{
    struct problem p = rows_of(OP_SOFTMAX, rows, cols);
    struct arrays a = {.x = x, .y = y};
    run_variant(v, &p, &a);
}

/* Rows that begin on no vector boundary, large enough to be stored past the cache. */
Test(variants, streaming_stores_write_what_plain_stores_write)
{
    enum { ROWS = 3, COLS = 1500001, BYTES = ROWS * COLS * 4 };
    struct inputs *in = inputs_of(rows_of(OP_SOFTMAX, ROWS, COLS), WIDE, F32);
    float *y = malloc(BYTES + 4), *plain = malloc(BYTES);
    run_softmax(&online_simd, in->arrays.x, plain, ROWS, COLS);
    for (int offset = 0; offset < 2; offset++) {
        memset(y, 0xff, BYTES);
        run_softmax(&online_streaming, in->arrays.x, y + offset, ROWS, COLS);
        cr_expect(!memcmp(y + offset, plain, BYTES), "offset %d", offset);
    }
    free(y), free(plain), inputs_free(in);
}

/* 2^25 equal scores: a sum in one float would stop at 2^24. */
Test(variants, many_equal_scores_share_evenly)
{
    static const struct variant *const of[] = {
        &safe_simd, &safe_overlapped, &safe_threads, &online_simd, &online_streaming,
        &online_one_look, &online_threads, &tiled_all_cores};
    enum { N = 1 << 25 };
    float *x = calloc(N, 4), *y = malloc((size_t)N * 4);
    for (size_t v = 0; v < sizeof of / sizeof *of; v++) {
        size_t wrong = 0;
        run_softmax(of[v], x, y, 1, N);
        for (size_t j = 0; j < N; j++) wrong += y[j] != 1.0f / N;
        cr_expect(wrong == 0, "%s: %zu wrong, y[0] = %g", of[v]->name, wrong, (double)y[0]);
    }
    free(x), free(y);
}

/* Fails unless v gives one answer with any number of threads, and one core alone the same. */
static void expect_same_bits(const struct variant *v, const struct variant *alone, struct problem p)
{
    static const int counts[] = {1, 2, 3, 7, 1};
    struct inputs *in = inputs_of(p, WIDE, F32);
    struct arrays a = in->arrays;
    struct outputs first = outputs_new(&p), out = outputs_new(&p);
    for (int t = 0; t < 4 + (alone != NULL); t++) {
        omp_set_num_threads(counts[t]);
        outputs_bind(t ? &out : &first, &a);
        run_variant(t < 4 ? v : alone, &p, &a);
        cr_expect(!t || outputs_equal(&first, &out), "%s: %d threads differ from 1: rows %zu, "
                  "queries %zu, keys %zu", v->name, counts[t], p.rows, p.seqlen_q, p.seqlen_k);
    }
    outputs_free(&first), outputs_free(&out), inputs_free(in);
}

/* Whole tiles, parts of the keys, rows of several heads in a tile, decode; parts are fixed and
 * merged in order. */
Test(variants, threads_do_not_change_a_bit)
{
    static const struct shape shapes[] = {
        {1, 2, 1, 100, 3000, 64, 64}, {1, 4, 2, 1, 5000, 32, 48}, {2, 3, 3, 70, 70, 40, 33},
        {1, 7, 1, 1, 2049, 16, 16},   {1, 2, 1, 1, 1537, 64, 7},  {3, 40, 40, 5, 64, 16, 16}};
    static const size_t rows[][2] = {{1, 200003}, {3, 70000}, {100, 997}, {1, 5}};
    const struct variant *of[] = {&naive_threads, &safe_threads, &online_threads, &threads,
                                  &tiled_all_cores, &gradient_all_cores};
    for (size_t f = 0; f < sizeof of / sizeof *of; f++)
        for (size_t s = 0; s < 2 * sizeof shapes / sizeof *shapes; s++)
            expect_same_bits(of[f], of[f] == &tiled_all_cores ? &tiled_microkernel : NULL,
                             problem_of(f < 5 ? OP_ATTENTION : OP_BACKWARD, shapes[s / 2], s % 2,
                                        s % 2));
    for (size_t f = 0; f < 5; f++)
        for (int op = OP_SOFTMAX; op <= OP_LOGSOFTMAX; op++)
            for (size_t s = 0; s < 4 && variant_does(of[f], op); s++)
                expect_same_bits(of[f], NULL, rows_of(op, rows[s][0], rows[s][1]));
}

/* A key outside of all windows is not read: here nobody may touch its memory.  Its pages may even be
 * gone: their numbers in the table are nonsense. */
Test(variants, keys_outside_of_the_windows_are_never_read)
{
    enum { N_Q = 100, N_K = 1008, D = 16, LEFT = 80, PAGE = 16 };
    enum { FIRST = (N_K - N_Q - LEFT) / PAGE * PAGE };
    struct problem asked = problem_of(OP_ATTENTION, (struct shape){1, 1, 1, N_Q, N_K, D, D}, 1, 0);
    asked.has_window = 1, asked.window_left = LEFT;
    struct inputs *in = inputs_of(asked, RANDOM, F32);
    size_t fence = (size_t)sysconf(_SC_PAGESIZE), bytes = (N_K - FIRST) * D * sizeof(float);
    char *memory = mmap(NULL, bytes + fence, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    cr_assert(memory != MAP_FAILED && !mprotect(memory, fence, PROT_NONE));
    memcpy(memory + fence, (const float *)in->arrays.k + FIRST * D, bytes);
    float *o[2] = {malloc(N_Q * D * sizeof(float)), malloc(N_Q * D * sizeof(float))}, lse[N_Q];
    int32_t table[N_K / PAGE];
    for (int i = 0; i < N_K / PAGE; i++) table[i] = i < FIRST / PAGE ? INT32_MAX : i;
    for (int f = 0; f < 3; f++)
        for (int paged = 0; paged < 2; paged++) {
            struct problem p = in->problem;
            struct arrays a = in->arrays;
            a.k = a.v = (float *)(void *)(memory + fence) - FIRST * D;
            a.o = o[paged], a.lse = lse, a.page_table = table;
            if (paged) p.page_size = PAGE, p.n_pages = p.pages_per_sequence = N_K / PAGE;
            run_variant(fast[f], &p, &a);
            for (int i = 0; i < paged * N_Q * D; i++)
                cr_assert(fabsf(o[0][i] - o[1][i]) < 1e-6f, "%s: %d", fast[f]->name, i);
        }
    free(o[0]), free(o[1]), inputs_free(in);
}

/* 2^20 equal keys of one value, of one long sequence in a batch so large that no tile's keys are cut
 * into parts: in one chain of additions, each rounded the same way, the sum would lose 1 %. */
Test(variants, a_million_equal_keys_have_their_common_value)
{
    enum { BATCH = 64, N_K = 1 << 20, PAGE = 4096, D = 16, MOST = BATCH * 12 * D };
    static int32_t table[BATCH * (N_K / PAGE)], keys[BATCH] = {N_K};
    static float q[MOST], k[PAGE * D], v[PAGE * D], o[MOST], lse[BATCH * 12];
    static uint16_t halves[PAGE * D];
    for (int b = 1; b < BATCH; b++) keys[b] = 1;
    for (int i = 0; i < PAGE * D; i++) v[i] = 0.3f, halves[i] = float_to_half(0.3f);
    for (int way = 0; way < 4; way++) { /* few queries, a tile of them; floats, 16 bits */
        const struct variant *variant = way < 2 ? &tiled_all_cores : &tiled_widened;
        struct shape shape = {BATCH, 1, 1, way % 2 ? 12 : 1, N_K, D, D};
        float want = way < 2 ? 0.3f : half_to_float(halves[0]), got;
        struct problem p = problem_of(OP_ATTENTION, shape, 0, 0);
        p.dtype = way < 2 ? F32 : F16, p.has_lengths = 1;
        p.page_size = PAGE, p.n_pages = 1, p.pages_per_sequence = N_K / PAGE;
        struct arrays a = {.q = q, .k = k, .v = way < 2 ? (void *)v : halves, .o = o, .lse = lse,
                           .page_table = table, .seqlens_k = keys};
        run_variant(variant, &p, &a);
        got = way < 2 ? o[0] : half_to_float(*(uint16_t *)o);
        cr_expect(fabsf(got / want - 1) < 2e-5f, "%s, %zu queries: %.9g", variant->name,
                  shape.seqlen_q, (double)got);
        cr_expect(fabsf(lse[0] - 20 * logf(2)) < 1e-5f, "lse %.9g", (double)lse[0]);
    }
}
