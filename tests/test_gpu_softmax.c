/* GPU kernels executed on the CPU, beyond the cases of `check`.  Stages 1 to 3: every length around an
 * edge of the dispatch, rows that start anywhere, rows that are cut in slices, the table of traffic.
 * Stage 5: repairs, and threads. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "attention_problem.h"

extern const struct variant gpu_four_kernels, gpu_cub, gpu_cub_fused_exp, gpu_three_pass;
extern const struct variant gpu_online, gpu_cub_monoid, gpu_shared, gpu_two_pass;
extern const struct variant gpu_one_pass, gpu_thread_per_row, gpu_block_per_row;

/* In each type. */
static void expect_right(const struct variant *v, size_t rows, size_t cols)
{
    for (int t = F32; t <= BF16; t++) {
        struct inputs *in = inputs_of(rows_of(OP_SOFTMAX, rows, cols), RANDOM, (enum dtype)t);
        judge(v, in);
        inputs_free(in);
    }
}

Test(gpu_softmax, one_pass_is_right_around_every_edge_of_its_dispatch)
{
    static const size_t edges[] = {512,  640,  1024, 1280, 1536,
                                   2048, 2304, 4096, 8192, 16384};
    for (size_t e = 0; e < sizeof edges / sizeof *edges; e++)
        for (size_t cols = edges[e] - 1; cols <= edges[e] + 1; cols++)
            expect_right(&gpu_one_pass, 3, cols);
}

/* 17 rows start at every place in a sector of 32 bytes. */
Test(gpu_softmax, short_rows_of_every_length_are_right)
{
    for (size_t cols = 1; cols <= 130; cols++) expect_right(&gpu_one_pass, 17, cols);
}

Test(gpu_softmax, rows_may_start_anywhere)
{
    static const struct variant *const all[] = {&gpu_shared, &gpu_two_pass, &gpu_one_pass};
    for (size_t v = 0; v < 3; v++)
        for (size_t cols = 257; cols < 257 + 8; cols++) expect_right(all[v], 9, cols);
}

Test(gpu_softmax, two_pass_cuts_a_long_row_in_slices)
{
    expect_right(&gpu_two_pass, 1, 100003);
}

/* The table of traffic: 6, 6, 4 and 4, 3, 3, 2 passes, and stage 1's 3. */
Test(gpu_softmax, predicted_passes_are_those_of_the_table)
{
    static const struct { const struct variant *v; double passes; } cases[] = {
        {&gpu_thread_per_row, 3}, {&gpu_block_per_row, 3}, {&gpu_four_kernels, 6},
        {&gpu_cub, 6},            {&gpu_cub_fused_exp, 4}, {&gpu_three_pass, 4},
        {&gpu_online, 3},         {&gpu_cub_monoid, 3},    {&gpu_two_pass, 3},
        {&gpu_one_pass, 2},
    };
    struct problem p = rows_of(OP_SOFTMAX, 7, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cost c = cases[i].v->cost(&p);
        cr_expect(c.passes == cases[i].passes && c.bytes == 4 * 7000 * cases[i].passes,
                  "%s: %g passes, %g bytes", cases[i].v->name, c.passes, c.bytes);
    }
}

extern const struct variant first_block_max, tuned, general;

/* In two blocks of 64 keys or more the maximum rises: the last is repaired, and its keys are read by
 * ordinary loads before the copy engine writes others there. */
static void *expect_right_when_scores_rise(void *variant)
{
    struct inputs *in = inputs_of(problem_of(OP_ATTENTION, (struct shape){1, 1, 1, 100, 1024, 64, 64},
                                             0, 0), ASCENDING, BF16);
    judge(variant, in);
    inputs_free(in);
    return NULL;
}

/* A thread that has called nothing before has no context of the GPU, without which no launch works. */
Test(hopper, blocks_that_are_repaired_are_right_in_a_new_thread)
{
    const struct variant *of[] = {&first_block_max, &tuned, &general};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        cr_assert(!pthread_create(&thread, NULL, expect_right_when_scores_rise, (void *)of[i]));
        pthread_join(thread, NULL);
    }
}
