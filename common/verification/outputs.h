/* outputs.h: outputs that betray what was not written or was written outside. */
#ifndef OUTPUTS_H
#define OUTPUTS_H

#include "problem/arrays.h"

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

/* NULL, or which guard was written to. */
const char *output_damage(const struct output *out);
int output_untouched(const struct output *out, size_t i); /* does element i hold the filling? */

#endif
