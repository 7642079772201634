/* yardstick.h: the harness's own straightforward computation, whose error says how well
 * an input can be computed at all.
 *
 * It is done in several ways, and the worst of them is the yardstick.  A stage may sum in
 * either order, and where one score outweighs all others the order decides whether the
 * small terms survive.  It may apply the scale to q or to the scores, and where one
 * product outweighs the others the roundings of the partial sums depend on that.  It may
 * sum in the lanes of a vector: of a few results one order can have all right by luck. */
#pragma once

#include "harness.h"

/* Flags, to be combined. */
enum way {
    REVERSE = 1,  /* all sums from the last term to the first */
    SCALED_Q = 2, /* the scale multiplied into q, not into the scores (attention) */
    LANES = 4,    /* dot products in 16 sums, which are added at the end (attention) */
    N_WAYS = 8
};

#define FEW_RESULTS 4096 /* in a head; of more the worst is no matter of luck, so LANES is
                            left out */

/* The mean of each row: its total over n, the old mean times (k - 1) / k and x / k, times k - 1 and
 * over k, or the old mean and (x - mean) / k. */
enum mean_way { OWN_TOTAL, OWN_WEIGHTED, OWN_PRODUCT, OWN_INCREMENT, N_MEAN_WAYS };
float *yardstick_mean(const struct problem *p, const struct arrays *a, enum mean_way way);

/* Attention, its log form, scan or update: scores, maximum, sum, product, all in float; for
 * 16-bit problems p is rounded to 16 bits, and o is not.  Returns o, freed by free(), and sets lse. */
float *yardstick_attention(const struct problem *p, const struct arrays *a, int way, float *lse);

/* Backward from the given o and lse, with all scores of a row stored, in float; for 16-bit
 * problems p and ds are rounded to 16 bits.  gradients [N_ARRAYS]: those that p
 * has, each freed by free(). */
void yardstick_backward(const struct problem *p, const struct arrays *a, int way,
                        float *gradients[]);
