/* standard.c: the memory of a problem's answers, and the rule of acceptance: what is likely, and the
 * rounding of the output to its type. */
#include <stdlib.h>

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"

struct standard *standard_room(const struct problem *p)
{
    struct standard *s = xcalloc(1, sizeof *s);
    s->problem = *p;
    s->v_is_finite = 1;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct answer *of = &s->answer[i];
        if (array_role(p, i) != OUTPUT) continue;
        of->n = array_dense_count(p, i);
        double **const parts[] = {&of->want, &of->likely, &of->squares, &of->allowed};
        for (int k = 0; k < 4; k++) *parts[k] = xcalloc(of->n, sizeof(double));
    }
    return s;
}

void standard_free(struct standard *s)
{
    if (!s) return;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct answer *of = &s->answer[i];
        free(of->want), free(of->likely), free(of->squares), free(of->allowed);
    }
    free(s);
}

/* How far a result within `error` of x may be from x once it is rounded to the type.  Rounding is
 * monotone, so the ends of the interval are the worst. */
static double after_rounding(enum dtype dtype, double x, double error)
{
    const struct dtype_entry *t = &dtypes[dtype];
    if (t->roundoff == 0) return error;
    double wide = error + ROUNDOFF * (fabs(x) + error); /* the ends are made floats first */
    double low = (double)dtype_round(dtype, (float)(x - wide));
    double high = (double)dtype_round(dtype, (float)(x + wide)), worst = fmax(x - low, high - x);
    return t->least_step + (isfinite(worst) ? worst : error + t->roundoff * fabs(x));
}

void allow(struct standard *s)
{
    for (int i = 0; i < N_ARRAYS; i++)
        for (size_t k = 0; k < s->answer[i].n; k++) {
            const struct answer *of = &s->answer[i];
            of->allowed[k] = after_rounding(array_dtype(&s->problem, i), of->want[k], of->likely[k]);
        }
}
