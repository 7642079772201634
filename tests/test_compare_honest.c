/* test_compare_honest.c: the rule of acceptance takes what every honest algorithm gives.  Each of these
 * problems was once held against one. */
#include <string.h>

#define main main_of_stage_4_again
#include "../04_monoid_tiled_cpu/variants.c"
#undef main
#include "attention_problem.h"

extern const struct variant naive_threads, safe_threads, two_loops, online_normalised;
extern const struct variant mean_total, mean_product_first, mean_weighted, mean_increment;
static const struct variant *const others[] = {
    &naive_threads, &safe_threads, &two_loops, &online_normalised, &mean_total,
    &mean_product_first, &mean_weighted, &mean_increment, NULL};

/* All variants of the operation that promise to be right. */
static void judge_all(struct inputs *in)
{
    const struct problem *p = &in->problem;
    for (int list = 0; list < 2; list++)
        for (const struct variant *const *v = list ? variants : others; *v; v++) {
            if (!variant_does(*v, p->op) || !((*v)->types & TYPE(F32))) continue;
            if ((*v)->device != ON_CPU) continue;
            if ((*v)->max_keys && p->seqlen_k > (*v)->max_keys) continue;
            judge(*v, in);
        }
}

/* x_j = from + (to - from) j / n: equal steps, or equal numbers. */
static void ramp(const void *x, size_t n, double from, double to)
{
    for (size_t j = 0; j < n; j++)
        ((float *)(size_t)x)[j] = (float)(from + (to - from) * (double)j / (double)n);
}

Test(honest, scores_on_a_line_and_equal_values)
{
    static const struct { size_t n; double from, to; } of[] = {
        {60000, 0, 10}, {500, 0, 0}, {8000, 0, 0}, {8000, 3, 3}, {8000, -0.1, 0}, {8000, 0, -0.1}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int value = 0; value < 2; value++) {
            const struct shape shape = {1, 1, 1, 1, of[i].n, 1, 1};
            struct inputs *in = inputs_of(problem_of(OP_ATTENTION, shape, 0, 0), RANDOM, F32);
            in->problem.scale = 1;
            ramp(in->arrays.q, 1, 1, 1);
            ramp(in->arrays.k, of[i].n, of[i].from, of[i].to);
            if (value) ramp(in->arrays.v, of[i].n, 1, 1);
            judge_all(in);
            inputs_free(in);
        }
}

Test(honest, rows_on_a_line)
{
    static const struct { enum op op; size_t n; double to; } of[] = {
        {OP_LOGSOFTMAX, 100000, 0.1}, {OP_SOFTMAX, 100000, 0.1}, {OP_FUSED_REDUCTION, 1000000, 1},
        {OP_MEAN, 1000000, 1}, {OP_FUSED_REDUCTION, 3000, 1e-42}, {OP_SOFTMAX, 3000, 1e-42},
        {OP_MEAN, 3000, 1e-42}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct inputs *in = inputs_of(rows_of(of[i].op, 1, of[i].n), RANDOM, F32);
        ramp(in->arrays.x, of[i].n, 0, of[i].to);
        if (of[i].to < 1e-40 && in->arrays.w) ramp(in->arrays.w, of[i].n, of[i].to, 0);
        judge_all(in);
        inputs_free(in);
    }
}

/* A sink far below the scores, and gradients of 1e14: D times what is flushed. */
Test(honest, gradients_beside_a_dead_sink)
{
    const struct shape shape = {1, 1, 1, 40, 300, 4, 4};
    struct problem p = problem_of(OP_BACKWARD, shape, 0, 0);
    p.has_sinks = 1;
    struct inputs *in = inputs_of(p, ZERO_Q, F32);
    ramp(in->arrays.q, 40 * 4, 0, 0), ramp(in->arrays.k, 300 * 4, 0, 0);
    ramp(in->arrays.v, 300 * 4, 1, 1), ramp(in->arrays.d_o, 40 * 4, 1e14, 1e14);
    ramp(in->arrays.sinks, 1, -100, -100);
    forward_answer(&in->problem, &in->arrays);
    judge_all(in);
    inputs_free(in);
}
