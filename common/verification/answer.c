/* answer.c: the memory of a standard. */
#include "verification/standard.h"

#include <stdlib.h>

#include "problem/xcalloc.h"

struct standard *standard_room(const struct problem *p)
{
    struct standard *s = xcalloc(1, sizeof *s);
    s->problem = *p;
    s->v_is_finite = 1;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct answer *of = &s->answer[i];
        if (array_role(p, i) != OUTPUT) continue;
        of->n = array_dense_count(p, i);
        double **const parts[] = {&of->want, &of->bound, &of->bound_safe, &of->likely,
                                  &of->allowed};
        for (int k = 0; k < 5; k++) *parts[k] = xcalloc(of->n, sizeof(double));
    }
    return s;
}

void standard_free(struct standard *s)
{
    if (!s) return;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct answer *of = &s->answer[i];
        free(of->want), free(of->bound), free(of->bound_safe), free(of->likely);
        free(of->allowed);
    }
    free(s->o_mass), free(s->weight), free(s->max_s), free(s->max_v), free(s->broken);
    free(s);
}
