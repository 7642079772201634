/* allowed.h: the rule of acceptance: the allowed errors of a standard whose reference is
 * there, for each kind of operation (standard.c says which). */
#ifndef ALLOWED_H
#define ALLOWED_H

#include "verification/standard.h"

void allow_rows(struct standard *s, const struct arrays *a); /* softmax, log-softmax */
void allow_mean(struct standard *s, const struct arrays *a);
void allow_bounds(struct standard *s, const struct arrays *a); /* of fused reductions */
void allow_attention(struct standard *s, const struct arrays *a);
void allow_log_form(struct standard *s, const struct arrays *a);
void allow_backward(struct standard *s, const struct arrays *a);

#endif
