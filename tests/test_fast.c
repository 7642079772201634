/* The fast CPU variants of stages 1 to 4: what the case suite of `check` cannot see. */
#include <criterion/criterion.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "attention_problem.h"

extern const struct variant naive_simd, naive_threads;
extern const struct variant safe_simd, safe_overlapped, safe_threads;
extern const struct variant online_simd, online_streaming,
    online_one_look, online_threads;
extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores;

/* Softmax or log-softmax of x [rows, cols] into y. */
static void run_rows(const struct variant *v, enum op op, const float *x, float *y,
                     size_t rows, size_t cols)
{
    struct problem p = {.op = op, .dtype = F32, .rows = rows, .cols = cols};
    struct arrays a = {.x = x, .y = y};
    run_variant(v, &p, &a);
}

static int same_bits(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

static const int thread_counts[] = {1, 2, 3, 7};
enum { N_COUNTS = sizeof thread_counts / sizeof thread_counts[0] };

Test(fast, thread_count_changes_no_bit_of_a_softmax)
{
    static const struct { const struct variant *v; enum op op; } of[] = {
        {&naive_threads, OP_SOFTMAX},    {&safe_threads, OP_SOFTMAX},
        {&safe_threads, OP_LOGSOFTMAX},  {&online_threads, OP_SOFTMAX},
        {&online_threads, OP_LOGSOFTMAX}, {&tiled_all_cores, OP_SOFTMAX},
        {&tiled_all_cores, OP_LOGSOFTMAX},
    };
    static const size_t shapes[][2] = {{1, 200003}, {3, 70000}, {100, 997}, {1, 5}};
    struct random r = {11};
    float *x = random_floats(&r, 210000, 10), *y = malloc(840000), *first = malloc(840000);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int t = 0; t < N_COUNTS; t++) {
                omp_set_num_threads(thread_counts[t]);
                run_rows(of[i].v, of[i].op, x, t ? y : first, shapes[s][0], shapes[s][1]);
                cr_expect(t == 0 || same_bits(y, first, shapes[s][0] * shapes[s][1]),
                          "%s, case %zu, [%zu, %zu]: %d threads differ from 1", of[i].v->name,
                          i, shapes[s][0], shapes[s][1], thread_counts[t]);
            }
    free(x), free(y), free(first);
}

/* Shapes with whole tiles, parts of the keys, rows of several heads in a tile, decode. */
static const struct shape attention_shapes[] = {
    {1, 2, 1, 100, 3000, 64, 64}, {1, 4, 2, 1, 5000, 32, 48}, {2, 3, 3, 70, 70, 40, 33},
    {1, 7, 1, 1, 2049, 16, 16},   {1, 2, 1, 1, 1537, 64, 7},  {3, 40, 40, 5, 64, 16, 16},
};
enum { N_SHAPES = sizeof attention_shapes / sizeof attention_shapes[0] };

static size_t output_floats(const struct problem *p)
{
    return p->batch * p->heads_q * p->seqlen_q * p->head_dim_v;
}

Test(fast, thread_count_changes_no_bit_of_attention)
{
    static const struct variant *const of[] = {&naive_threads, &safe_threads, &online_threads,
                                               &tiled_all_cores};
    for (size_t s = 0; s < N_SHAPES; s++)
        for (int causal = 0; causal < 2; causal++) {
            struct problem p = problem_of(OP_ATTENTION, attention_shapes[s], causal, 0);
            struct arrays a = random_arrays(&p, 12 + s, 1);
            size_t n = output_floats(&p);
            float *o = malloc(n * 4), *first = malloc(n * 4);
            a.bias = NULL;
            a.lse = malloc(p.batch * p.heads_q * p.seqlen_q * 4);
            for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
                for (int t = 0; t < N_COUNTS; t++) {
                    omp_set_num_threads(thread_counts[t]);
                    a.o = t ? o : first;
                    run_variant(of[i], &p, &a);
                    cr_expect(t == 0 || same_bits(o, first, n),
                              "%s of case %zu, shape %zu, causal %d: %d threads differ from 1",
                              of[i]->name, i, s, causal, thread_counts[t]);
                }
            free(o), free(first), free(a.lse);
            free_arrays(&a);
        }
}

