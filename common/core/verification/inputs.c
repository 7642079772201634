/* inputs.c: from a case's recipe to arrays.
 *
 * Everything is made as float and then rounded to the problem's type, and every number
 * comes from the seed by exact arithmetic, so a case is the same on every machine. */
#include <float.h>
#include <stdlib.h>

#include "problem/dtype.h"
#include "problem/feature.h"
#include "problem/host_memory.h"
#include "problem/quantise.h"
#include "problem/random.h"
#include "verification/case_list.h"
#include "verification/standard.h"

/* What a recipe makes of a number of an array, *x, normal on entry: the one in that row (of a
 * head) and column.  What lies before it in the array is made already. */
typedef float recipe_function(const struct test_case *c, struct random *r, enum dtype dtype,
                              const float *x, size_t row, size_t column);

/* Position j of n between -30 and 30, upwards or downwards. */
static float ramp(size_t j, size_t n, int down)
{
    float t = n > 1 ? 60.0f * (float)j / (float)(n - 1) - 30.0f : 0.0f;
    return down ? -t : t;
}

/* In -limit .. limit. */
static float spread(struct random *r, float limit)
{
    return limit * (2 * random_uniform(r) - 1);
}

/* +-0, +-denormal, +-1; the denormal is one in the problem's type. */
static float tiny(struct random *r, enum dtype dtype)
{
    size_t kind = random_below(r, 6);
    float size = kind < 2 ? 0 : kind < 4 ? dtypes[dtype].denormal : 1;
    return kind % 2 ? -size : size;
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
    case NAN_K: case INF_K: case NAN_V: case INF_V: return j == c->at;
    default: return 0;
    }
}

/* Of a row of scores. */
static float score(const struct test_case *c, struct random *r, enum dtype dtype,
                   const float *x, size_t row, size_t j)
{
    size_t n = c->problem.cols;
    int here = row == c->at && j == n / 2;
    if (is_masked(c, r, row, j, n)) return -INFINITY;
    switch (c->recipe) {
    case WIDE: return *x * 30;
    case RANGE_80: return 160 * random_uniform(r) - 80;
    case EQUAL: return 3.7f;
    case ASCENDING: case DESCENDING: return ramp(j, n, c->recipe == DESCENDING);
    case OUTLIER: return 0.1f * *x + (j == c->at ? 20.0f : 0.0f);
    case SHIFT_20: return *x - 20;
    case SHIFT_200: return *x - 200;
    case SHIFT_UP: return *x + 10000;
    case LOW: return *x - 100000;
    case LARGE: return spread(r, 10000);
    case VAST: return *x * 1e30f;
    case NEAR_MAX: return 3e38f * (1 - 0.1f * random_uniform(r));
    case OPPOSITE: return (j % 2 ? -3e38f : 3e38f) * (1 - 0.1f * random_uniform(r));
    case NAN_Q: return here ? NAN : *x;
    case INF_SCORE: return here ? INFINITY : *x;
    case TINY: return tiny(r, dtype);
    default: return *x;
    }
}

/* Of q.  Where a recipe wants a score, either all columns of q are near 1, or column 0 alone
 * adds it, 4 times (LOW: 32 times) that of k. */
static float query(const struct test_case *c, struct random *r, enum dtype dtype,
                   const float *x, size_t i, size_t t)
{
    switch (c->recipe) {
    case WIDE: return *x * 30;
    case ASCENDING: case DESCENDING: return 1 + 0.25f * (float)(i % 3);
    case OUTLIER: case SPIKE: return 1 + 0.1f * *x;
    case STEEP: return 1 + 0.01f * *x;
    case SHIFT_20: case SHIFT_200: return t ? *x : 4;
    case LOW: return t ? *x : 32;
    case NAN_V_FAR: return t ? 0 : 4;
    case LARGE: return *x * 100;
    case HIGH: return 1100 + *x;
    case VAST: return *x * 1e15f;
    case FINITE: case ZERO_Q: case MARKERS: return 0;
    case NAN_Q: return i == c->at && !t ? NAN : *x;
    case BELOW_STEP: return t ? 0 : 3.390625f;
    case POWERS: return powers_query(i, t, *x);
    case MINUS_INF: case MINUS_INF_V: case MINUS_INF_ALL: return t ? *x : 1;
    case TINY: return tiny(r, dtype);
    default: return *x;
    }
}

