/* program.cu: the verbs on several GPUs, in one process or in one for each GPU. */
#include <string.h>

#include "program/parse.h"
#include "verbs.h"

const char *const strategy_names[N_STRATEGIES] = {"tree", "tree-reduce", "ring",
                                                  "ring-unbalanced"};

const char *const strategy_ideas[N_STRATEGIES] = {
    "keys are cut; all parts on every GPU, merged by rank",
    "keys are cut; a maximum and a sum over the GPUs",
    "keys and queries are cut; keys travel; zigzag chunks balance a causal mask",
    "the same with contiguous chunks, for comparison",
};

bool is_wanted(const struct options *opt, enum strategy s)
{
    return !opt->strategy || !strcmp(opt->strategy, strategy_names[s]);
}

int verb_on_gpus(const struct world *w, unsigned verb, const struct options *opt)
{
    static struct team t;
    int status = team_open(&t, w);
    if (status) return status;
    status = verb == IN_CHECK ? check_on_gpus(&t, opt)
             : verb == IN_RUN ? run_on_gpus(&t, opt)
                              : bench_on_gpus(&t, opt);
    team_close(&t);
    return status;
}
