/* compare.h: whether outputs (problem/execute.h) are accepted. */
#pragma once

#include "problem/execute.h"
#include "verification/standard.h"

struct verdict {
    int ok;
    const char *reason;       /* why not, in words: "error above the allowed", ... */
    const char *array;        /* "y", "o", "lse", ... */
    int rank;
    size_t index[MOST_DIMENSIONS];   /* where: the first failure, or the largest err / allowed */
    double got, want, err, allowed;
    double worst;             /* largest err / allowed */
};

/* Fails at the first element that is untouched, NaN where it must not be, not NaN where
 * it must be, another infinity, or farther off than allowed; fails when a guard is
 * damaged. */
struct verdict compare(const struct standard *s, const struct outputs *out);

/* The index as text, "[0, 1, 17, 3]", into text [size]. */
void verdict_index(const struct verdict *v, char *text, size_t size);
