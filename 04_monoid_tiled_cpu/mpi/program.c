/* program.c: the program 04_monoid_tiled_cpu_mpi: the verbs check, bench and run on several
 * ranks.
 *
 *     mpirun -n 4 build/04_monoid_tiled_cpu_mpi check --strategy ring
 *
 * Rank 0 prints.  Every rank takes the same path through these files; where one fails, all learn
 * of it (ranks_complain), rank 0 says which and why, and all end with the same status. */
#include "program.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "program/cli.h"
#include "program/complain.h"
#include "program/parse.h"
#include "shard.h"

const char *const strategy_names[N_STRATEGIES] = {
    [TREE] = "tree", [TREE_FIXED_ORDER] = "tree-fixed", [RING] = "ring",
    [RING_UNBALANCED] = "ring-unbalanced",
};

const char *const strategy_ideas[N_STRATEGIES] = {
    [TREE] = "keys are cut; one reduction with the monoid as MPI_Op",
    [TREE_FIXED_ORDER] = "the same, merged by rank: the same bits in every run",
    [RING] = "keys and queries are cut; keys travel; zigzag chunks balance a causal mask",
    [RING_UNBALANCED] = "the same with contiguous chunks, for comparison",
};

static const struct variant *const no_variants[] = {NULL};
static const char *const strategies[] = {"tree", "tree-fixed", "ring", "ring-unbalanced", NULL};

const struct stage mpi_stage = {
    .number = 4,
    .name = "04_monoid_tiled_cpu_mpi",
    .idea = "the same fold on several machines: keys cut between MPI ranks",
    .variants = no_variants,
    .strategies = strategies,
};

int agree(const struct team *t, const char *why, int status)
{
    char text[2048];
    if (!ranks_complain(why, text, sizeof text, t->comm)) return OK;
    if (t->me == 0) fprintf(stderr, "%s: %s\n", mpi_stage.name, text);
    return status;
}

int wanted(const struct options *opt, enum strategy s)
{
    return !opt->strategy || !strcmp(opt->strategy, strategy_names[s]);
}

static int list(const struct team *t)
{
    if (t->me) return OK;
    printf("# strategies\n");
    for (int s = 0; s < N_STRATEGIES; s++)
        printf("%-16s  cpu  f32  attention  %s\n", strategy_names[s], strategy_ideas[s]);
    return OK;
}

static int help(const struct team *t)
{
    if (t->me) return OK;
    printf("%s: %s\n\n"
           "mpirun -n R %s list\n"
           "            check [--strategy S] [--quick] [--case NAME]\n"
           "            bench [--strategy S] [--quick] [--csv FILE] [--causal] [--batch N\n"
           "                  --heads-q N --heads-kv N --seqlen-q N --seqlen-k N --head-dim N\n"
           "                  --head-dim-v N] [--threads N]\n"
           "            run --q q.npy --k k.npy --v v.npy --o o.npy [--lse l.npy]\n"
           "                [--bias b.npy] [--causal] [--scale s] [--strategy S]\n\n"
           "--help and --version may follow every verb.\n"
           "Strategies: tree, tree-fixed, ring, ring-unbalanced.  Exit status: 0 done or\n"
           "passed, 1 failed, 2 bad usage or input, 77 skipped.\n",
           mpi_stage.name, mpi_stage.idea, mpi_stage.name);
    return OK;
}

static int version(const struct team *t)
{
    return t->me ? OK : print_version(&mpi_stage);
}

static const struct { struct verb verb; int (*function)(const struct team *t); } verbs[] = {
    {{"list", IN_LIST, NULL}, list},    {{"check", IN_CHECK, NULL}, check_ranks},
    {{"bench", IN_BENCH, NULL}, bench_ranks}, {{"run", IN_RUN, NULL}, run_ranks},
    {{"help", 0, NULL}, help},          {{"version", 0, NULL}, version},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

/* Sets *verb to a place in verbs, and *opt.  0, or 2 after one line on stderr. */
static int parse(int argc, char **argv, int *verb, struct options *opt)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    for (*verb = 0; *verb < N_VERBS; ++*verb)
        if (!strcmp(name, verbs[*verb].verb.name))
            return options_parse(argc - 2, argv + 2, &verbs[*verb].verb, &mpi_stage, opt);
    return complain(&mpi_stage, "give a verb: list, check, bench, run or help");
}

int main(int argc, char **argv)
{
    struct options opt;
    struct team t = {.opt = &opt, .comm = MPI_COMM_WORLD};
    int level, verb = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(t.comm, &t.me);
    MPI_Comm_size(t.comm, &t.ranks);
    if (t.me && !freopen("/dev/null", "w", stdout)) MPI_Abort(t.comm, 1);
    int status = t.me ? OK : parse(argc, argv, &verb, &opt); /* one complaint */
    MPI_Bcast(&status, 1, MPI_INT, 0, t.comm);
    if (!status && t.me) status = parse(argc, argv, &verb, &opt);
    if (!status) {
        if (opt.threads) omp_set_num_threads(opt.threads);
        status = (opt.help ? help : opt.version ? version : verbs[verb].function)(&t);
    }
    fflush(stdout);
    MPI_Finalize();
    return status;
}
