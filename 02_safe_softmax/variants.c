/* variants.c: the variants of stage 2, and its program.  Their order in the list is that of `list`;
 * of several that do a problem equally well, `run` takes the last.  A new variant is a file and its
 * name here. */
#include "harness.h"

#include "stage.c"

/* Softmax: x is read three times, y written once.  Attention: S written, read four times
 * (the last time for its masks), P written, read: 7 floats per score beyond q, k, v and o. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? cost_of_scores(p, 7, 2) : cost_of_rows(p, 4, 2);
}

const struct variant recompute = {
    .name = "recompute", .idea = "subtract the maximum; three loops",
    SAFE_WITH(SCORE_FEATURES),
    .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
    .stores_scores = 1,
};

#define VARIANTS(V)                                                       \
    V(recompute)                                                          \
    V(reload) V(log_recompute)           /* variants/ */                  \
    V(gpu_four_kernels) V(gpu_cub) V(gpu_cub_fused_exp) V(gpu_three_pass) \
    V(safe_simd) V(safe_overlapped) V(safe_threads) /* fast/ */
VARIANT_LIST(variants, VARIANTS)

static const struct stage stage = {
    .number = 2, .name = "02_safe_softmax",
    .idea = "subtract the maximum: three loops, never overflows",
    .variants = variants,
    .traces_attention = 1,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
