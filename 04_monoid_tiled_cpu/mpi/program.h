/* program.h: what the files of the program 04_monoid_tiled_cpu_mpi share. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "program/options.h"
#include "ranks.h"

enum { OK = 0, FAILED = 1, BAD = 2, SKIPPED = 77 };

/* What every verb needs. */
struct team {
    const struct options *opt;
    int me, ranks;
    MPI_Comm comm;
};

extern const struct stage mpi_stage;
extern const char *const strategy_names[N_STRATEGIES], *const strategy_ideas[N_STRATEGIES];

/* One line from rank 0 when some rank complains; `status` then, else OK. */
int agree(const struct team *t, const char *why, int status);

/* Is the strategy the one of --strategy, or is none given? */
int wanted(const struct options *opt, enum strategy s);

/* The verbs; the exit status. */
int check_ranks(const struct team *t);
int bench_ranks(const struct team *t);
int run_ranks(const struct team *t);

#endif
