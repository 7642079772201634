/* standard_parts.c: what is right for packed sequences, pages and strides: each sequence is
 * gathered and judged as a plain problem, and its rows are put where they belong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/part.h"
#include "problem/xcalloc.h"
#include "verification/standard.h"

static void reference_room(struct reference *r, const struct problem *p)
{
    r->n_lse = problem_sizes(p).lse;
    r->n_o = r->n_lse * p->head_dim_v;
    double **of_o[] = {&r->o, &r->o_bound, &r->o_bound_safe, &r->o_mass};
    double **of_lse[] = {&r->lse, &r->lse_bound, &r->weight};
    for (int i = 0; i < 4; i++) *of_o[i] = xcalloc(r->n_o, sizeof(double));
    for (int i = 0; i < 3; i++) *of_lse[i] = xcalloc(r->n_lse, sizeof(double));
    r->v_is_finite = 1;
}

/* Row `from` of a part's arrays goes to row `to`. */
static void take_row(struct standard *s, const struct standard *part, size_t to, size_t from)
{
    struct reference *r = s->reference;
    const struct reference *r_part = part->reference;
    size_t dv = s->problem.head_dim_v;
    double *const wide[] = {r->o, r->o_bound, r->o_bound_safe, r->o_mass, s->o_allowed};
    const double *const from_wide[] = {r_part->o, r_part->o_bound, r_part->o_bound_safe,
                                       r_part->o_mass, part->o_allowed};
    double *const single[] = {r->lse, r->lse_bound, r->weight, s->lse_allowed};
    const double *const from_single[] = {r_part->lse, r_part->lse_bound, r_part->weight,
                                         part->lse_allowed};
    for (int i = 0; i < 5; i++)
        memcpy(wide[i] + to * dv, from_wide[i] + from * dv, dv * sizeof(double));
    for (int i = 0; i < 4; i++) single[i][to] = from_single[i][from];
}

static void take_part(struct standard *s, struct standard *part, const struct sequence *of)
{
    struct reference *r = s->reference;
    const struct reference *r_part = part->reference;
    for (size_t h = 0; h < s->problem.heads_q; h++)
        for (size_t i = 0; i < of->seqlen_q; i++)
            take_row(s, part, lse_at(&s->problem, of, h, i), h * of->seqlen_q + i);
    if (r_part->max_score > r->max_score) r->max_score = r_part->max_score;
    r->empty_rows += r_part->empty_rows;
    r->v_is_finite &= r_part->v_is_finite;
    if (part->broken && !s->broken) s->broken = part->broken, part->broken = NULL;
}

struct standard *standard_of_parts(const struct problem *p, const struct arrays *a)
{
    struct standard *s = xcalloc(1, sizeof *s);
    s->problem = *p;
    s->reference = xcalloc(1, sizeof *s->reference);
    reference_room(s->reference, p);
    s->o_allowed = xcalloc(s->reference->n_o, sizeof(double));
    s->lse_allowed = xcalloc(s->reference->n_lse, sizeof(double));
    for (size_t b = 0; b < p->batch; b++) {
        struct part part;
        const char *why = part_new(&part, p, a, b);
        if (why) {
            fprintf(stderr, "standard_parts.c: %s\n", why);
            exit(1);
        }
        if (part.s.seqlen_q) {
            struct standard *of_part = standard_new(&part.p, &part.a);
            take_part(s, of_part, &part.s);
            standard_free(of_part);
        }
        part_free(&part);
    }
    return s;
}
