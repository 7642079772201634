/* verbs.h: what check, bench and run on several GPUs share. */
#ifndef VERBS_ON_GPUS_H
#define VERBS_ON_GPUS_H

#include "team.h"

enum { OK = 0, FAILED = 1, BAD = 2, SKIPPED = 77 };

extern const char *const strategy_names[N_STRATEGIES], *const strategy_ideas[N_STRATEGIES];

/* Is the strategy the one of --strategy, or is none given? */
bool is_wanted(const struct options *opt, enum strategy s);

int check_on_gpus(struct team *t, const struct options *opt);
int bench_on_gpus(struct team *t, const struct options *opt);
int run_on_gpus(struct team *t, const struct options *opt);

#endif