Test(fast, one_core_and_all_cores_give_the_same_bits)
{
    for (size_t s = 0; s < N_SHAPES; s++) {
        struct problem p = problem_of(OP_ATTENTION, attention_shapes[s], 1, 1);
        struct arrays a = random_arrays(&p, 31 + s, 2);
        size_t n = output_floats(&p);
        float *one = a.o = malloc(n * 4), *all = malloc(n * 4);
        a.lse = malloc(p.batch * p.heads_q * p.seqlen_q * 4);
        run_variant(&tiled_microkernel, &p, &a);
        a.o = all;
        run_variant(&tiled_all_cores, &p, &a);
        cr_expect(same_bits(one, all, n), "shape %zu", s);
        free(one), free(all), free(a.lse);
        free_arrays(&a);
    }
}

/* Key j scores far above the others, so o is its value row, here j in every column.  j walks
 * over the edges of blocks of registers, tiles, parts and chunks.  Above 88 its weight relative
 * to the others is infinite; bits of an exponent that is too large look small from 90 on. */
Test(fast, attention_finds_the_key_that_wins)
{
    static const size_t winners[] = {0,   1,   5,   6,   7,   8,    127,  128,  129,  255,
                                     256, 257, 511, 512, 513, 1023, 1024, 1025, 1535, 1536};
    static const size_t queries[] = {1, 2, 3, 47, 48, 49, 97};
    static const float heights[] = {90, 95, 200, 1000};
    static const struct variant *const of[] = {&tiled_loops, &tiled_all_cores, &online_threads};
    enum { KEYS = 1537, DIM = 20 };
    float *k = calloc(KEYS * DIM, 4), *v = malloc(KEYS * DIM * 4), *q = malloc(97 * DIM * 4);
    float *o = malloc(97 * DIM * 4), lse[97];
    for (size_t i = 0; i < KEYS * DIM; i++) v[i] = (float)(i / DIM);
    for (size_t i = 0; i < 97 * DIM; i++) q[i] = 1;
    for (size_t w = 0; w < sizeof winners / sizeof winners[0]; w++)
        for (size_t n = 0; n < sizeof queries / sizeof queries[0]; n++)
            for (size_t u = 0; u < sizeof of / sizeof of[0]; u++) {
                size_t j = winners[w];
                float height = heights[(w + n) % 4];
                struct shape s = {1, 1, 1, queries[n], KEYS, DIM, DIM};
                struct problem p = problem_of(OP_ATTENTION, s, 0, 0);
                struct arrays a = {.q = q, .k = k, .v = v, .o = o, .lse = lse};
                p.scale = 1;
                for (size_t d = 0; d < DIM; d++) k[j * DIM + d] = height / DIM;
                run_variant(of[u], &p, &a);
                for (size_t d = 0; d < DIM; d++) k[j * DIM + d] = 0;
                size_t wrong = 0;
                for (size_t i = 0; i < queries[n] * DIM; i++) wrong += o[i] != (float)j;
                cr_expect(wrong == 0, "%s: %zu of %zu outputs are not key %zu, e.g. %g",
                          of[u]->name, wrong, queries[n] * DIM, j, o[0]);
            }
    free(k), free(v), free(q), free(o);
}

/* Scratch holds tiles; it must not grow with the sequence. */
Test(fast, workspace_does_not_grow_with_the_sequence)
{
    for (size_t heads = 1; heads <= 64; heads *= 8) {
        size_t bytes[2];
        for (int i = 0; i < 2; i++) {
            struct shape s = {1, heads, heads, i ? 1 << 20 : 1 << 14, i ? 1 << 20 : 1 << 14,
                              128, 128};
            struct problem p = problem_of(OP_ATTENTION, s, 0, 0);
            bytes[i] = tiled_all_cores.workspace(&p);
        }
        cr_expect(bytes[1] == bytes[0], "%zu heads: %zu bytes, then %zu", heads, bytes[0],
                  bytes[1]);
    }
}

/* Rows that begin on no vector boundary, large enough to be stored past the cache. */
Test(fast, streaming_stores_write_what_plain_stores_write)
{
    enum { ROWS = 3, COLS = 1500001 };
    struct random r = {3};
    float *x = random_floats(&r, ROWS * COLS, 5), *y = malloc(ROWS * COLS * 4 + 4);
    float *plain = malloc(ROWS * COLS * 4);
    run_rows(&online_simd, OP_SOFTMAX, x, plain, ROWS, COLS);
    for (int offset = 0; offset < 2; offset++) {
        memset(y, 0xff, ROWS * COLS * 4);
        run_rows(&online_streaming, OP_SOFTMAX, x, y + offset, ROWS, COLS);
        cr_expect(same_bits(y + offset, plain, ROWS * COLS), "offset %d", offset);
    }
    free(x), free(y), free(plain);
}

static const struct variant *const softmaxes[] = {
    &safe_simd,        &safe_overlapped, &safe_threads,    &online_simd,
    &online_streaming, &online_one_look, &online_threads, &tiled_all_cores,
};
enum { N_SOFTMAXES = sizeof softmaxes / sizeof softmaxes[0] };

