/* standard.c: what is accepted as right, whatever the operation. */
#include "verification/standard.h"

#include <stdlib.h>

#include "problem/feature.h"
#include "problem/part.h"
#include "problem/xcalloc.h"
#include "verification/op_checks.h"

struct standard *standard_new(const struct problem *p, const struct arrays *a)
{
    if (problem_features(p) & LAYOUTS) return standard_of_parts(p, a);
    struct standard *s = xcalloc(1, sizeof *s);
    s->problem = *p;
    s->reference = reference_new(p, a);
    op_checks[p->op].allow(s, a);
    return s;
}

void standard_free(struct standard *s)
{
    if (!s) return;
    reference_free(s->reference);
    free(s->y_allowed);
    free(s->o_allowed);
    free(s->lse_allowed);
    free(s->broken);
    free(s);
}
