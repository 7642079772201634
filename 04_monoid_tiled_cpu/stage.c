/* Stage 4: the monoid: attention is one fold.
 *
 *     (v1, m1) . (v2, m2) = (e^{m1 - m} v1 + e^{m2 - m} v2, m),   m = max(m1, m2)
 *
 * is associative and has a unit, so it is a monoid (monoid.h), and the loop of stage 3 is
 * its fold.  This file is that fold and three of the five things that a monoid allows:
 * to fold in chunks, to fold the parts on several threads, and to pad.  scan.c and
 * update.c hold the other two, forms.c and log_attention.c the forms in which others have
 * published the same fold, fused_reduction.c the general case, fast/tiled.c the fast one.
 *
 * "Computing Attention via Monoid Aggregates"; notes/monoid.md has the proofs. */
#include "stage.h"

#include "monoid.h"
#include "row.h"

#define CHUNK 32 /* keys (or scores) in a chunk */
#define PARTS 16 /* parts of a row; fixed, so that threads do not change an answer */
#define SMALL (1 << 14) /* so few scores are not worth waking threads for */

/* ---- fold ---- */

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

/* The fold of the ones over x (n): maximum and denominator. */
static struct se fold_scores(const float *x, size_t n)
{
    struct se s = se_unit();
    for (size_t j = 0; j < n; j++) s = se_merge(s, se_lift(x[j]));
    return s;
}

/* y (n) = softmax or log-softmax of x (n), whose fold is s.  log-softmax is x - m - log l
 * from left to right: m + log l would lose log l when m is large.  The unit, a masked
 * row, gives 0, or -INFINITY. */
static void write_row(const float *x, size_t n, struct se s, int log_of, float *y)
{
    float log_l = logf(s.l);
    for (size_t j = 0; j < n; j++)
        if (s.m == -INFINITY) y[j] = log_of ? -INFINITY : 0.0f;
        else y[j] = log_of ? x[j] - s.m - log_l : expf(x[j] - s.m) / s.l;
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

/* ---- first use: chunk ---- */

/* Parentheses may be moved, so each chunk is folded alone and the results are merged:
 *     (x1 . x2 . x3) . (x4 . x5 . x6) . ...
 * workspace: the o of a chunk. */
static void attention_chunks(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        struct aggregate all = {.o = r.o, .d = r.dv};
        struct aggregate chunk = {.o = a->workspace, .d = r.dv};
        aggregate_unit(&all);
        for (size_t j = 0; j < r.n; j += CHUNK) {
            fold_keys(&r, j, smaller(j + CHUNK, r.n), &chunk);
            aggregate_merge(&all, &chunk);
        }
        aggregate_finish(&all, r.o, r.lse);
    }
}

static size_t workspace_chunks(const struct problem *p)
{
    return p->head_dim_v * sizeof(float);
}

static void rows_in_chunks(const struct problem *p, const struct arrays *a, int log_of)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        struct se s = se_unit();
        for (size_t j = 0; j < p->cols; j += CHUNK)
            s = se_merge(s, fold_scores(x + j, smaller(CHUNK, p->cols - j)));
        write_row(x, p->cols, s, log_of, (float *)a->y + i * p->cols);
    }
}

static void softmax_chunks(const struct problem *p, const struct arrays *a)
{
    rows_in_chunks(p, a, 0);
}

static void logsoftmax_chunks(const struct problem *p, const struct arrays *a)
{
    rows_in_chunks(p, a, 1);
}

/* ---- second use: parts on several threads ---- */

/* The keys are cut into PARTS parts, whatever the number of threads; any thread may fold
 * any part of a head; then the parts of each row are merged in order.  The same additions
 * happen in the same order with 1, 2 or 7 threads, so the answer is the same bit for bit.
 * A shared sum to which threads add as they finish would differ from run to run.
 * workspace: PARTS aggregates for each row of a head, then their o. */
