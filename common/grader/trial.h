/* trial.h: a worker and the cases that decide whether it is right. */
#ifndef TRIAL_H
#define TRIAL_H

#include "worker_process.h"

struct trial {
    struct worker *worker, *solution;
    int unsolved;           /* the solution's worker is a skeleton */
    uint64_t seed;          /* gives all cases other numbers */
    struct variant variant; /* what the solution promises, computed by `current` (trial.c) */
    int executed;           /* the exercise is a CUDA kernel executed on the CPU */
    enum dtype dtype;       /* of all cases */
    size_t n_cases, n_failed;
};

/* Asks the solution what it promises. */
void trial_describe(struct trial *t);

/* Judges the worker on the suite's cases; prints a line for each. */
void trial_listed(struct trial *t, int quick);

/* The same for `draw` problems that nobody has seen: shapes, masks and magnitudes come from
 * the seed. */
void trial_drawn(struct trial *t, size_t draw);

/* Worker and solution in turn, for half a second; the fastest run of each, which a busy
 * machine disturbs least. */
void trial_speed(const struct trial *t);

#endif
