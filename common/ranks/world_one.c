/* one_process.c: several GPUs of one process: nobody to talk to. */
#include "multi_gpu/world.h"

#include <stdio.h>
#include <stdlib.h>

#include "multi_gpu/several_gpus.h"
#include "program/complain.h"

void world_share(void *bytes, size_t n) { (void)bytes, (void)n; }

double world_max(double x) { return x; }

void world_send(float *x, size_t n, int from) { (void)x, (void)n, (void)from; }

int world_agree(const struct world *w, const char *why, int status)
{
    if (!why) return 0;
    complain(w->stage, "%s", why);
    return status;
}

void world_abort(const struct world *w, const char *why)
{
    fflush(stdout);
    complain(w->stage, "%s", why);
    _Exit(1);
}

int several_gpus(const struct stage *stage, unsigned verb, const struct options *opt)
{
    struct world w = {.stage = stage, .ranks = opt->gpus, .local = opt->gpus};
    return verb_on_gpus(&w, verb, opt);
}
