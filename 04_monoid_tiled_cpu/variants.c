/* variants.c: the variants of stage 4, and its program.  Their order in the list is that
 * of `list`; of several that do a problem equally well, `run` takes the last.  A new
 * variant is a file and two lines here. */
#include <stdio.h>

#include "harness.h"
#include "problem/heads.h"

#include "stage.c"

/* Softmax: scores are read twice and probabilities written once.  Attention: no score is
 * stored; a key costs one exp, and one more when it raises the maximum. */
static struct cost cost(const struct problem *p)
{
    double n = (double)p->rows * (double)p->cols;
    if (p->op == OP_ATTENTION)
        return (struct cost){.bytes = attention_io_bytes(p), .exps = 2 * score_count(p)};
    return (struct cost){.passes = 3, .bytes = 12 * n, .exps = 3 * n, .rfo_bytes = 4 * n};
}

static float logsoftmax_row(const float *x, float *y, size_t n)
{
    struct se all = fold_scores(x, n);
    write_logsoftmax(x, y, n, all);
    return se_lse(all);
}

static float softmax_row_in_chunks(const float *x, float *y, size_t n)
{
    struct se all = fold_scores_in_chunks(x, n);
    write_softmax(x, y, n, all);
    return se_lse(all);
}

static float logsoftmax_row_in_chunks(const float *x, float *y, size_t n)
{
    struct se all = fold_scores_in_chunks(x, n);
    write_logsoftmax(x, y, n, all);
    return se_lse(all);
}

static size_t one_row_of_o(const struct problem *p)
{
    return p->head_dim_v * sizeof(float);
}

function_of_head attention_padded, attention_masked_reads;        /* pad.c */
function_of_head attention_in_tiles;                              /* tile.c */
variant_function attention_on_threads, rows_on_threads;           /* threads.c */
size_t padded_workspace(const struct problem *p), threads_workspace(const struct problem *p);

#define LESSON SAFE_ON_CPU, .cost = cost

static const struct variant fold = {
    .name = "fold",
    .idea = "one key after another",
    LESSON,
    .by_row = {{OP_SOFTMAX, softmax_row}, {OP_LOGSOFTMAX, logsoftmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
};

static const struct variant chunk = {
    .name = "chunk",
    .idea = "chunks of keys, merged",
    LESSON,
    .workspace = one_row_of_o,
    .by_row = {{OP_SOFTMAX, softmax_row_in_chunks}, {OP_LOGSOFTMAX, logsoftmax_row_in_chunks}},
    .by_head = {{OP_ATTENTION, attention_in_chunks}},
};

static const struct variant padded = {
    .name = "padded",
    .idea = "last chunk padded",
    LESSON,
    .workspace = padded_workspace,
    .by_head = {{OP_ATTENTION, attention_padded}},
};

static const struct variant masked_reads = {
    .name = "masked_reads",
    .idea = "reads beyond masked",
    LESSON,
    .workspace = one_row_of_o,
    .by_head = {{OP_ATTENTION, attention_masked_reads}},
};

static const struct variant tile = {
    .name = "tile",
    .idea = "16 queries by 32 keys",
    LESSON,
    .by_head = {{OP_ATTENTION, attention_in_tiles}},
};

static const struct variant threads = {
    .name = "threads",
    .idea = "tiles, in 16 parts",
    .all_cores = 1,
    LESSON,
    .workspace = threads_workspace,
    .does = {{OP_SOFTMAX, rows_on_threads}, {OP_LOGSOFTMAX, rows_on_threads},
             {OP_ATTENTION, attention_on_threads}},
};

extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores; /* fast/tiled.c */
extern const struct variant gradient_all_cores;                              /* fast/gradient.c */
extern const struct variant bf16_dot, bf16_amx;                              /* fast/bf16.c */
extern const struct variant one_hot, sinks;                                  /* variants/ */
extern const struct variant scan_serial, scan_work_efficient, update_refold, update_tree;
extern const struct variant form_split, form_lse, form_normalised, form_memory_efficient;
extern const struct variant gradient_stored, gradient_recompute;
extern const struct variant log_attention_two_passes, log_attention_streamed;
extern const struct variant reduction_unfused, reduction_fused;

static const struct variant *const variants[] = {
    &fold,
    &chunk,
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
    &tiled_loops,
    &tiled_microkernel,
    &tiled_all_cores,
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

/* The row x (n) once more in chunks of 2 keys, with values v (n, 2), by the functions of
 * stage.c. */
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
        fold_keys(h, 0, j, smaller(j + 2, n), &chunk);
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
