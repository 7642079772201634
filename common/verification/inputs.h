/* inputs.h: the arrays of a case while they are made (inputs.c): the recipes that shape the scores
 * and values of attention (inputs_scores.c), then their layout (inputs_layout.c). */
#ifndef INPUTS_H
#define INPUTS_H

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

/* Queries (salt 1) or keys (salt 2) of sequence b of a packed case: the first is the
 * longest, others have fewer, some none. */
size_t packed_length(size_t longest, size_t b, int salt);

/* Sets total_q and total_k of a packed problem to the sums of these lengths. */
void packed_totals(struct problem *p);

/* Replaces the plain arrays [batch, heads, rows, .] of in by those of c's layout, and its
 * problem by c's.  Of a sequence the first rows are taken.  What lies between the rows, in
 * pages that nobody owns and behind the last key of a page is NaN. */
void inputs_lay_out(struct inputs *in, const struct test_case *c, struct random *r);

#endif
