/* variants.c: the variants of stage 1, and its program.  Their order in the list is that of `list`;
 * of several that do a problem equally well, `run` takes the last.  A new variant is a file and its
 * name here. */
#include "harness.h"

#include "stage.c"

/* Softmax: x is read twice, y written once.  Attention: S written, read three times
 * (the last time for its masks), P written, read: 6 floats per score beyond q, k, v and o. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? cost_of_scores(p, 6, 2) : cost_of_rows(p, 3, 2);
}

const struct variant naive = {
    .name = "naive", .idea = "exp(x) / sum exp(x); S and P stored",
    .types = TYPE(F32),
    .supports = SCORE_FEATURES, .max_score = 60, .isolates_v = 1, .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
    .stores_scores = 1,
};

#define VARIANTS(V)                                              \
    V(naive)                                                     \
    V(gpu_thread_per_row) V(gpu_block_per_row) /* gpu/rows.cu */ \
    V(naive_simd) V(naive_threads)             /* fast/ */
VARIANT_LIST(variants, VARIANTS)

void print_first_failing_scores(function_of_row *softmax_row); /* variants/overflow.c */

static void overflow_table(const float *x, size_t n, const float *v)
{
    (void)x, (void)n, (void)v;
    print_first_failing_scores(softmax_row);
}

static const struct stage stage = {
    .number = 1, .name = "01_naive", .idea = "exp(x) / sum: two loops, and it overflows",
    .variants = variants,
    .traces_attention = 1,
    .after_trace = overflow_table,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