static void attention_threads(const struct problem *p, const struct arrays *a)
{
    size_t n_rows = p->seqlen_q, dv = p->head_dim_v;
    struct aggregate *parts = a->workspace; /* (PARTS, n_rows) */
    float *o = (float *)(parts + PARTS * n_rows);
    for (size_t head = 0; head < p->batch * p->heads_q; head++) {
#pragma omp parallel for schedule(dynamic) if (n_rows * p->seqlen_k > SMALL)
        for (size_t t = 0; t < PARTS; t++)
            for (size_t i = 0; i < n_rows; i++) {
                struct row r = row_of(p, a, head * n_rows + i);
                struct aggregate *x = &parts[t * n_rows + i];
                x->o = o + (t * n_rows + i) * dv;
                x->d = dv;
                fold_keys(&r, r.n * t / PARTS, r.n * (t + 1) / PARTS, x);
            }
#pragma omp parallel for if (n_rows * p->seqlen_k > SMALL)
        for (size_t i = 0; i < n_rows; i++) {
            struct row r = row_of(p, a, head * n_rows + i);
            for (size_t t = 1; t < PARTS; t++)
                aggregate_merge(&parts[i], &parts[t * n_rows + i]);
            aggregate_finish(&parts[i], r.o, r.lse);
        }
    }
}

static size_t workspace_threads(const struct problem *p)
{
    size_t element = sizeof(struct aggregate) + p->head_dim_v * sizeof(float);
    return PARTS * p->seqlen_q * element;
}

static void rows_on_threads(const struct problem *p, const struct arrays *a, int log_of)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        float *y = (float *)a->y + i * p->cols;
        struct se parts[PARTS], s = se_unit();
#pragma omp parallel for if (p->cols > SMALL)
        for (size_t t = 0; t < PARTS; t++) {
            size_t first = p->cols * t / PARTS, last = p->cols * (t + 1) / PARTS;
            parts[t] = fold_scores(x + first, last - first);
        }
        for (size_t t = 0; t < PARTS; t++) s = se_merge(s, parts[t]);
#pragma omp parallel for if (p->cols > SMALL)
        for (size_t t = 0; t < PARTS; t++) {
            size_t first = p->cols * t / PARTS, last = p->cols * (t + 1) / PARTS;
            write_row(x + first, last - first, s, log_of, y + first);
        }
    }
}

static void softmax_threads(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, 0);
}

static void logsoftmax_threads(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, 1);
}

/* ---- third use: pad with the unit ---- */

/* x = the fold of CHUNK keys, no more and no fewer: k (CHUNK, d), v (CHUNK, dv).  A loop
 * of constant length is what vector units and GPUs want. */
static void fold_full_chunk(const struct row *r, size_t j, const float *k, const float *v,
                            struct aggregate *x)
{
    aggregate_unit(x);
    for (size_t t = 0; t < CHUNK; t++)
        aggregate_push(x, score_of(r, k + t * r->d, j + t), v + t * r->dv);
}

/* Physical padding: the last chunk is copied to where it is followed by zero keys with a
 * bias of -INFINITY, that is, by units.  Zero keys alone would not do: their score is 0,
 * not -INFINITY, and they would take weight from the others.
 * workspace: o, the chunk's k and v, a bias for every key, the last chunk full. */
static void attention_padded(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim, dv = p->head_dim_v;
    float *o = a->workspace, *k = o + dv, *v = k + CHUNK * d, *bias = v + CHUNK * dv;
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i), padded = r;
        struct aggregate all = {.o = r.o, .d = dv}, chunk = {.o = o, .d = dv};
        size_t rest = r.n % CHUNK, full = r.n - rest;
        aggregate_unit(&all);
        for (size_t j = 0; j < full; j += CHUNK) {
            fold_full_chunk(&r, j, r.k + j * d, r.v + j * dv, &chunk);
            aggregate_merge(&all, &chunk);
        }
        for (size_t c = 0; c < CHUNK * d; c++)
            k[c] = c < rest * d ? r.k[full * d + c] : 0;
        for (size_t c = 0; c < CHUNK * dv; c++)
            v[c] = c < rest * dv ? r.v[full * dv + c] : 0;
        for (size_t t = 0; t < CHUNK; t++)
            bias[t] = t >= rest ? -INFINITY : r.bias ? r.bias[full + t] : 0.0f;
        padded.bias = bias;
        fold_full_chunk(&padded, 0, k, v, &chunk);
        aggregate_merge(&all, &chunk);
        aggregate_finish(&all, r.o, r.lse);
    }
}

