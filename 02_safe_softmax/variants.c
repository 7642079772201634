/* variants.c: the variants of stage 2, and its program.  Their order in the list is that of `list`;
 * of several that do a problem equally well, `run` takes the last.  A new variant is a file and two
 * lines here. */
#include "harness.h"

#include "stage.c"

/* Softmax: x is read three times, y written once.  Attention: S written, read four times
 * (the last time for its masks), P written, read: 7 floats per score beyond q, k, v and o. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? cost_of_scores(p, 7, 2) : cost_of_rows(p, 4, 2);
}

const struct variant recompute = {
    .name = "recompute",
    .idea = "subtract the maximum; three loops",
    SAFE_WITH(SCORE_FEATURES),
    .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
    .stores_scores = 1,
};

extern const struct variant reload;                     /* variants/reload.c */
extern const struct variant log_recompute;              /* variants/logsoftmax.c */
extern const struct variant safe_simd;                  /* fast/simd.c */
extern const struct variant safe_overlapped;            /* fast/overlapped.c */
extern const struct variant safe_threads;               /* fast/threads.c */
extern const struct variant gpu_three_pass;             /* gpu/rows.cu */
extern const struct variant gpu_four_kernels;           /* gpu/four_kernels.cu */
extern const struct variant gpu_cub, gpu_cub_fused_exp; /* gpu/cub.cu */

static const struct variant *const variants[] = {
    &recompute,
    &reload,
    &log_recompute,
    &gpu_four_kernels,
    &gpu_cub,
    &gpu_cub_fused_exp,
    &gpu_three_pass,
    &safe_simd,
    &safe_overlapped,
    &safe_threads,
    NULL,
};

static const struct stage stage = {
    .number = 2,
    .name = "02_safe_softmax",
    .idea = "subtract the maximum: three loops, never overflows",
    .variants = variants,
    .traces_attention = 1,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
