/* Stage 4: the monoid: attention is one fold.
 *
 *     (v1, m1) . (v2, m2) = (e^{m1 - m} v1 + e^{m2 - m} v2, m),   m = max(m1, m2)
 *
 * is associative and has a unit, so it is a monoid (monoid.h), and the loop of stage 3 is
 * its fold.  This file is that fold.  chunk.c, threads.c and pad.c beside it are three of the
 * five things that a monoid allows; variants/scan.c and variants/update.c are the other two.
 *
 * "Computing Attention via Monoid Aggregates"; notes/monoid.md has the proofs. */
#include "stage.h"

#include "monoid.h"
#include "scores.h"

/* Softmax of a row as a quotient of two folds: the one-hot vectors e_j in SE(R^n) by the
 * ones in SE(R).
 *     y = fold (e_j, x_j) / fold (1, x_j)
 *   x (n) scores; -INFINITY means masked     y (n) probabilities, the vector being folded
 * All of x masked gives y = 0.  After j elements y is 0 from j on, so only what lies
 * before is rescaled, and only when the maximum rises: n^2 / 2 products at worst. */
static void softmax_row(const float *x, float *y, size_t n)
{
    struct se ones = se_unit();
    for (size_t j = 0; j < n; j++) {
        struct se one = se_lift(x[j]), sum = se_merge(ones, one);
        if (ones.m != sum.m)
            for (size_t c = 0; c < j; c++) y[c] *= se_factor(ones.m, sum.m);
        y[j] = one.l == 0.0f ? 0.0f : one.l * se_factor(one.m, sum.m);
        ones = sum;
    }
    for (size_t j = 0; j < n; j++) y[j] = se_divide(ones, y[j]);
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static void logsoftmax(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        write_row(x, p->cols, fold_scores(x, p->cols), 1, (float *)a->y + i * p->cols);
    }
}

/* Attention of every row as one fold in SE(R^dv) x SE(R).  head_dim and head_dim_v may
 * differ: the first is summed away in the score, the second is the length of o. */
static void attention(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        struct aggregate x = {.o = r.o, .d = r.dv};
        fold_keys(&r, 0, r.n, &x);
        aggregate_finish(&x, r.o, r.lse);
    }
}

/* The fold of scores x (n) and values v (n, d) key by key; then in tiles of 2 keys, each
 * folded alone and merged, with the factor that corrected what was there before. */
static void trace(struct trace *t, const float *x, size_t n, const float *v, size_t d)
{
    float o[2][64];
    struct aggregate all = {.o = o[0], .d = smaller(d, 64)};
    struct aggregate tile = {.o = o[1], .d = all.d};
    trace_note(t, "one fold, from the unit (m = -inf, l = 0, o = 0):");
    aggregate_unit(&all);
    for (size_t j = 0; j < n; j++) {
        float factor = aggregate_push(&all, x[j], v + j * d);
        trace_state(t, "element", j, x[j], all.m, all.l, all.o, all.d, factor);
    }
    trace_note(t, "the same in tiles of 2 keys, each folded alone and merged:");
    aggregate_unit(&all);
    for (size_t j = 0; j < n; j += 2) {
        float m = all.m;
        aggregate_unit(&tile);
        for (size_t i = j; i < smaller(j + 2, n); i++)
            aggregate_push(&tile, x[i], v + i * d);
        trace_state(t, "tile", j / 2, tile.m, tile.m, tile.l, tile.o, tile.d, 1.0f);
        aggregate_merge(&all, &tile);
        trace_state(t, "merge", j / 2, tile.m, all.m, all.l, all.o, all.d,
                    m == -INFINITY ? 1.0f : se_factor(m, all.m));
    }
}

static const struct variant fold = {
    .name = "fold",
    .idea = "attention is one fold; softmax: fold of one-hot vectors / fold of ones",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax}, {OP_LOGSOFTMAX, logsoftmax},
             {OP_ATTENTION, attention}},
};

extern const struct variant monoid_chunk;                          /* chunk.c */
extern const struct variant monoid_threads;                        /* threads.c */
extern const struct variant monoid_padded, monoid_masked_reads;    /* pad.c */
extern const struct variant scan_serial, scan_work_efficient;      /* variants/scan.c */
extern const struct variant update_refold, update_tree;            /* variants/update.c */
extern const struct variant form_split, form_lse, form_normalised; /* variants/forms.c */
extern const struct variant form_memory_efficient;                 /* variants/forms.c */
extern const struct variant log_attention_two_passes;     /* variants/log_attention.c */
extern const struct variant log_attention_streamed;       /* variants/log_attention.c */
extern const struct variant reduction_unfused, reduction_fused; /* variants/fused_reduction.c */
extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores; /* fast/tiled.c */
extern const struct variant bf16_dot, bf16_amx;                    /* fast/bf16.c */

/* The last one that supports a problem is what `run` takes. */
static const struct variant *const variants[] = {
    &fold,
    &monoid_chunk,
    &monoid_padded,
    &monoid_masked_reads,
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
    &monoid_threads,
    &tiled_loops,
    &tiled_microkernel,
    &tiled_all_cores,
    &bf16_dot,
    &bf16_amx,
    NULL,
};

static const struct stage stage = {
    .number = 4,
    .name = "04_monoid_tiled_cpu",
    .idea = "attention is one fold in a monoid: chunk, thread, pad, scan, update it",
    .variants = variants,
    .trace = trace,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
