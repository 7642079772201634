/* What forms of the fold in stage 4 are there to show, beyond the cases of `check`. */
#include <criterion/criterion.h>
#include <omp.h>

/* The list of variants, and those of them that only this file knows. */
#define main forms_main
#include "../04_monoid_tiled_cpu/variants.c"
#undef main
#include "attention_problem.h"

/* NaN in a key that is the only visible one of its chunk or tile. */
Test(forms, nan_in_a_key_poisons_every_query_that_sees_it)
{
    for (size_t f = 0; variants[f]; f++) {
        if (!variant_does(variants[f], OP_ATTENTION) || !(variants[f]->types & TYPE(F32))) continue;
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

/* Parts are fixed and merged in order, so threads may come and go. */
Test(forms, threads_do_not_change_a_bit)
{
    struct problem p[] = {problem_of(OP_ATTENTION, (struct shape){1, 2, 1, 50, 333, 8, 6}, 1, 0),
                          {.op = OP_SOFTMAX, .rows = 3, .cols = 20011}};
    const int counts[] = {1, 2, 3, 7};
    for (int k = 0; k < 2; k++) {
        struct arrays a = random_arrays(&p[0], 7, 2.0f);
        struct random r = {8};
        struct outputs out[2] = {outputs_new(&p[k]), outputs_new(&p[k])};
        a.x = random_floats(&r, p[1].rows * p[1].cols, 5.0f);
        for (int i = 0; i < 4; i++) {
            omp_set_num_threads(counts[i]);
            outputs_bind(&out[i > 0], &a);
            run_variant(&threads, &p[k], &a);
            cr_assert(!i || outputs_equal(&out[0], &out[1]), "problem %d, %d threads", k, counts[i]);
        }
        outputs_free(&out[0]), outputs_free(&out[1]);
        free((void *)a.x), free_arrays(&a);
    }
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
        cr_assert(variant_scratch(&form_memory_efficient, &p) == (root + 64) * sizeof(float),
                  "n = %zu", n);
    }
}
