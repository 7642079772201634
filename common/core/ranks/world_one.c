/* world_one.c: several GPUs of one process: nobody to talk to. */
#include "ranks/world.h"

#include <stdio.h>
#include <stdlib.h>

#include "program/complain.h"
#include "program/options.h"
#include "ranks/shards.h"

struct world world;
static const struct stage *present;

void world_share(void *bytes, size_t n) { (void)bytes, (void)n; }
double world_max(double x) { return x; }
double world_sum(double x) { return x; }
void world_send(void *bytes, size_t n, int from) { (void)bytes, (void)n, (void)from; }

int world_agree(const char *why, int status)
{
    if (!why) return 0;
    announce(present, why);
    return status;
}

void world_abort(const char *why)
{
    fflush(stdout);
    announce(present, why);
    _Exit(1);
}

int on_ranks(const struct stage *stage, unsigned verb, const struct options *opt)
{
    present = stage;
    world = (struct world){.ranks = (int)opt->gpus, .local = (int)opt->gpus};
    return verb_on_ranks(stage, verb, opt);
}
