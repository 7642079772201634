/* variants.c: the variants of stage 3, and its program.  Their order in the list is that of `list`;
 * of several that do a problem equally well, `run` takes the last.  A new variant is a file and its
 * name here. */
#include "harness.h"

#include "stage.c"

/* Softmax: x is read twice, y written once.  Attention: nothing of size seqlen^2 exists. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? cost_of_scores(p, 0, 2) : cost_of_rows(p, 3, 3);
}

const struct variant online = {
    .name = "online", .idea = "m and l in one loop; S never stored",
    SAFE_WITH(SCORE_FEATURES),
    .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
};

#define VARIANTS(V)                                                                \
    V(online)                                                                      \
    V(gpu_online) V(gpu_cub_monoid)                                                \
    V(gpu_registers) V(gpu_shared) V(gpu_cluster) V(gpu_two_pass) V(gpu_one_pass)  \
    V(two_loops) V(online_normalised)              /* variants/other_forms.c */    \
    V(mean_total) V(mean_product_first) V(mean_weighted) V(mean_increment)         \
    V(online_simd) V(online_streaming) V(online_one_look) V(online_threads)
VARIANT_LIST(variants, VARIANTS)

static const struct stage stage = {
    .number = 3, .name = "03_online_softmax",
    .idea = "streaming maximum and denominator: two loops, attention without S",
    .variants = variants,
    .traces_attention = 1,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
