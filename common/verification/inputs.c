/* inputs.c: from a case's recipe to arrays.
 *
 * Everything is made as float and then rounded to the problem's type, and every number
 * comes from the seed by exact arithmetic, so a case is the same on every machine. */
#include "verification/cases.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/feature.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "problem/part.h"
#include "problem/random.h"
#include "verification/inputs.h"
#include "verification/standard.h"

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
            if (recipe == FINITE) {
                float mask = c->at == 38 ? -FLT_MAX : -powf(10, (float)c->at);
                *b = i == 3 || random_below(r, 3) == 0 ? mask : 0;
                continue;
            }
            int masked = is_masked(c, r, i, j, n) || (spoiled && j == c->at);
            if (recipe == MASK_ROW && random_below(r, 5) == 0) masked = 1;
            if (exact) *b = 0;
            if (recipe == INF_SCORE && i == rows / 2 && j == c->at) *b = INFINITY;
            if (masked) *b = -INFINITY;
        }
}

/* The recipes that plant a NaN or an inf in row `at` of q, k or v, or in each. */
static void plant(const struct test_case *c, struct floats *f)
{
    const struct problem *p = &c->problem;
    float *q = f->array[ARRAY_Q], *k = f->array[ARRAY_K], *v = f->array[ARRAY_V];
    enum recipe r = c->recipe;
    int minus_inf = r == MINUS_INF || r == MINUS_INF_V || r == MINUS_INF_ALL;
    for (size_t i = 0; i < f->n[ARRAY_Q]; i += p->head_dim) {
        if (minus_inf) q[i] = 1;
        if (r == NAN_Q && i / p->head_dim % p->seqlen_q == c->at) q[i] = NAN;
    }
    for (size_t i = 0; i < f->n[ARRAY_K]; i++) {
        int here = i / p->head_dim % p->seqlen_k == c->at, first = i % p->head_dim == 0;
        if (first && minus_inf && (here || r == MINUS_INF_ALL)) k[i] = -INFINITY;
        if (here && r == NAN_K) k[i] = NAN;
        if (here && r == INF_K) k[i] = INFINITY;
    }
    for (size_t i = 0; i < f->n[ARRAY_V]; i++) {
        if (i / p->head_dim_v % p->seqlen_k != c->at) continue;
        if (r == NAN_V || r == NAN_V_FAR || r == MINUS_INF_V) v[i] = NAN;
        if (r == NAN_V_ONE && i % p->head_dim_v == p->head_dim_v / 2) v[i] = NAN;
        if (r == INF_V) v[i] = INFINITY;
    }
}

/* Array i, if the problem reads it, of normal numbers. */
static void draw(struct floats *f, const struct problem *p, struct random *r, enum array i)
{
    if (array_role(p, i) != INPUT || f->array[i]) return;
    f->n[i] = array_count(p, i);
    f->array[i] = normals(r, f->n[i], 1);
}

/* A logit per query head, near the scores' size; every fourth is -INFINITY, which is none. */
static void sink_recipe(const struct test_case *c, float *sink)
{
    for (size_t h = 0; h < c->problem.heads_q; h++)
        sink[h] = h % 4 == 3 ? -INFINITY : 2 * sink[h];
    if (c->recipe == SINK_INF) sink[0] = INFINITY;
    if (c->recipe == SINK_NAN) sink[0] = NAN;
    if (c->recipe == SINK_HUGE) sink[0] = 3e38f;
}

/* Which rows are replaced. */
static size_t *draw_index(const struct test_case *c, struct random *r)
{
    size_t *index = xcalloc(c->problem.n_updates, sizeof *index);
    for (size_t u = 0; u < c->problem.n_updates; u++)
        index[u] = random_below(r, c->problem.seqlen_k);
    index[0] = c->at < c->problem.seqlen_k ? c->at : 0; /* what is special, goes */
    return index;
}

/* The order of the draws is fixed: another would change the inputs of every case. */
static struct floats make(const struct test_case *c, enum dtype dtype, struct random *r,
                          size_t **index)
{
    const struct problem *p = &c->problem;
    struct floats f = {{0}, {0}};
    draw(&f, p, r, ARRAY_X);
    draw(&f, p, r, ARRAY_W);
    for (size_t i = 0; i < p->rows; i++)
        row_recipe(c, r, f.array[ARRAY_X] + i * p->cols, p->cols, i, dtype);
    draw(&f, p, r, ARRAY_Q);
    draw(&f, p, r, ARRAY_K);
    draw(&f, p, r, ARRAY_V);
    if (on_heads(p)) attention_recipe(c, r, &f, dtype);
    draw(&f, p, r, ARRAY_BIAS);
    if (f.n[ARRAY_BIAS] && !p->has_bias_strides) bias_recipe(c, r, f.array[ARRAY_BIAS]);
    if (on_heads(p)) plant(c, &f);
    draw(&f, p, r, ARRAY_K_NEW);
    draw(&f, p, r, ARRAY_V_NEW);
    if (array_role(p, ARRAY_INDEX) == INPUT) *index = draw_index(c, r);
    draw(&f, p, r, ARRAY_SINKS);
    if (f.n[ARRAY_SINKS]) sink_recipe(c, f.array[ARRAY_SINKS]);
    draw(&f, p, r, ARRAY_DO);
    return f;
}

/* x [n], owned, as numbers of that type, owned. */
static void *narrow(float *x, size_t n, enum dtype dtype)
{
    if (!x || dtype_size(dtype) == sizeof *x) return x;
    void *y = xcalloc(n, dtype_size(dtype));
    for (size_t i = 0; i < n; i++) dtypes[dtype].store(y, i, x[i]);
    free(x);
    return y;
}

/* The inputs o and lse of backward: what the forward pass gives, rounded. */
static void add_forward(struct inputs *in)
{
    in->arrays.o = xcalloc(array_bytes(&in->problem, ARRAY_O), 1);
    in->arrays.lse = xcalloc(array_bytes(&in->problem, ARRAY_LSE), 1);
    forward_answer(&in->problem, &in->arrays);
}

struct inputs *inputs_new(const struct test_case *of, enum dtype dtype, uint64_t seed)
{
    struct inputs *in = xcalloc(1, sizeof *in);
    struct test_case plain = *of, *c = &plain;
    struct random r = {seed};
    size_t *index = NULL;
    c->problem = problem_without_layout(&of->problem);
    struct floats f = make(c, dtype, &r, &index);
    in->problem = c->problem;
    in->problem.dtype = dtype;
    for (int i = 0; i < N_ARRAYS; i++)
        array_set(&in->arrays, i,
                  narrow(f.array[i], f.n[i], array_dtype(&in->problem, i)));
    in->arrays.index = index;
    if (f.n[ARRAY_BIAS]) /* behind what its rows reach back to */
        in->arrays.bias += in->arrays.bias -
                           (float *)array_start(&in->problem, &in->arrays, ARRAY_BIAS);
    if (problem_features(&of->problem) & LAYOUTS) inputs_lay_out(in, of, &r);
    if (array_role(&in->problem, ARRAY_O) == INPUT) add_forward(in);
    return in;
}

void inputs_free(struct inputs *in)
{
    if (!in) return;
    for (int i = 0; i < N_ARRAYS; i++) free(array_start(&in->problem, &in->arrays, i));
    free(in);
}
