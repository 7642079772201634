/* processes.c: the program 05_flash_cuda_mpi: one process for each GPU.
 *
 *     mpirun -n 2 build/05_flash_cuda_mpi check --quick
 *
 * MPI starts the processes, carries NCCL's address and small messages, and brings the result to
 * process 0.  Keys and values travel by NCCL. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "multi_gpu/world.h"
#include "program/cli.h"
#include "program/complain.h"
#include "program/parse.h"

static const struct variant *const no_variants[] = {NULL};
static const char *const strategies[] = {"tree", "tree-reduce", "ring", "ring-unbalanced", NULL};
static const struct stage stage = {
    .number = 5,
    .name = "05_flash_cuda_mpi",
    .idea = "the last rung on several GPUs, a process for each",
    .variants = no_variants,
    .strategies = strategies,
};

void world_share(void *bytes, size_t n) { MPI_Bcast(bytes, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD); }

/* Ends all processes when one does not answer: it hangs, or was stopped. */
double world_max(double x)
{
    enum { PATIENCE = 30 }; /* seconds */
    double most, began = MPI_Wtime();
    int done = 0;
    MPI_Request pending;
    MPI_Iallreduce(&x, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &pending);
    for (MPI_Test(&pending, &done, MPI_STATUS_IGNORE); !done;
         MPI_Test(&pending, &done, MPI_STATUS_IGNORE))
        if (MPI_Wtime() - began > PATIENCE)
            world_abort(NULL, "another process has not answered for 30 s");
    return most;
}

void world_send(float *x, size_t n, int from)
{
    int me;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (size_t at = 0, most = 1u << 28; at < n; at += most) {
        int count = (int)(n - at < most ? n - at : most);
        if (me) MPI_Send(x + at, count, MPI_FLOAT, 0, 1, MPI_COMM_WORLD);
        else MPI_Recv(x + at, count, MPI_FLOAT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

int world_agree(const struct world *w, const char *why, int status)
{
    char text[1024] = "";
    int mine = why ? w->first : w->ranks, first;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == w->ranks) return 0;
    if (first == w->first && strncmp(why, "rank ", 5))
        snprintf(text, sizeof text, "rank %d: %s", first, why);
    else if (first == w->first) snprintf(text, sizeof text, "%s", why);
    MPI_Bcast(text, sizeof text, MPI_CHAR, first, MPI_COMM_WORLD);
    if (w->first == 0) complain(&stage, "%s", text);
    return status;
}

void world_abort(const struct world *w, const char *why)
{
    (void)w;
    fflush(stdout);
    complain(&stage, "%s", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _Exit(1);
}

static void help(void)
{
    printf("%s: %s\n\n"
           "mpirun -n GPUS %s check [--strategy S] [--quick] [--case NAME] [--dtype T]\n"
           "               bench [--strategy S] [--quick] [--csv FILE] [--causal]\n"
           "                     [--heads-q N --seqlen-q N --seqlen-k N --head-dim N ...]\n"
           "               run --q q.npy --k k.npy --v v.npy --o o.npy [--lse l.npy]\n"
           "                   [--causal] [--scale s] [--dtype bf16|f16] [--strategy S]\n\n"
           "--help and --version may follow every verb.\n"
           "Strategies: tree, tree-reduce, ring, ring-unbalanced.  Exit status: 0 done or\n"
           "passed, 1 failed, 2 bad usage or input, 77 skipped.\n",
           stage.name, stage.idea, stage.name);
}

static const struct verb verbs[] = {
    {"check", IN_CHECK, NULL}, {"bench", IN_BENCH, NULL}, {"run", IN_RUN, NULL},
    {"help", 0, NULL},         {"version", 0, NULL},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

/* Sets *verb and *opt; 0, or 2 after one line on stderr. */
static int parse(int argc, char **argv, const struct verb **verb, struct options *opt)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(name, verbs[i].name)) continue;
        *verb = &verbs[i];
        return options_parse(argc - 2, argv + 2, *verb, &stage, opt);
    }
    return complain(&stage, "give a verb: check, bench, run or help");
}

/* The number of this process among those of its machine: the number of its GPU. */
static int place_on_machine(void)
{
    int place;
    MPI_Comm machine;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &place);
    MPI_Comm_free(&machine);
    return place;
}

int main(int argc, char **argv)
{
    struct options opt;
    const struct verb *verb = NULL;
    struct world w = {.stage = &stage, .local = 1};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &w.first);
    MPI_Comm_size(MPI_COMM_WORLD, &w.ranks);
    w.device = place_on_machine();
    if (w.first && !freopen("/dev/null", "w", stdout)) MPI_Abort(MPI_COMM_WORLD, 1);
    int status = w.first ? 0 : parse(argc, argv, &verb, &opt); /* one complaint */
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!status && w.first) status = parse(argc, argv, &verb, &opt);
    if (!status && (opt.help || !strcmp(verb->name, "help"))) help();
    else if (!status && (opt.version || !strcmp(verb->name, "version"))) print_version(&stage);
    else if (!status) status = verb_on_gpus(&w, verb->bit, &opt);
    fflush(stdout);
    MPI_Finalize();
    return status;
}
