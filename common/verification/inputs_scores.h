/* inputs_scores.h: the arrays of a case while they are made, and the recipes that shape the
 * scores and values of attention. */
#ifndef INPUTS_SCORES_H
#define INPUTS_SCORES_H

#include "problem/operation.h"
#include "problem/random.h"
#include "verification/cases.h"

/* The arrays while they are float, and how many elements they have. */
struct floats {
    float *array[N_ARRAYS];
    size_t n[N_ARRAYS];
};

/* Normal on entry: queries, keys and values as c's recipe wants them. */
void attention_recipe(const struct test_case *c, struct random *r, struct floats *f,
                      enum dtype dtype);

/* +-0, +-denormal, +-1; the denormal is one in the problem's type. */
void fill_tiny(struct random *r, float *x, size_t n, enum dtype dtype);

/* Position j of n between -30 and 30, upwards or downwards. */
static inline float ramp(size_t j, size_t n, int down)
{
    float t = n > 1 ? 60.0f * (float)j / (float)(n - 1) - 30.0f : 0.0f;
    return down ? -t : t;
}

#endif
