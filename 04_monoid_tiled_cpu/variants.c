/* variants.c: the variants of stage 4, and its program.  Their order in the list is that
 * of `list`; of several that do a problem equally well, `run` takes the last.  A new
 * variant is a file and its name here. */
#include <stdio.h>

#include "cost.h"

#include "stage.c"

/* Softmax: scores are read twice and probabilities written once. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? fold_cost(p) : cost_of_rows(p, 3, 3);
}

static const struct variant fold = {
    .name = "fold", .idea = "stage 3's loop, its step named",
    SAFE_WITH(SCORE_FEATURES),
    .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
};

#define VARIANTS(V)                                                         \
    V(fold) V(chunk) V(correct_once)                                        \
    V(padded) V(masked_reads) V(one_hot) V(sinks)   /* variants/ */         \
    V(scan_serial) V(scan_work_efficient) V(update_tree)                    \
    V(form_split) V(form_lse) V(form_normalised) V(form_memory_efficient)   \
    V(eight_bits) V(log_attention_streamed) V(reduction_fused)              \
    V(gradient_stored) V(gradient_recompute)                                \
    V(tile) V(threads) V(simd)                      /* rungs/ */            \
    V(tiled_loops) V(tiled_microkernel) V(tiled_all_cores) V(tiled_widened) \
    V(gradient_all_cores) V(bf16_dot) V(bf16_amx)   /* fast/ */
VARIANT_LIST(variants, VARIANTS)

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
    .number = 4, .name = "04_monoid_tiled_cpu",
    .idea = "partial results merge: chunks, tiles, threads, in any grouping",
    .variants = variants,
    .traces_attention = 1,
    .after_trace = trace_chunks,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
