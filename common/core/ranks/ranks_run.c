/* ranks_run.c: attention of real data on several ranks: the steps of every `run`, which all
 * processes take together.  Process 0 alone writes. */
#include <string.h>

#include "problem/operation.h"
#include "program/complain.h"
#include "program/run.h"
#include "ranks/shards.h"

/* The strategy where none is named: the tree for few queries, the ring for many. */
static const char *choose_strategy(const struct run *r)
{
    const struct strategy *s = r->stage->strategies;
    while (s->is_ring != (r->p.seqlen_q >= 64)) s++;
    return s->name;
}

/* Do all processes see the same problem? */
static const char *same_everywhere(const struct problem *p)
{
    struct problem first = *p;
    world_share(&first, sizeof first);
    return memcmp(&first, p, sizeof first) ? "its files have other shapes than those of rank 0"
                                           : NULL;
}

static int steps_on_ranks(struct run *r)
{
    static struct options own;
    own = *r->opt;
    r->opt = &own;
    for (int i = 0; i < N_ARRAYS && world.first; i++)
        if (operations[r->p.op].outputs & HAS(i)) own.file[i] = NULL;
    complain_silently(1); /* world_agree() says it once, with the rank */
    int status = run_problem(r);
    if (!status && !own.variant) own.variant = choose_strategy(r);
    if (!status && !own.has_dtype) /* f32 is not rounded unasked */
        own.has_dtype = 1, own.dtype = r->p.dtype;
    if (!status) status = run_prepare(r);
    complain_silently(world.first > 0);
    status = world_agree(status ? complained() : NULL, BAD);
    if (!status) status = world_agree(same_everywhere(&r->p), BAD);
    return status ? status : run_finish(r);
}

int run_on_ranks(const struct stage *stage, const struct options *opt)
{
    return run_in_steps(stage, opt, steps_on_ranks);
}