static float key(const struct test_case *c, struct random *r, enum dtype dtype,
                 const float *x, size_t j, size_t t)
{
    const struct problem *p = &c->problem;
    float scale = p->scale, unit = 1 / (scale * (float)p->head_dim);
    int here = j == c->at;
    switch (c->recipe) {
    case EQUAL: return *(x - j * p->head_dim); /* that of the head's first key */
    case ASCENDING: case DESCENDING:
        return unit * ramp(j, p->seqlen_k, c->recipe == DESCENDING);
    case OUTLIER: return 0.1f * *x + (here ? 20.0f * unit : 0);
    case SPIKE: return 0.1f * *x + (here ? 500.0f * unit : 0);
    case STEEP: return unit * (75.0f / 64.0f) * (float)j;
    case SHIFT_20: return t ? *x : -20 / (scale * 4);
    case SHIFT_200: return t ? *x : -200 / (scale * 4);
    case LOW: return t ? *x : -1e5f / (scale * 32);
    /* all scores 55, one -55: exp(-55 - 55) is below every float, and times NaN is NaN */
    case NAN_V_FAR: return t ? *x : (here ? -55 : 55) / (scale * 4);
    case LARGE: return *x * 100;
    case HIGH: return 1100 + *x;
    case VAST: return *x * 1e15f;
    /* weight exp(-0.6854) = 0.50388: 1/2 + 2^-8 is the next bfloat16, and truncated it is 1/2; in
     * e4m3 the weight is 0.558, below 0.5625 */
    case BELOW_STEP:
        if (dtype_size(dtype) == 1) return t || here ? 0 : -1.376f;
        return t ? *x : here ? 0 : -1.6171875f;
    case POWERS: return powers_key(c, j, t, *x);
    case NAN_K: return here ? NAN : *x;
    case INF_K: return here ? INFINITY : *x;
    case MINUS_INF: case MINUS_INF_V: return here && !t ? -INFINITY : *x;
    case MINUS_INF_ALL: return t ? *x : -INFINITY;
    case TINY: return tiny(r, dtype);
    default: return *x;
    }
}

static float value(const struct test_case *c, struct random *r, enum dtype dtype,
                   const float *x, size_t j, size_t t)
{
    size_t dv = c->problem.head_dim_v;
    int here = j == c->at;
    switch (c->recipe) {
    case LARGE: case ZERO_Q: return spread(r, 1e4f);
    case MARKERS: return t == j % dv ? (float)c->problem.seqlen_k : 0;
    case NAN_V: case NAN_V_FAR: case MINUS_INF_V: return here ? NAN : *x;
    case NAN_V_ONE: return here && t == dv / 2 ? NAN : *x;
    case INF_V: return here ? INFINITY : *x;
    case BELOW_STEP: return 1.5546875f; /* times 1 - 2^-7 beyond the middle of two bfloat16 */
    case POWERS: return powers_value(c, j, t, x);
    case TINY: return tiny(r, dtype);
    default: return *x;
    }
}

/* Of a bias [seqlen_q, seqlen_k], which masks. */
static float bias(const struct test_case *c, struct random *r, enum dtype dtype,
                  const float *x, size_t i, size_t j)
{
    const struct problem *p = &c->problem;
    int elsewhere = c->recipe == MASK_ROW && random_below(r, 5) == 0;
    (void)dtype;
    if (elsewhere || is_masked(c, r, i, j, p->seqlen_k)) return -INFINITY;
    switch (c->recipe) {
    case FINITE:
        if (i != 3 && random_below(r, 3)) return 0;
        return c->at == 38 ? -FLT_MAX : -powf(10, (float)c->at);
    case OUTLIER: case EQUAL: case ZERO_Q: case MARKERS: return 0;
    case POWERS: return powers_bias(j);
    case INF_SCORE: return i == p->seqlen_q / 2 && j == c->at ? INFINITY : *x;
    default: return *x;
    }
}

/* A logit per query head, near the scores' size; every fourth is -INFINITY, which is none. */
static float sink(const struct test_case *c, struct random *r, enum dtype dtype,
                  const float *x, size_t row, size_t h)
{
    (void)r, (void)dtype, (void)row;
    if (h == 0 && c->recipe == SINK_INF) return INFINITY;
    if (h == 0 && c->recipe == SINK_NAN) return NAN;
    if (h == 0 && c->recipe == SINK_HUGE) return 3e38f;
    if (h % 4 == 3) return -INFINITY;
    return c->recipe == POWERS ? logf((float)c->problem.seqlen_k) : 2 * *x; /* as much as all keys */
}

