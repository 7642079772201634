/* Every form of the fold against the reference, and what each is there to show
 * (04_monoid_tiled_cpu: stage.c, chunk.c, threads.c, pad.c, forms.c, log_attention.c). */
#include <criterion/criterion.h>
#include <omp.h>
#include <string.h>

/* The files themselves, for their static functions; their variants are linked already. */
#define main forms_main
#define form_split form_split_here
#define form_lse form_lse_here
#define form_normalised form_normalised_here
#define form_memory_efficient form_memory_efficient_here
#define log_attention_two_passes log_attention_two_passes_here
#define log_attention_streamed log_attention_streamed_here
#include "../04_monoid_tiled_cpu/stage.c"
#undef main
#include "../04_monoid_tiled_cpu/variants/forms.c"
#include "../04_monoid_tiled_cpu/variants/log_attention.c"
#include "attention_problem.h"

static const struct shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},   {1, 2, 1, 3, 2, 7, 5},    {2, 4, 2, 5, 31, 8, 3},
    {1, 1, 1, 4, 32, 4, 4},  {1, 2, 2, 7, 33, 5, 9},   {1, 3, 1, 64, 65, 16, 8},
    {1, 1, 1, 9, 129, 3, 1}, {1, 1, 1, 40, 7, 8, 8},   {2, 2, 1, 3, 0, 4, 4},
    {1, 1, 1, 2, 257, 64, 32},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static const struct variant *const forms[] = {
    &fold, &monoid_chunk, &monoid_padded, &monoid_masked_reads, &monoid_threads,
    &form_split, &form_lse, &form_normalised, &form_memory_efficient,
};
#define N_FORMS (sizeof forms / sizeof *forms)

Test(forms, every_form_matches_the_reference)
{
    for (size_t f = 0; f < N_FORMS; f++)
        for (size_t i = 0; i < N_SHAPES; i++)
            for (int mask = 0; mask < 4; mask++) {
                struct problem p =
                    problem_of(OP_ATTENTION, shapes[i], mask & 1, mask >> 1);
                struct arrays a = random_arrays(&p, i, 1.5f);
                char what[64];
                snprintf(what, sizeof what, "shape %zu, causal %d, bias %d", i, mask & 1,
                         mask >> 1);
                expect_accepted(forms[f], &p, &a, what);
                free_arrays(&a);
            }
}

Test(forms, log_softmax_attention_matches_the_reference)
{
    const struct variant *const log_forms[] = {&log_attention_two_passes,
                                               &log_attention_streamed};
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < N_SHAPES; i++)
            for (int mask = 0; mask < 4; mask++) {
                struct problem p =
                    problem_of(OP_LOGSOFTMAX_ATTENTION, shapes[i], mask & 1, mask >> 1);
                struct arrays a = random_arrays(&p, i, 1.5f);
                expect_accepted(log_forms[f], &p, &a, "log");
                free_arrays(&a);
            }
}

/* Without the sum of v, z, a risen maximum cannot be put right. */
Test(forms, log_softmax_attention_needs_the_sum_of_v)
{
    float a[1], z[1];
    struct log_aggregate x = {.a = a, .z = z, .d = 1};
    const float s[] = {0, 1, 2}, v[] = {1, 1, 1};
    log_unit(&x);
    for (int j = 0; j < 3; j++) log_push(&x, s[j], &v[j]);
    /* by hand: m = 2, sum (s - m) v = -2 - 1 - 0 = -3, sum v = 3 */
    cr_assert(a[0] == -3.0f && z[0] == 3.0f, "a %g, z %g", a[0], z[0]);
    float without = 0; /* the same without the correction by z */
    for (int j = 0; j < 3; j++) without += (s[j] - s[j]) * v[j];
    cr_assert(without != -3.0f);
}

