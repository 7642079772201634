/* inputs.c: from a case's recipe to arrays.
 *
 * Everything is made as float and then rounded to the problem's type, and every number
 * comes from the seed by exact arithmetic, so a case is the same on every machine. */
#include "verification/cases.h"

#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/feature.h"
#include "problem/operation.h"
#include "problem/part.h"
#include "problem/random.h"
#include "problem/xcalloc.h"
#include "verification/inputs_layout.h"
#include "verification/inputs_scores.h"

static float *normals(struct random *r, size_t n, float width)
{
    float *x = xcalloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = width * random_normal(r);
    return x;
}

/* Does the recipe mask column j of n in this row? */
static int is_masked(const struct test_case *c, struct random *r, size_t row, size_t j,
                     size_t n)
{
    switch (c->recipe) {
    case MASK_SOME: return random_below(r, 3) == 0;
    case MASK_ROW: return row == c->at;
    case MASK_FIRST: return j < c->at;
    case MASK_LAST: return j + c->at >= n;
    case MASK_MIDDLE: return j >= c->at && j < c->at + 64;
    case MASK_LANES: return j % 8 != 5;
    case MASK_BUT_ONE: return j != c->at;
    default: return 0;
    }
}

/* One row of scores x [n], normal on entry. */
static void row_recipe(const struct test_case *c, struct random *r, float *x, size_t n,
                       size_t row, enum dtype dtype)
{
    for (size_t j = 0; j < n; j++) {
        switch (c->recipe) {
        case WIDE: x[j] *= 30; break;
        case RANGE_80: x[j] = 160 * random_uniform(r) - 80; break;
        case EQUAL: x[j] = 3.7f; break;
        case ASCENDING: x[j] = ramp(j, n, 0); break;
        case DESCENDING: x[j] = ramp(j, n, 1); break;
        case OUTLIER: x[j] = 0.1f * x[j] + (j == c->at ? 20.0f : 0.0f); break;
        case SHIFT_20: x[j] -= 20; break;
        case SHIFT_200: x[j] -= 200; break;
        case SHIFT_UP: x[j] += 10000; break;
        case LOW: x[j] -= 100000; break;
        case LARGE: x[j] = 10000 * (2 * random_uniform(r) - 1); break;
        case VAST: x[j] *= 1e30f; break;
        case NEAR_MAX: x[j] = 3e38f * (1 - 0.1f * random_uniform(r)); break;
        case OPPOSITE:
            x[j] = (j % 2 ? -3e38f : 3e38f) * (1 - 0.1f * random_uniform(r));
            break;
        case NAN_Q: x[j] = row == c->at && j == n / 2 ? NAN : x[j]; break;
        case INF_SCORE: x[j] = row == c->at && j == n / 2 ? INFINITY : x[j]; break;
        default: break;
        }
        if (is_masked(c, r, row, j, n)) x[j] = -INFINITY;
    }
    if (c->recipe == TINY) fill_tiny(r, x, n, dtype);
}

/* The recipes that mask by the bias [seqlen_q, seqlen_k], normal on entry. */
static void bias_recipe(const struct test_case *c, struct random *r, float *bias)
{
    size_t rows = c->problem.seqlen_q, n = c->problem.seqlen_k;
    enum recipe recipe = c->recipe;
    int spoiled =
        recipe == NAN_K || recipe == INF_K || recipe == NAN_V || recipe == INF_V;
    int exact =
        recipe == OUTLIER || recipe == EQUAL || recipe == ZERO_Q || recipe == MARKERS;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n; j++) {
            float *b = &bias[i * n + j];
            int masked = is_masked(c, r, i, j, n) || (spoiled && j == c->at);
            if (recipe == MASK_ROW && random_below(r, 5) == 0) masked = 1;
            if (exact) *b = 0;
            if (recipe == INF_SCORE && i == rows / 2 && j == c->at) *b = INFINITY;
            if (masked) *b = -INFINITY;
        }
}

