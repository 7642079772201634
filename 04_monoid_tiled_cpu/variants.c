/* variants.c: the variants of stage 4, and its program.  Their order in the list is that
 * of `list`; of several that do a problem equally well, `run` takes the last.  A new
 * variant is a file and two lines here. */
#include <stdio.h>

#include "cost.h"

#include "stage.c"

/* Softmax: scores are read twice and probabilities written once. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? fold_cost(p) : cost_of_rows(p, 3, 3);
}

static const struct variant fold = {
    .name = "fold",
    .idea = "stage 3's loop, its step named",
    SAFE_WITH(SCORE_FEATURES),
    .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
};

extern const struct variant chunk, correct_once, tile, threads, simd;       /* rungs/ */
extern const struct variant tiled_loops, tiled_microkernel;                  /* fast/tiled.c */
extern const struct variant tiled_all_cores, tiled_widened;
extern const struct variant gradient_all_cores;                              /* fast/gradient.c */
extern const struct variant bf16_dot, bf16_amx;                              /* fast/bf16.c */
extern const struct variant padded, masked_reads, one_hot, sinks;            /* variants/ */
extern const struct variant scan_serial, scan_work_efficient, update_refold, update_tree;
extern const struct variant form_split, form_lse, form_normalised, form_memory_efficient;
extern const struct variant gradient_stored, gradient_recompute;
extern const struct variant log_attention_two_passes, log_attention_streamed;
extern const struct variant reduction_unfused, reduction_fused;

static const struct variant *const variants[] = {
    &fold,
    &chunk,
    &correct_once,
    &padded,
    &masked_reads,
    &one_hot,
    &sinks,
    &scan_serial,
    &scan_work_efficient,
    &update_refold,
    &update_tree,
    &form_split,
    &form_lse,
    &form_normalised,
    &form_memory_efficient,
    &log_attention_two_passes,
    &log_attention_streamed,
    &reduction_unfused,
    &reduction_fused,
    &gradient_stored,
    &gradient_recompute,
    &tile,
    &threads,
    &simd,
    &tiled_loops,
    &tiled_microkernel,
    &tiled_all_cores,
    &tiled_widened,
    &gradient_all_cores,
    &bf16_dot,
    &bf16_amx,
    NULL,
};

static void print_partial(const char *step, size_t j, const struct aggregate *x)
{
    printf("%-8s %2zu %12.6g %12.6g", step, j, (double)x->m, (double)x->l);
    for (size_t c = 0; c < x->d; c++) printf(" %12.6g", (double)x->o[c]);
    printf("\n");
}

/* The row x (n) once more in chunks of 2 keys, with values v (n, 2), by monoid.h. */
static void trace_chunks(const float *x, size_t n, const float *v)
{
    float q = 1, o[2][2];
    struct head h = {.q = &q, .k = x, .v = v, .seqlen_q = 1, .seqlen_k = n, .head_dim = 1,
                     .head_dim_v = 2, .scale = 1, .last = (ptrdiff_t)n - 1};
    struct aggregate all = {.o = o[0], .d = 2}, chunk = {.o = o[1], .d = 2};
    aggregate_unit(&all);
    printf("the same in chunks of 2 keys, each folded alone and merged\n%-11s %12s %12s %12s\n",
           "step", "m", "l", "o");
    for (size_t j = 0; j < n; j += 2) {
        aggregate_unit(&chunk);
        for (size_t t = j; t < n && t < j + 2; t++)
            aggregate_push(&chunk, score(&h, 0, t), v_row(&h, t));
        print_partial("chunk", j / 2, &chunk);
        aggregate_merge(&all, &chunk);
        print_partial("merged", j / 2, &all);
    }
}

static const struct stage stage = {
    .number = 4,
    .name = "04_monoid_tiled_cpu",
    .idea = "partial results merge: chunks, tiles, threads, in any grouping",
    .variants = variants,
    .traces_attention = 1,
    .after_trace = trace_chunks,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