Test(forms, nan_in_a_masked_row_of_v_does_not_leak)
{
    struct shape shape = {1, 1, 1, 3, 130, 8, 4};
    for (size_t f = 0; f < N_FORMS; f++)
        for (size_t at = 0; at < 130; at += 43) {
            struct problem p = problem_of(OP_ATTENTION, shape, 0, 1);
            struct arrays a = random_arrays(&p, at, 1.0f);
            for (size_t i = 0; i < 3; i++)
                ((float *)a.bias)[i * 130 + at] = -INFINITY;
            for (size_t c = 0; c < 4; c++)
                ((float *)a.v)[at * 4 + c] = c % 2 ? NAN : INFINITY;
            for (size_t c = 0; c < 8; c++) ((float *)a.k)[at * 8 + c] = NAN;
            expect_accepted(forms[f], &p, &a, "NaN and inf in a masked key and value");
            free_arrays(&a);
        }
}

Test(forms, nan_in_a_key_poisons_every_query_that_sees_it)
{
    struct shape shape = {1, 1, 1, 130, 130, 8, 4};
    for (size_t f = 0; f < N_FORMS; f++) {
        struct problem p = problem_of(OP_ATTENTION, shape, 1, 1);
        struct arrays a = random_arrays(&p, 5, 1.0f);
        for (size_t i = 0; i < 130; i++)
            for (size_t j = 64; j < 128; j++) /* nothing else is visible in its tile */
                ((float *)a.bias)[i * 130 + j] = j == 70 ? 0.0f : -INFINITY;
        ((float *)a.k)[70 * 8] = NAN;
        expect_accepted(forms[f], &p, &a, "NaN in the only visible key of a tile");
        free_arrays(&a);
    }
}

/* A first tile, a last tile, everything: masked. */
Test(forms, masked_tiles_and_rows_are_the_unit)
{
    struct shape shape = {1, 2, 1, 4, 150, 8, 4};
    for (size_t f = 0; f < N_FORMS; f++) {
        struct problem p = problem_of(OP_ATTENTION, shape, 0, 1);
        struct arrays a = random_arrays(&p, 6, 1.0f);
        float *bias = (float *)a.bias;
        for (size_t j = 0; j < 150; j++) {
            bias[j] = j < 70 ? -INFINITY : 0.0f;
            bias[150 + j] = j >= 20 ? -INFINITY : 0.0f;
            bias[300 + j] = -INFINITY;
            bias[450 + j] = j == 149 ? 0.0f : -INFINITY;
        }
        expect_accepted(forms[f], &p, &a, "masked tiles");
        free_arrays(&a);
    }
}

/* Parts are fixed and merged in order, so threads may come and go. */
Test(forms, threads_do_not_change_a_bit)
{
    struct shape shape = {1, 2, 1, 50, 333, 8, 6};
    struct problem p = problem_of(OP_ATTENTION, shape, 1, 0);
    struct problem rows = {.op = OP_SOFTMAX, .rows = 3, .cols = 20011};
    struct arrays a = random_arrays(&p, 7, 2.0f);
    struct random r = {8};
    float *x = random_floats(&r, rows.rows * rows.cols, 5.0f);
    struct arrays b = {.x = x};
    struct outputs first = outputs_new(&p), again = outputs_new(&p);
    struct outputs first_rows = outputs_new(&rows), again_rows = outputs_new(&rows);
    const int counts[] = {1, 2, 3, 7};
    for (int i = 0; i < 4; i++) {
        omp_set_num_threads(counts[i]);
        outputs_bind(i ? &again : &first, &a);
        outputs_bind(i ? &again_rows : &first_rows, &b);
        run_variant(&monoid_threads, &p, &a);
        run_variant(&monoid_threads, &rows, &b);
        cr_assert(!i || outputs_equal(&first, &again), "attention, %d threads",
                  counts[i]);
        cr_assert(!i || outputs_equal(&first_rows, &again_rows), "softmax, %d threads",
                  counts[i]);
    }
    outputs_free(&first);
    outputs_free(&again);
    outputs_free(&first_rows);
    outputs_free(&again_rows);
    free_arrays(&a);
    free(x);
}

