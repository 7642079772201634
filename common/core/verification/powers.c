/* powers.c: the inputs of the recipe `powers`.  Every weight of a row is a power of two, so rounding it
 * to 16 bits costs nothing, and what a 16-bit program may err by is as little as a float one.
 *
 * Of each 64 keys one weighs 2^t, the 2 (2^t - 1) after it 1/2, the others 1: in all 64.  So over a power of
 * two of keys p_j = 2^a_j / n.  t changes from block to block, upwards and down.  The exponents a_j lie
 * in column 0 of k if the scale is ln 2, or in the bias; with another scale all weights are equal.
 * Column 1 adds `at` to all scores.  Of the other columns q has the even ones and k the odd ones.
 *
 * Backward, with a scale that is a power of two, ds is exact too: the values of a block lie around a
 * small number, which is o, so dp - D is a small integer. */
#include "verification/case_list.h"

#include <math.h>

#define LN_2 0.6931472f
enum { BLOCK = 64, HEAVIEST = 37 };

/* How far behind the heaviest of its block key j is, and how many keys there weigh 1/2. */
struct place { size_t behind, n_halves; int top; };
static struct place place_of(size_t j)
{
    static const int tops[] = {0, 2, 5, 1};
    int t = tops[j / BLOCK % 4];
    return (struct place){(j + BLOCK - HEAVIEST - 1) % BLOCK, 2 * ((1u << t) - 1), t};
}

static float exponent(size_t j)
{
    struct place x = place_of(j);
    return x.behind == BLOCK - 1 ? (float)x.top : x.behind < x.n_halves ? -1 : 0;
}

/* Are the exponents in column 0 of k? */
static int in_scores(const struct test_case *c) { return fabsf(c->problem.scale - LN_2) < 1e-6f; }

float powers_query(size_t i, size_t t, float x)
{
    return t == 0 ? i % 4 != 3 : t == 1 ? 1 : t % 2 ? 0 : x;
}

float powers_key(const struct test_case *c, size_t j, size_t t, float x)
{
    if (t == 0) return in_scores(c) ? exponent(j) : 0;
    return t == 1 ? (float)c->at : t % 2 ? x : 0;
}

float powers_bias(size_t j) { return LN_2 * exponent(j); }

/* The heaviest is above the mean by what the halves and the one before it are below; the others go in
 * pairs of the same weight, one above and one below. */
float powers_value(const struct test_case *c, size_t j, size_t t, const float *x)
{
    size_t dv = c->problem.head_dim_v;
    struct place at = place_of(j);
    float mean = 1 + 0.5f * (float)(t % 3), step = t % 2 ? 1 : -1;
    if (c->problem.op != OP_BACKWARD) return *x;
    if (at.behind == BLOCK - 1) return mean + step;
    size_t n_halves = in_scores(c) || c->problem.has_bias ? at.n_halves : 0;
    if (at.behind < n_halves || at.behind == BLOCK - 2) mean -= step;
    if (at.behind == BLOCK - 2) return mean;
    return at.behind % 2 ? 2 * mean - *(x - dv) : mean + (*x > 0 ? 1.0f : -1.0f);
}
