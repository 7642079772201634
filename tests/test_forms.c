/* What each form of the fold in stage 4 is there to show, beyond the cases of `check`. */
#include <criterion/criterion.h>
#include <omp.h>
#include <string.h>

/* The files themselves, for their static functions; the variants of the asides are linked already. */
#define main forms_main
#define form_split form_split_here
#define form_lse form_lse_here
#define form_normalised form_normalised_here
#define form_memory_efficient form_memory_efficient_here
#define log_attention_two_passes log_attention_two_passes_here
#define log_attention_streamed log_attention_streamed_here
#include "../04_monoid_tiled_cpu/variants/forms.c"
#include "../04_monoid_tiled_cpu/variants/log_attention.c"
#undef CHUNK
#undef form_split
#undef form_lse
#undef form_normalised
#undef form_memory_efficient
#undef log_attention_two_passes
#undef log_attention_streamed
#include "../04_monoid_tiled_cpu/variants.c"
#undef main
#include "attention_problem.h"

static int does_attention(const struct variant *v)
{
    return variant_does(v, OP_ATTENTION) && v->types & TYPE(F32);
}

/* NaN in a key that is the only visible one of its chunk or tile. */
Test(forms, nan_in_a_key_poisons_every_query_that_sees_it)
{
    for (size_t f = 0; variants[f]; f++) {
        if (!does_attention(variants[f])) continue;
        struct problem p = problem_of(OP_ATTENTION, (struct shape){1, 1, 1, 130, 130, 8, 4}, 1, 1);
        struct arrays a = random_arrays(&p, 5, 1.0f);
        for (size_t i = 0; i < 130; i++)
            for (size_t j = 64; j < 128; j++)
                ((float *)a.bias)[i * 130 + j] = j == 70 ? 0.0f : -INFINITY;
        ((float *)a.k)[70 * 8] = NAN;
        expect_accepted(variants[f], &p, &a, "NaN in the only visible key of a tile");
        free_arrays(&a);
    }
}

/* Edges of chunks of 32 and of tiles of 16 by 32, with a causal mask across them. */
Test(forms, edges_of_chunks_and_tiles_match_the_reference)
{
    static const size_t sizes[] = {1, 15, 16, 17, 31, 32, 33, 65};
    for (size_t f = 0; variants[f]; f++)
        for (size_t i = 0; i < 64 && does_attention(variants[f]); i++) {
            struct shape shape = {1, 2, 1, sizes[i % 8], sizes[i / 8], 5, 3};
            struct problem p = problem_of(OP_ATTENTION, shape, i % 3 > 0, i % 2);
            struct arrays a = random_arrays(&p, i, 1.5f);
            expect_accepted(variants[f], &p, &a, "edges");
            free_arrays(&a);
        }
}

/* Without the sum of v, z, a risen maximum cannot be put right.  By hand: m = 2,
 * sum (s - m) v = -2 - 1 - 0 = -3, sum v = 3. */
Test(forms, log_softmax_attention_needs_the_sum_of_v)
{
    float a[1], z[1];
    struct log_aggregate x = {.a = a, .z = z, .d = 1};
    const float s[] = {0, 1, 2}, v[] = {1, 1, 1};
    log_unit(&x);
    for (int j = 0; j < 3; j++) log_push(&x, s[j], &v[j]);
    cr_assert(a[0] == -3.0f && z[0] == 3.0f, "a %g, z %g", a[0], z[0]);
}

/* Parts are fixed and merged in order, so threads may come and go. */
Test(forms, threads_do_not_change_a_bit)
{
    struct problem p = problem_of(OP_ATTENTION, (struct shape){1, 2, 1, 50, 333, 8, 6}, 1, 0);
    struct problem rows = {.op = OP_SOFTMAX, .rows = 3, .cols = 20011};
    struct arrays a = random_arrays(&p, 7, 2.0f);
    struct random r = {8};
    float *x = random_floats(&r, rows.rows * rows.cols, 5.0f);
    struct arrays b = {.x = x};
    struct outputs out[2] = {outputs_new(&p), outputs_new(&p)};
    struct outputs out_rows[2] = {outputs_new(&rows), outputs_new(&rows)};
    const int counts[] = {1, 2, 3, 7};
    for (int i = 0; i < 4; i++) {
        omp_set_num_threads(counts[i]);
        outputs_bind(&out[i > 0], &a), outputs_bind(&out_rows[i > 0], &b);
        run_variant(&threads, &p, &a), run_variant(&threads, &rows, &b);
        cr_assert(!i || outputs_equal(&out[0], &out[1]), "attention, %d threads", counts[i]);
        cr_assert(!i || outputs_equal(&out_rows[0], &out_rows[1]), "softmax, %d threads", counts[i]);
    }
    for (int i = 0; i < 2; i++) outputs_free(&out[i]), outputs_free(&out_rows[i]);
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
        struct problem p = {.op = OP_ATTENTION, .seqlen_k = n, .head_dim_v = 64};
        size_t root = (size_t)sqrt((double)n);
        cr_assert(form_memory_efficient.workspace(&p) == (root + 64) * sizeof(float),
                  "n = %zu", n);
    }
}
