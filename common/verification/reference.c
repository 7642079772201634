/* reference.c: the right answer of a problem, whatever its operation. */
#include "verification/reference.h"

#include <stdlib.h>

#include "problem/xcalloc.h"
#include "verification/op_checks.h"

struct reference *reference_new(const struct problem *p, const struct arrays *a)
{
    struct reference *r = xcalloc(1, sizeof *r);
    r->v_is_finite = 1;
    op_checks[p->op].reference(r, p, a);
    return r;
}

void reference_free(struct reference *r)
{
    if (!r) return;
    double *owned[] = {r->y,         r->y_bound,      r->y_bound_safe, r->o,
                       r->o_bound,   r->o_bound_safe, r->o_mass,       r->lse,
                       r->lse_bound, r->weight,       r->max_s,        r->max_v};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(r);
}
