/* inputs_scores.c: queries, keys and values whose scores are what a recipe wants. */
#include "verification/inputs.h"

#include "problem/dtype.h"

static void multiply(float *x, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void fill(float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) x[i] = value;
}

static void spread(struct random *r, float *x, size_t n, float limit)
{
    for (size_t i = 0; i < n; i++) x[i] = limit * (2 * random_uniform(r) - 1);
}

void fill_tiny(struct random *r, float *x, size_t n, enum dtype dtype)
{
    float denormal = dtypes[dtype].denormal;
    for (size_t i = 0; i < n; i++) {
        size_t kind = random_below(r, 6);
        float size = kind < 2 ? 0 : kind < 4 ? denormal : 1;
        x[i] = kind % 2 ? -size : size;
    }
}

/* Queries near 1, and keys whose scores rise, fall, or stand out at `at`. */
static void scored_keys(const struct test_case *c, struct floats *f)
{
    const struct problem *p = &c->problem;
    float *q = f->array[ARRAY_Q], *k = f->array[ARRAY_K];
    float unit = 1 / (p->scale * (float)p->head_dim);
    int stands_out = c->recipe == OUTLIER || c->recipe == SPIKE;
    for (size_t i = 0; i < f->n[ARRAY_Q]; i++) {
        size_t row = i / p->head_dim % p->seqlen_q;
        q[i] = 1 + (stands_out ? 0.1f * q[i]
                    : c->recipe == STEEP ? 0.01f * q[i] : 0.25f * (float)(row % 3));
    }
    for (size_t i = 0; i < f->n[ARRAY_K]; i++) {
        size_t j = i / p->head_dim % p->seqlen_k;
        float above = c->recipe == SPIKE ? 500.0f : 20.0f;
        if (stands_out) k[i] = 0.1f * k[i] + (j == c->at ? above * unit : 0);
        else if (c->recipe == STEEP) k[i] = unit * (75.0f / 64.0f) * (float)j;
        else k[i] = unit * ramp(j, p->seqlen_k, c->recipe == DESCENDING);
    }
}

/* Component 0 of every query and key adds `shift` to every score. */
static void shift_scores(const struct problem *p, struct floats *f, float shift)
{
    float *q = f->array[ARRAY_Q], *k = f->array[ARRAY_K];
    size_t n_q = f->n[ARRAY_Q], n_k = f->n[ARRAY_K];
    float q_0 = shift < -1000 ? 32 : 4;
    for (size_t i = 0; i < n_q; i += p->head_dim) q[i] = q_0;
    for (size_t i = 0; i < n_k; i += p->head_dim) k[i] = shift / (p->scale * q_0);
}

/* Value j is seqlen_k in column j mod head_dim_v. */
static void mark_values(const struct problem *p, float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t j = i / p->head_dim_v % p->seqlen_k;
        v[i] = i % p->head_dim_v == j % p->head_dim_v ? (float)p->seqlen_k : 0;
    }
}

/* All scores 55, that of key `at` -55: exp(-55 - 55) is below every float, and times NaN is NaN. */
static void score_far_below(const struct test_case *c, struct floats *f)
{
    size_t d = c->problem.head_dim;
    shift_scores(&c->problem, f, 55);
    for (size_t i = 0; i < f->n[ARRAY_Q]; i++)
        if (i % d) f->array[ARRAY_Q][i] = 0;
    for (size_t i = 0; i < f->n[ARRAY_K]; i += d)
        if (i / d % c->problem.seqlen_k == c->at) f->array[ARRAY_K][i] *= -1;
}

void attention_recipe(const struct test_case *c, struct random *r, struct floats *f,
                      enum dtype dtype)
{
    const struct problem *p = &c->problem;
    float *q = f->array[ARRAY_Q], *k = f->array[ARRAY_K], *v = f->array[ARRAY_V];
    size_t n_q = f->n[ARRAY_Q], n_k = f->n[ARRAY_K], n_v = f->n[ARRAY_V];
    size_t d = p->head_dim, head = p->seqlen_k * d;
    switch (c->recipe) {
    case WIDE: multiply(q, n_q, 30); break;
    case EQUAL:
        for (size_t i = 0; i < n_k; i++) k[i] = k[i / head * head + i % d];
        break;
    case ASCENDING: case DESCENDING: case OUTLIER: case STEEP: case SPIKE:
        scored_keys(c, f);
        break;
    case SHIFT_20: shift_scores(p, f, -20); break;
    case SHIFT_200: shift_scores(p, f, -200); break;
    case LOW: shift_scores(p, f, -1e5f); break;
    case LARGE:
        multiply(q, n_q, 100);
        multiply(k, n_k, 100);
        spread(r, v, n_v, 1e4f);
        break;
    case VAST:
        multiply(q, n_q, 1e15f);
        multiply(k, n_k, 1e15f);
        break;
    case FINITE: fill(q, n_q, 0); break;
    case ZERO_Q:
        fill(q, n_q, 0);
        spread(r, v, n_v, 1e4f);
        break;
    case MARKERS:
        fill(q, n_q, 0);
        mark_values(p, v, n_v);
        break;
    case NAN_V_FAR: score_far_below(c, f); break;
    case TINY:
        fill_tiny(r, q, n_q, dtype);
        fill_tiny(r, k, n_k, dtype);
        fill_tiny(r, v, n_v, dtype);
        break;
    default: break;
    }
}
