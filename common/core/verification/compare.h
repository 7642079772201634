/* compare.h: outputs that betray what was not written or was written outside, and whether they are
 * accepted. */
#ifndef COMPARE_H
#define COMPARE_H

#include "verification/standard.h"

/* An output array before a call: every element a NaN that no arithmetic produces, GUARD
 * bytes of a pattern before and after.  The NaNs are quiet; their payloads:
 *     f32 0x7fc0dead   f16 0x7ead   bf16 0x7fed */
struct output {
    void *data;      /* element 0 */
    size_t n;
    enum dtype dtype;
    unsigned char *frame;
};

/* All outputs of a problem; data NULL for arrays that are none. */
struct outputs { struct output array[N_ARRAYS]; };

/* The outputs of p, filled.  Exits 1 without memory. */
struct outputs outputs_new(const struct problem *p);
void outputs_bind(const struct outputs *out, struct arrays *a); /* points a at them */
void outputs_free(struct outputs *out);
/* Same bits in every element? */
int outputs_equal(const struct outputs *a, const struct outputs *b);

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

#endif
