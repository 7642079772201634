/* variants.c: the variants of stage 3, and its program.  Their order in the list is that of `list`;
 * of several that do a problem equally well, `run` takes the last.  A new variant is a file and two
 * lines here. */
#include "harness.h"

#include "stage.c"

/* Softmax: x is read twice, y written once.  Attention: nothing of size seqlen^2 exists. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? cost_of_scores(p, 0, 2) : cost_of_rows(p, 3, 3);
}

const struct variant online = {
    .name = "online",
    .idea = "m and l in one loop; S never stored",
    SAFE_WITH(SCORE_FEATURES),
    .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
};

extern const struct variant online_simd;                    /* fast/simd.c */
extern const struct variant online_streaming;               /* fast/streaming.c */
extern const struct variant online_one_look;                /* fast/one_look.c */
extern const struct variant online_threads;                 /* fast/threads.c */
extern const struct variant gpu_online;                     /* gpu/rows.cu */
extern const struct variant gpu_cub_monoid;                 /* gpu/cub_monoid.cu */
extern const struct variant gpu_registers;                  /* gpu/one_pass/registers.cu */
extern const struct variant gpu_spans;                      /* gpu/one_pass/spans.cu */
extern const struct variant gpu_shared;                     /* gpu/one_pass/shared.cu */
extern const struct variant gpu_cluster;                    /* gpu/one_pass/clusters.cu */
extern const struct variant gpu_two_pass;                   /* gpu/one_pass/two_pass.cu */
extern const struct variant gpu_one_pass;                   /* gpu/one_pass/one_pass.cu */
extern const struct variant two_loops, online_normalised;   /* variants/attention.c */
extern const struct variant mean_total, mean_product_first; /* variants/mean.c */
extern const struct variant mean_weighted, mean_increment;  /* variants/mean.c */

static const struct variant *const variants[] = {
    &online,
    &gpu_online,
    &gpu_cub_monoid,
    &gpu_spans,
    &gpu_registers,
    &gpu_shared,
    &gpu_cluster,
    &gpu_two_pass,
    &gpu_one_pass,
    &two_loops,
    &online_normalised,
    &mean_total,
    &mean_product_first,
    &mean_weighted,
    &mean_increment,
    &online_simd,
    &online_streaming,
    &online_one_look,
    &online_threads,
    NULL,
};

static const struct stage stage = {
    .number = 3,
    .name = "03_online_softmax",
    .idea = "streaming maximum and denominator: two loops, attention without S",
    .variants = variants,
    .traces_attention = 1,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
