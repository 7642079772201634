/* pad.c: third use of a monoid: a ragged end is filled with the unit.
 *
 * A loop of constant length is what vector units and GPUs want.  The unit changes nothing, so
 * it may stand where there is no key.  A zero key may not: its score is 0, not -INFINITY. */
#include "scores.h"

#define CHUNK 32 /* keys in a chunk */

/* x = the fold of CHUNK keys, no more and no fewer: k (CHUNK, d), v (CHUNK, dv). */
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

static size_t workspace_chunk(const struct problem *p)
{
    return p->head_dim_v * sizeof(float);
}

const struct variant monoid_padded = {
    .name = "padded",
    .idea = "last chunk padded",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_padded,
    .cost = cost,
    .does = {{OP_ATTENTION, attention_padded}},
};

const struct variant monoid_masked_reads = {
    .name = "masked_reads",
    .idea = "reads beyond masked",
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace_chunk,
    .cost = cost,
    .does = {{OP_ATTENTION, attention_masked_reads}},
};
