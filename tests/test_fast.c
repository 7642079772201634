/* The fast CPU variants of stages 1 to 4: what the case suite of `check` cannot see. */
#include <criterion/criterion.h>
#include <string.h>

#include "attention_problem.h"

extern const struct variant safe_simd, safe_overlapped, safe_threads;
extern const struct variant online_simd, online_streaming, online_one_look, online_threads;
extern const struct variant tiled_all_cores;

static void run_softmax(const struct variant *v, const float *x, float *y, size_t rows, size_t cols)
{
    struct problem p = rows_of(OP_SOFTMAX, rows, cols);
    struct arrays a = {.x = x, .y = y};
    run_variant(v, &p, &a);
}

/* Scratch holds tiles; it must not grow with the sequence. */
Test(fast, workspace_does_not_grow_with_the_sequence)
{
    for (size_t heads = 1; heads <= 64; heads *= 8) {
        struct problem p = problem_of(OP_ATTENTION, (struct shape){1, heads, heads, 1 << 14, 1 << 14,
                                                                   128, 128}, 0, 0);
        size_t bytes = variant_scratch(&tiled_all_cores, &p);
        p.seqlen_q = p.seqlen_k = 1 << 20;
        cr_expect(variant_scratch(&tiled_all_cores, &p) == bytes, "%zu heads", heads);
    }
}

/* Rows that begin on no vector boundary, large enough to be stored past the cache. */
Test(fast, streaming_stores_write_what_plain_stores_write)
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
Test(fast, many_equal_scores_share_evenly)
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