static float output_gradient(const struct test_case *c, struct random *r, enum dtype dtype,
                             const float *x, size_t i, size_t t)
{
    (void)r, (void)dtype;
    if (c->recipe == POWERS) return *x > 0 ? 1 : *x > -0.7f ? 0 : -1;
    return c->recipe == NAN_DO && i == c->at && t == 0 ? NAN : *x;
}

/* Array i, if the problem reads it, of normal numbers. */
static void draw(struct inputs *in, struct random *r, enum array i)
{
    if (array_role(&in->problem, i) != INPUT) return;
    size_t n = array_count(&in->problem, i);
    float *x = xcalloc(n, sizeof *x);
    for (size_t e = 0; e < n; e++) x[e] = random_normal(r);
    array_set(&in->arrays, i, x);
}

/* Then of the recipe's numbers. */
static void cook(struct inputs *in, const struct test_case *c, struct random *r,
                 enum dtype dtype, enum array i, recipe_function *recipe)
{
    struct extents e = array_extents(&in->problem, i);
    float *x = array_of(&in->arrays, i);
    if (!x) return;
    size_t columns = e.size[e.rank - 1], rows = e.rank > 1 ? e.size[e.rank - 2] : 1;
    for (size_t k = 0, n = array_count(&in->problem, i); k < n; k++)
        x[k] = recipe(c, r, dtype, x + k, k / columns % rows, k % columns);
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
static void make(struct inputs *in, const struct test_case *c, struct random *r,
                 enum dtype dtype)
{
    draw(in, r, ARRAY_X);
    draw(in, r, ARRAY_W);
    cook(in, c, r, dtype, ARRAY_X, score);
    for (int i = ARRAY_Q; i <= ARRAY_V; i++) draw(in, r, (enum array)i);
    cook(in, c, r, dtype, ARRAY_Q, query);
    cook(in, c, r, dtype, ARRAY_K, key);
    cook(in, c, r, dtype, ARRAY_V, value);
    draw(in, r, ARRAY_BIAS);
    if (!c->problem.has_bias_strides) cook(in, c, r, dtype, ARRAY_BIAS, bias);
    draw(in, r, ARRAY_K_NEW);
    draw(in, r, ARRAY_V_NEW);
    if (array_role(&in->problem, ARRAY_INDEX) == INPUT) in->arrays.index = draw_index(c, r);
    draw(in, r, ARRAY_SINKS);
    cook(in, c, r, dtype, ARRAY_SINKS, sink);
    draw(in, r, ARRAY_DO);
    cook(in, c, r, dtype, ARRAY_DO, output_gradient);
}

/* Scales of array i, x: no code saturates, and a wrong head's scale is wrong by a half or more.  As
 * bfloat16 they give products with codes that floats hold exactly. */
static float *draw_scales(const struct inputs *in, enum array i, const float *x)
{
    size_t n = in->problem.batch * in->problem.heads_kv;
    float *scales = xcalloc(n, sizeof *scales);
    amax_scales(&in->problem, &in->arrays, i, x, scales);
    for (size_t k = 0; k < n; k++) scales[k] = dtype_round(BF16, scales[k] * (float)(1 + k % 3));
    return scales;
}

/* Rounds what is of the problem's type to that type. */
static void narrow(struct inputs *in, enum dtype dtype)
{
    in->problem.dtype = dtype;
    for (int i = 0; i < N_ARRAYS; i++) {
        float *x = array_of(&in->arrays, i);
        enum dtype to = array_dtype(&in->problem, i);
        if (!x || to == F32) continue;
        size_t n = array_count(&in->problem, i);
        void *y = xcalloc(n, dtype_size(to));
        if (dtype_size(to) == 1) {
            array_set(&in->arrays, scales_of(i), draw_scales(in, i, x));
            quantise(&in->problem, &in->arrays, i, x, array_of(&in->arrays, scales_of(i)), y);
        } else
            for (size_t e = 0; e < n; e++) dtypes[to].store(y, e, x[e]);
        array_set(&in->arrays, i, y);
        free(x);
    }
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
    struct test_case c = *of;
    struct random r = {seed};
    in->problem = c.problem = problem_without_layout(&of->problem);
    make(in, &c, &r, dtype);
    narrow(in, dtype);
    if (in->arrays.bias) /* behind what its rows reach back to */
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