/* Zero keys are not the unit: their score is 0, and where the real scores are -20 the
 * padding takes all the weight. */
Test(forms, padding_with_zero_keys_instead_of_the_unit_is_wrong)
{
    float o[1], v[1] = {1.0f}, lse;
    struct aggregate x = {.o = o, .d = 1};
    for (int with_unit = 0; with_unit < 2; with_unit++) {
        aggregate_unit(&x);
        for (int j = 0; j < 5; j++) aggregate_push(&x, -20.0f, v);
        for (int j = 5; j < 32; j++)
            aggregate_push(&x, with_unit ? -INFINITY : 0.0f, (float[1]){0.0f});
        aggregate_finish(&x, o, &lse);
        cr_assert(with_unit ? o[0] == 1.0f : o[0] < 1e-7f, "o = %g", o[0]);
    }
}

/* Softmax of the rows of x by every variant that has it. */
Test(forms, softmax_and_log_softmax_match_the_reference)
{
    const size_t cols[] = {1, 2, 31, 32, 33, 100, 4099};
    const struct variant *const softmaxes[] = {&fold, &monoid_chunk, &monoid_threads};
    for (size_t f = 0; f < 3; f++)
        for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
            for (int log_of = 0; log_of < 2; log_of++) {
                struct problem p = {.op = log_of ? OP_LOGSOFTMAX : OP_SOFTMAX, .rows = 4,
                                    .cols = cols[i]};
                struct random r = {i};
                float *x = random_floats(&r, 4 * cols[i], 5.0f);
                for (size_t j = 0; j < cols[i]; j++) {
                    x[cols[i] + j] = -INFINITY;                     /* masked row */
                    x[2 * cols[i] + j] = 0.01f * (float)j;          /* ascending */
                    if (j % 3) x[3 * cols[i] + j] = -INFINITY;      /* masked scores */
                }
                struct arrays a = {.x = x};
                expect_accepted(softmaxes[f], &p, &a, "rows");
                free(x);
            }
}

/* The combiner of the notes, on parts that are far apart and on an empty one. */
Test(forms, combiner_weighs_normalised_parts_by_their_denominators)
{
    float o1[1] = {2.0f}, o2[1] = {5.0f};
    struct part x = {0.0f, 3.0f, o1}, y = {0.0f, 2.0f, o2}, none = {-INFINITY, 0.0f, o2};
    combine(&x, &y, 1);
    cr_assert(x.b == 0.0f && x.e == 5.0f && o1[0] == 3.2f, "o = %g", o1[0]);
    combine(&x, &none, 1);
    cr_assert(x.e == 5.0f && o1[0] == 3.2f);
    struct part far = {100.0f, 1.0f, o2};
    combine(&x, &far, 1);
    cr_assert(x.b == 100.0f && x.e == 1.0f && o1[0] == 5.0f, "o = %g", o1[0]);
}

/* lse is at least the maximum, so it can stand in for it: no exponent is positive. */
Test(forms, lse_form_never_takes_exp_of_a_positive_number)
{
    struct random r = {9};
    for (int i = 0; i < 1000; i++) {
        struct se x = se_unit();
        for (int j = 0; j < 50; j++) {
            x = se_merge(x, se_lift(20.0f * random_normal(&r)));
            cr_assert(se_lse(x) >= x.m, "lse %.9g < m %.9g", se_lse(x), x.m);
        }
    }
}

/* The scores in flight: sqrt(n), against the n of stage 2 for each query. */
Test(forms, memory_efficient_form_needs_sqrt_n_memory)
{
    for (size_t n = 1; n <= 1 << 20; n *= 4) {
        struct problem p = {.seqlen_k = n, .head_dim_v = 64};
        size_t root = (size_t)sqrt((double)n);
        cr_assert(form_memory_efficient.workspace(&p) == (root + 64) * sizeof(float),
                  "n = %zu", n);
    }
}
