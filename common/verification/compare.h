/* compare.h: outputs that betray what was not written or written outside, and the rule by
 * which a result is accepted. */
#ifndef COMPARE_H
#define COMPARE_H

#include "problem/execute.h"
#include "verification/reference.h"

/* An output array before a call: every element a NaN that no arithmetic produces, GUARD
 * bytes of a pattern before and after.  The NaNs are quiet; their payloads:
 *     f32 0x7fc0dead   f16 0x7ead   bf16 0x7fed */
struct output {
    void *data;      /* element 0 */
    size_t n;
    enum dtype dtype;
    unsigned char *frame;
};

struct outputs { struct output y, o, lse; };

/* The outputs of p (data NULL for those it has not), filled.  Exits 1 without memory. */
struct outputs outputs_new(const struct problem *p);
void outputs_fill(struct outputs *out); /* again, before the next call */
void outputs_fill_with(struct outputs *out, float x); /* with an ordinary number */
void outputs_bind(const struct outputs *out, struct arrays *a); /* sets a->y, o, lse */
void outputs_free(struct outputs *out);
/* Same bits in every element? */
int outputs_equal(const struct outputs *a, const struct outputs *b);

/* The reference of one problem and the largest error allowed in each element.
 *
 * f32 o          2 err_safe + 1e-6 max(1, max|v|) + u max|s| max|v|, and the proved
 * bound. err_safe, the error of the harness's own float three-pass computation, and both
 * maxima are taken per (batch, head) f32 softmax    2 err_safe + 1e-6 per row, and the
 * proved bound 16-bit o, y    twice the error of the straightforward 16-bit computation
 * (scores in float, p and the result rounded), per (batch, head) or row, and one rounding
 * of p and of the result; o also u max|s| max|v| lse, log-softmax and the operations
 * beyond: the proved bound (and 16-bit rounding)
 *
 * broken is NULL, or says how the harness's own computation exceeded its proved bound:
 * then nothing may be accepted by it. */
struct standard {
    struct problem problem;
    struct reference *reference;
    double *y_allowed, *o_allowed, *lse_allowed;
    char *broken;
};

struct standard *standard_new(const struct problem *p, const struct arrays *a);
void standard_free(struct standard *s);

enum { MAX_RANK = 4 };

struct verdict {
    int ok;
    const char *reason;       /* why not, in words: "error above the allowed", ... */
    const char *array;        /* "y", "o" or "lse" */
    int rank;
    size_t index[MAX_RANK];   /* where: the first failure, or the largest err / allowed */
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