static size_t workspace_padded(const struct problem *p)
{
    return ((CHUNK + 1) * (p->head_dim + p->head_dim_v) + CHUNK) * sizeof(float);
}

/* Masked reads: nothing is copied; every chunk has CHUNK lanes, and a lane beyond the
 * last key is the unit instead of a read.  This is the padding of stage 5's kernels. */
static void attention_masked_reads(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < row_count(p); i++) {
        struct row r = row_of(p, a, i);
        struct aggregate all = {.o = r.o, .d = r.dv};
        struct aggregate chunk = {.o = a->workspace, .d = r.dv};
        aggregate_unit(&all);
        for (size_t j = 0; j < r.n; j += CHUNK) {
            aggregate_unit(&chunk);
            for (size_t t = 0; t < CHUNK; t++) {
                int inside = j + t < r.n;
                float s = inside ? row_score(&r, j + t) : -INFINITY;
                aggregate_push(&chunk, s, inside ? r.v + (j + t) * r.dv : NULL);
            }
            aggregate_merge(&all, &chunk);
        }
        aggregate_finish(&all, r.o, r.lse);
    }
}

/* ---- the stage ---- */

/* Scores are read twice and probabilities written once.  The fold over one-hot vectors
 * rescales y as well when the maximum rises, log n times for scores in random order. */
static struct cost cost(const struct problem *p)
{
    double n = (double)p->rows * p->cols;
    struct cost c = {.passes = 3, .bytes = 12 * n, .exps = 3 * n, .rfo_bytes = 4 * n};
    return p->op == OP_ATTENTION ? row_cost(p) : c;
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

static const struct variant chunk = {
    .name = "chunk",
    .idea = "fold each chunk of 32 keys, merge the results",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_chunks,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_chunks}, {OP_LOGSOFTMAX, logsoftmax_chunks},
             {OP_ATTENTION, attention_chunks}},
};

static const struct variant padded = {
    .name = "padded",
    .idea = "chunks of 32 keys, the last filled with copies of the unit",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_padded,
    .cost = cost,
    .does = {{OP_ATTENTION, attention_padded}},
};

static const struct variant masked_reads = {
    .name = "masked_reads",
    .idea = "chunks of 32 keys, the unit in place of a read beyond the last key",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_chunks,
    .cost = cost,
    .does = {{OP_ATTENTION, attention_masked_reads}},
};

static const struct variant threads = {
    .name = "threads",
    .idea = "16 parts of the keys on any number of threads, merged in order",
    .all_cores = 1,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_threads,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_threads}, {OP_LOGSOFTMAX, logsoftmax_threads},
             {OP_ATTENTION, attention_threads}},
};

extern const struct variant scan_serial, scan_work_efficient;      /* scan.c */
extern const struct variant update_refold, update_tree;            /* update.c */
extern const struct variant form_split, form_lse, form_normalised; /* forms.c */
extern const struct variant form_memory_efficient;                 /* forms.c */
extern const struct variant log_attention_two_passes;              /* log_attention.c */
extern const struct variant log_attention_streamed;                /* log_attention.c */
extern const struct variant reduction_unfused, reduction_fused;    /* fused_reduction.c */
extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores; /* fast/tiled.c */

/* The last one that supports a problem is what `run` takes. */
static const struct variant *const variants[] = {
    &fold,
    &chunk,
    &padded,
    &masked_reads,
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
    &threads,
    &tiled_loops,
    &tiled_microkernel,
    &tiled_all_cores,
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
