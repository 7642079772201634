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
    struct inputs *in = inputs_of(problem_of(OP_ATTENTION, (struct shape){1, 1, 1, 130, 130, 8, 4},
                                             1, 1), RANDOM, F32);
    float *bias = (float *)in->arrays.bias;
    for (size_t i = 0; i < 130; i++)
        for (size_t j = 64; j < 128; j++) bias[i * 130 + j] = j == 70 ? 0.0f : -INFINITY;
    ((float *)in->arrays.k)[70 * 8] = NAN;
    for (size_t f = 0; variants[f]; f++)
        if (variant_does(variants[f], OP_ATTENTION) && variants[f]->types & TYPE(F32))
            judge(variants[f], in);
    inputs_free(in);
}

extern const struct variant naive_threads, safe_threads, online_threads;

/* Fails unless v gives one answer with any number of threads; returns that answer. */
static struct outputs same_with_any_threads(const struct variant *v, const struct problem *p)
{
    static const int counts[] = {1, 2, 3, 7};
    struct inputs *in = inputs_of(*p, WIDE, F32);
    struct arrays a = in->arrays;
    struct outputs first = outputs_new(p), out = outputs_new(p);
    for (int t = 0; t < 4; t++) {
        omp_set_num_threads(counts[t]);
        outputs_bind(t ? &out : &first, &a);
        run_variant(v, p, &a);
        cr_expect(!t || outputs_equal(&first, &out), "%s: %d threads differ from 1: rows %zu, "
                  "queries %zu, keys %zu", v->name, counts[t], p->rows, p->seqlen_q, p->seqlen_k);
    }
    outputs_free(&out), inputs_free(in);
    return first;
}

/* Whole tiles, parts of the keys, rows of several heads in a tile, decode; parts are fixed and
 * merged in order.  One core alone gives these bits, too. */
Test(forms, threads_do_not_change_a_bit)
{
    static const struct shape shapes[] = {
        {1, 2, 1, 100, 3000, 64, 64}, {1, 4, 2, 1, 5000, 32, 48}, {2, 3, 3, 70, 70, 40, 33},
        {1, 7, 1, 1, 2049, 16, 16},   {1, 2, 1, 1, 1537, 64, 7},  {3, 40, 40, 5, 64, 16, 16}};
    static const size_t rows[][2] = {{1, 200003}, {3, 70000}, {100, 997}, {1, 5}};
    const struct variant *of[] = {&naive_threads, &safe_threads, &online_threads, &threads,
                                  &tiled_all_cores, &gradient_all_cores};
    for (size_t f = 0; f < sizeof of / sizeof *of; f++)
        for (int causal = 0; causal < 2; causal++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                enum op op = of[f] == &gradient_all_cores ? OP_BACKWARD : OP_ATTENTION;
                struct problem p = problem_of(op, shapes[s], causal, causal);
                struct outputs all = same_with_any_threads(of[f], &p), one = {{{0}}};
                if (of[f] == &tiled_all_cores) {
                    one = same_with_any_threads(&tiled_microkernel, &p);
                    cr_expect(outputs_equal(&all, &one), "one core, shape %zu", s);
                    outputs_free(&one);
                }
                outputs_free(&all);
            }
    for (size_t f = 0; f < 5; f++)
        for (int op = OP_SOFTMAX; op <= OP_LOGSOFTMAX; op++)
            for (size_t s = 0; s < 4 && variant_does(of[f], op); s++) {
                struct problem p = rows_of(op, rows[s][0], rows[s][1]);
                struct outputs all = same_with_any_threads(of[f], &p);
                outputs_free(&all);
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
