/* verbs.h: what a stage program can be asked to do.  Each returns the exit status. */
#ifndef VERBS_H
#define VERBS_H

#include "program/options.h"
#include "harness.h"

int list_stage(const struct stage *stage, const struct options *opt);
int check_stage(const struct stage *stage, const struct options *opt);
int bench_stage(const struct stage *stage, const struct options *opt);
int trace_stage(const struct stage *stage, const struct options *opt);
int run_stage(const struct stage *stage, const struct options *opt);

/* The heading of a group in `list` and `check`: "lesson". */
const char *group_name(enum group group);

#endif
