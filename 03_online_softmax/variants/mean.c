/* mean.c: the streaming mean, the simplest running state there is, in three forms.
 *
 *     mu_k = (x_1 + ... + x_k) / k
 *
 * "How Flash Attention works" (notes/errata.md has its source) begins with it, because a running
 * mean and a running softmax have one thing in common: the old answer is corrected before the new
 * term is added.  The forms are equal on paper.  In float each has data that it cannot take, and
 * each drifts by its own bound; exercise running_mean asks which.  u = 2^-24.
 *
 *     total      sum / k
 *     weighted   mu * ((k - 1) / k) + x / k    error <= (3k/2 + 1) u max|x|
 *       written  mu * (k - 1) / k + x / k
 *     increment  mu + (x - mu) / k             error <= (k/2 + 5) u max|x|
 *
 * A row without elements has no mean: NaN. */
#include "harness.h"

#include <float.h>

/* Mean of x (n) as total and count.  Reads n floats. */
static float total_row(const float *x, float *y, size_t n)
{
    float total = 0.0f;
    for (size_t j = 0; j < n; j++) total += x[j];
    return *y = total / (float)n;
}

/* Mean of x (n), each old mean weighted by its share (k - 1) / k of the elements.  The
 * weight and both products are rounded at every step.  Reads n floats. */
static float weighted_row(const float *x, float *y, size_t n)
{
    float mu = n ? 0.0f : NAN;
    for (size_t k = 1; k <= n; k++) {
        float weight = (float)(k - 1) / (float)k;
        mu = mu * weight + x[k - 1] / (float)k;
    }
    return *y = mu;
}

/* The same as C reads mu * (k - 1) / k from left to right. */
static float product_first_row(const float *x, float *y, size_t n)
{
    float mu = n ? 0.0f : NAN;
    for (size_t k = 1; k <= n; k++)
        mu = mu * (float)(k - 1) / (float)k + x[k - 1] / (float)k;
    return *y = mu;
}

/* Mean of x (n) by increments (Welford 1962).  The correction shrinks with the distance
 * x - mu, and with it its rounding error.  Reads n floats. */
static float increment_row(const float *x, float *y, size_t n)
{
    float mu = n ? 0.0f : NAN;
    for (size_t k = 1; k <= n; k++) mu += (x[k - 1] - mu) / (float)k;
    return *y = mu;
}

/* One pass over x; one float per row written. */
static struct cost cost(const struct problem *p)
{
    struct cost c = {.passes = 1, .bytes = 4.0 * p->rows * (p->cols + 1.0)};
    return c;
}

/* cols * max_score must not exceed FLT_MAX: right for rows of up to 2^28 elements. */
#define TOTAL_MAX_SCORE (FLT_MAX / 0x1p28f)

#define MEAN(form, says, most)                                                             \
    const struct variant mean_##form = {                                                   \
        .name = "mean_" #form,                                                             \
        .idea = says,                                                                      \
        .group = IN_ASIDES,                                                                \
        .types = TYPE(F32),                                                                \
        .max_score = most,                                                                 \
        .cost = cost,                                                                      \
        .by_row = {{OP_MEAN, form##_row}},                                                 \
    }

MEAN(total, "total and count", TOTAL_MAX_SCORE);
MEAN(product_first, "mu * (k - 1) / k + x / k", TOTAL_MAX_SCORE);
/* a little below FLT_MAX: the weights may add up to 1 + 2u */
MEAN(weighted, "mu * ((k - 1) / k) + x / k", 3e38f);
MEAN(increment, "mu += (x - mu) / k", FLT_MAX / 2);
