/* standard.h: what is accepted as right: the reference and the allowed error. */
#ifndef STANDARD_H
#define STANDARD_H

#include "verification/reference.h"

/* The reference of one problem and the largest error allowed in each element.
 *
 * f32 o            2 err_safe + 1e-6 max(1, max|v|) + u max|s| max|v|, and the proved
 *                  bound.  err_safe, the error of the harness's own float three-pass
 *                  computation, and both maxima are taken per (batch, head).
 * f32 softmax      2 err_safe + 1e-6 per row, and the proved bound
 * 16-bit o, y      twice the error of the straightforward 16-bit computation (scores in
 *                  float, p and the result rounded), per (batch, head) or row, and one
 *                  rounding of p and of the result; o also u max|s| max|v|
 * lse, log-softmax and the operations beyond: the proved bound (and 16-bit rounding)
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

/* The same for a problem with a layout, where it is called by standard_new(). */
struct standard *standard_of_parts(const struct problem *p, const struct arrays *a);

/* Each sets the allowed errors of s, whose reference is there, for one kind of operation
 * (op_checks.c says which). */
void allow_softmax(struct standard *s, const struct arrays *a);
void allow_logsoftmax(struct standard *s, const struct arrays *a);
void allow_bound(struct standard *s, const struct arrays *a);     /* y: its proved bound */
void allow_attention(struct standard *s, const struct arrays *a);
void allow_log_form(struct standard *s, const struct arrays *a);

#endif