/* The recipes that plant a NaN or an inf in q, k or v. */
static void plant(const struct test_case *c, struct floats *f, const struct sizes *n)
{
    const struct problem *p = &c->problem;
    int minus_inf = c->recipe == MINUS_INF || c->recipe == MINUS_INF_V ||
                    c->recipe == MINUS_INF_ALL;
    for (size_t i = 0; minus_inf && i < n->q; i += p->head_dim) f->q[i] = 1;
    for (size_t i = 0; minus_inf && i < n->k; i += p->head_dim)
        if (c->recipe == MINUS_INF_ALL || i / p->head_dim % p->seqlen_k == c->at)
            f->k[i] = -INFINITY;
    for (size_t i = 0; i < n->q; i++)
        if (c->recipe == NAN_Q && i / p->head_dim % p->seqlen_q == c->at &&
            i % p->head_dim == 0)
            f->q[i] = NAN;
    for (size_t i = 0; i < n->k; i++)
        if (i / p->head_dim % p->seqlen_k == c->at) {
            if (c->recipe == NAN_K) f->k[i] = NAN;
            if (c->recipe == INF_K) f->k[i] = INFINITY;
        }
    for (size_t i = 0; i < n->v; i++)
        if (i / p->head_dim_v % p->seqlen_k == c->at) {
            if (c->recipe == NAN_V || c->recipe == NAN_V_FAR || c->recipe == MINUS_INF_V)
                f->v[i] = NAN;
            if (c->recipe == INF_V) f->v[i] = INFINITY;
            if (c->recipe == NAN_V_ONE && i % p->head_dim_v == p->head_dim_v / 2)
                f->v[i] = NAN;
        }
}

/* x [n], owned, as the problem's type, owned. */
static void *narrow(float *x, size_t n, enum dtype dtype)
{
    if (!x || dtype_size(dtype) == sizeof *x) return x;
    void *y = xcalloc(n, dtype_size(dtype));
    for (size_t i = 0; i < n; i++) dtypes[dtype].store(y, i, x[i]);
    free(x);
    return y;
}

static struct floats make(const struct test_case *c, enum dtype dtype, struct random *r)
{
    const struct problem *p = &c->problem;
    struct sizes n = problem_sizes(p);
    struct floats f = {0};
    if (n.x) f.x = normals(r, n.x, 1);
    if (n.w) f.w = normals(r, n.w, 1);
    for (size_t i = 0; n.x && i < p->rows; i++)
        row_recipe(c, r, f.x + i * p->cols, p->cols, i, dtype);
    if (!n.q) return f;
    f.q = normals(r, n.q, 1);
    f.k = normals(r, n.k, 1);
    f.v = normals(r, n.v, 1);
    attention_recipe(c, r, &f, &n, dtype);
    if (n.bias) {
        f.bias = normals(r, n.bias, 1);
        bias_recipe(c, r, f.bias);
    }
    plant(c, &f, &n);
    if (n.k_new) {
        f.k_new = normals(r, n.k_new, 1);
        f.v_new = normals(r, n.v_new, 1);
    }
    return f;
}

/* A logit per query head, near the scores' size; every fourth is -INFINITY, which is none. */
static float *sinks(const struct problem *p, struct random *r)
{
    float *sink = normals(r, p->heads_q, 2);
    for (size_t h = 3; h < p->heads_q; h += 4) sink[h] = -INFINITY;
    return sink;
}

struct inputs *inputs_new(const struct test_case *of, enum dtype dtype, uint64_t seed)
{
    struct inputs *in = xcalloc(1, sizeof *in);
    struct test_case plain = *of, *c = &plain;
    struct random r = {seed};
    c->problem = in->problem = problem_without_layout(&of->problem);
    struct floats f = make(c, dtype, &r);
    struct sizes n = problem_sizes(&c->problem);
    in->problem.dtype = dtype;
    struct arrays *a = &in->arrays;
    a->x = narrow(f.x, n.x, dtype);
    a->w = narrow(f.w, n.w, dtype);
    a->q = narrow(f.q, n.q, dtype);
    a->k = narrow(f.k, n.k, dtype);
    a->v = narrow(f.v, n.v, dtype);
    a->bias = f.bias;
    a->k_new = narrow(f.k_new, n.k_new, dtype);
    a->v_new = narrow(f.v_new, n.v_new, dtype);
    if (n.index) {
        size_t *index = xcalloc(n.index, sizeof *index);
        for (size_t u = 0; u < n.index; u++)
            index[u] = random_below(&r, c->problem.seqlen_k);
        index[0] = c->at < c->problem.seqlen_k ? c->at : 0; /* what is special, goes */
        a->index = index;
    }
    if (n.sinks) a->sinks = sinks(&c->problem, &r);
    if (problem_features(&of->problem) & LAYOUTS) inputs_lay_out(in, of, &r);
    return in;
}

void inputs_free(struct inputs *in)
{
    if (!in) return;
    const struct arrays *a = &in->arrays;
    const void *owned[] = {a->x, a->w, a->q, a->k, a->v, a->bias, a->index, a->k_new,
                           a->v_new, a->sinks, a->cu_seqlens_q, a->cu_seqlens_k,
                           a->page_table};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free((void *)owned[i]);
    free(in);
}
