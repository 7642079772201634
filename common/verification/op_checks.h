/* op_checks.h: how each operation is checked. */
#ifndef OP_CHECKS_H
#define OP_CHECKS_H

#include "verification/standard.h"

struct op_check {
    /* fills the zero reference r: the right answer and its bounds */
    void (*reference)(struct reference *r, const struct problem *p, const struct arrays *a);
    /* sets the allowed errors of s, whose reference is there */
    void (*allow)(struct standard *s, const struct arrays *a);
    /* adds the operation's cases to the list */
    void (*add_cases)(enum op op);
    int lse_is_optional; /* lse may be left alone, but not written in part */
};

extern const struct op_check op_checks[N_OPS];

#endif