/* Lengths on both sides of every unrolling, block and chunk. */
static const size_t row_lengths[] = {1, 15, 17, 63, 65, 2047, 2049, 32769, 70001};
enum { N_LENGTHS = sizeof row_lengths / sizeof row_lengths[0] };

Test(fast, one_nan_makes_its_row_nan_and_no_other)
{
    float *x = calloc(3 * 70001, 4), *y = malloc(3 * 70001 * 4);
    for (size_t v = 0; v < N_SOFTMAXES; v++)
        for (size_t l = 0; l < N_LENGTHS; l++)
            for (int rest = 0; rest < 2; rest++) { /* among zeros, or where all is masked */
                size_t n = row_lengths[l], at = n + n / 2, wrong = 0;
                for (size_t j = 0; j < 3 * n; j++) x[j] = rest ? -INFINITY : 0;
                x[at] = NAN;
                run_rows(softmaxes[v], OP_SOFTMAX, x, y, 3, n);
                for (size_t j = 0; j < 3 * n; j++)
                    wrong += j / n == 1 ? !isnan(y[j]) : !(y[j] == (rest ? 0 : 1 / (float)n) ||
                                                           fabsf(y[j] * (float)n - 1) < 1e-5f);
                cr_expect(wrong == 0, "%s, n %zu, rest %d: %zu wrong", softmaxes[v]->name, n,
                          rest, wrong);
            }
    free(x), free(y);
}

/* Scores at which powers of two, and differences, leave their comfortable range. */
Test(fast, far_scores_give_a_one_hot_row)
{
    static const float top[] = {0, 88, 1e4f, 11356, 16383, 16384, 16385, 23637, 1e30f, 3e38f,
                                -1e4f, -11357, -16383, -16384, -16385, -1e30f};
    float *x = malloc(70001 * 4), *y = malloc(70001 * 4);
    for (size_t v = 0; v < N_SOFTMAXES; v++)
        for (size_t l = 0; l < N_LENGTHS; l++)
            for (size_t t = 0; t < sizeof top / sizeof top[0]; t++) {
                size_t n = row_lengths[l], at = n * 2 / 3, wrong = 0;
                float low = top[t] - 1000 < top[t] ? top[t] - 1000 : -INFINITY;
                for (size_t j = 0; j < n; j++) x[j] = low;
                x[at] = top[t];
                run_rows(softmaxes[v], OP_SOFTMAX, x, y, 1, n);
                for (size_t j = 0; j < n; j++)
                    wrong += j == at ? !(fabsf(y[j] - 1) < 3e-7f) : y[j] != 0;
                cr_expect(wrong == 0, "%s, n %zu, top %g: %zu wrong, y = %g",
                          softmaxes[v]->name, n, top[t], wrong, y[at]);
            }
    free(x), free(y);
}

/* x_j = j / 1000 is a geometric series: the last probability is (1 - q) / (1 - q^n) with
 * q = e^-0.001.  The maximum rises in every block. */
Test(fast, rising_scores_give_a_geometric_series)
{
    float *x = malloc(70001 * 4), *y = malloc(70001 * 4);
    for (size_t v = 0; v < N_SOFTMAXES; v++)
        for (size_t l = 0; l < N_LENGTHS; l++) {
            size_t n = row_lengths[l];
            double last = expm1(-1e-3) / expm1(-1e-3 * (double)n);
            for (size_t j = 0; j < n; j++) x[j] = (float)j / 1000;
            run_rows(softmaxes[v], OP_SOFTMAX, x, y, 1, n);
            cr_expect(fabs(y[n - 1] - last) <= 2e-5 * last, "%s, n %zu: got %.9g, want %.9g",
                      softmaxes[v]->name, n, y[n - 1], last);
        }
    free(x), free(y);
}

/* 2^25 equal scores: a sum in one float would stop at 2^24. */
Test(fast, many_equal_scores_share_evenly)
{
    enum { N = 1 << 25 };
    float *x = calloc(N, 4), *y = malloc((size_t)N * 4);
    for (size_t v = 0; v < N_SOFTMAXES; v++) {
        run_rows(softmaxes[v], OP_SOFTMAX, x, y, 1, N);
        size_t wrong = 0;
        for (size_t j = 0; j < N; j++) wrong += y[j] != 1.0f / N;
        cr_expect(wrong == 0, "%s: %zu wrong, y[0] = %g", softmaxes[v]->name, wrong, y[0]);
    }
    free(x), free(y);
}
