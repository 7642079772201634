/* workers.h: the threads that work at one problem.  Tasks are taken from a counter, not by `omp for`: each
 * such loop ends at a barrier, where a team of one calls the operating system too. */
#pragma once

#include "plan.h"

/* One thread of a team. */
struct worker {
    size_t number, threads;
    size_t *taken; /* by all of them, of the two loops of tiles_of_thread() */
};

typedef void worker_function(const struct problem *p, const struct arrays *a,
                             const struct plan *plan, const struct worker *me);

/* Every thread of a team works, of one task a team of one.  That is none: to make it OpenMP takes
 * as long as a head of 16 keys does. */
static void in_team(int threads, worker_function *work, const struct problem *p,
                    const struct arrays *a, const struct plan *plan)
{
    size_t taken[2] = {0, 0};
    if (threads == 1 || plan->tiles * plan->parts == 1) {
        work(p, a, plan, &(struct worker){0, 1, taken});
        return;
    }
#pragma omp parallel num_threads(threads)
    work(p, a, plan, &(struct worker){(size_t)omp_get_thread_num(), (size_t)omp_get_num_threads(),
                                      taken});
}

/* What everyone did before it is seen by all behind it. */
static void wait_for_team(const struct worker *me)
{
    if (me->threads == 1) return;
#pragma omp barrier
}

/* The number of the next task of a loop. */
static size_t take(const struct worker *me, int loop)
{
    return __atomic_fetch_add(&me->taken[loop], 1, __ATOMIC_RELAXED);
}
