/* cli.c: the command line of a stage program. */
#include "program/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "library/five_steps.h"
#include "program/complain.h"
#include "program/verbs.h"

static int help(const struct stage *stage, const struct options *opt)
{
    (void)opt;
    printf("%s: %s\n\n"
           "list   the variants of this stage, one line each\n"
           "check  compares them with a reference in float64\n"
           "bench  times them\n"
           "trace  prints m, l and o after every step of a short row\n"
           "run    softmax of x, or attention of q, k and v, from and to .npy files\n\n"
           "%s list\n"
           "%s check [--variant V] [--quick] [--case NAME] [--random N]\n"
           "      [--seed S] [--dtype T] [--op O] [--huge]\n"
           "%s bench [--variant V] [--quick] [--csv FILE] [--op O] [--rows N --cols N]\n"
           "      [--batch N --heads-q N --heads-kv N --seqlen-q N --seqlen-k N\n"
           "       --head-dim N --head-dim-v N] [--causal] [--dtype T]\n"
           "%s trace [--row 3,2,5,1]\n"
           "%s run --x x.npy --y y.npy [--log] [--op O]\n"
           "%s run --q q.npy --k k.npy --v v.npy --o o.npy [--lse l.npy] [--bias b.npy]\n"
           "      [--causal] [--window L,R] [--scale s] [--softcap c] [--sinks s.npy]\n"
           "      [--cu-seqlens-q cq.npy --cu-seqlens-k ck.npy]\n"
           "      [--dtype f16|bf16|f32] [--variant V]\n\n"
           "check, bench and run also take --threads N, --device cpu and --verbose, and\n"
           "stage 5's --gpus N [--strategy tree|tree-reduce|ring|ring-unbalanced]; list\n"
           "--verbose shows which kernel a GPU variant picks for some shapes.\n"
           "--help and --version may follow every verb.\n"
           "Exit status: 0 done or passed, 1 failed, 2 bad usage or input, 77 skipped.\n",
           stage->name, stage->idea, stage->name, stage->name, stage->name, stage->name,
           stage->name, stage->name);
    return 0;
}

int print_version(const struct stage *stage)
{
    printf("%s %s\n", stage->name, FIVE_STEPS_VERSION);
    return 0;
}

static int version(const struct stage *stage, const struct options *opt)
{
    (void)opt;
    return print_version(stage);
}

static const struct verb verbs[] = {
    {"list", IN_LIST, list_stage},    {"check", IN_CHECK, check_stage},
    {"bench", IN_BENCH, bench_stage}, {"trace", IN_TRACE, trace_stage},
    {"run", IN_RUN, run_stage},       {"help", 0, help},
    {"version", 0, version},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

int command_parse(int argc, char **argv, const struct stage *stage, const struct verb **verb,
                  struct options *opt)
{
    if (argc < 2)
        return complain(stage, "give a verb: list, check, bench, trace, run or help");
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(name, verbs[i].name)) continue;
        *verb = &verbs[i];
        return options_parse(argc - 2, argv + 2, *verb, stage, opt);
    }
    return complain(stage, "'%s': unknown verb; there are list, check, bench, trace, run "
                           "and help", argv[1]);
}

/* Without this the first file that is opened would take the place of a stream that the
 * caller closed, and what is printed would end in it.  Writing to the stand-in fails. */
static void occupy_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) exit(1);
}

int stage_main(int argc, char **argv, const struct stage *stage)
{
    struct options opt;
    const struct verb *verb;
    occupy_streams();
    int status = command_parse(argc, argv, stage, &verb, &opt);
    if (status) return status;
    if (opt.threads) omp_set_num_threads(opt.threads);
    if (opt.on_cpu) gpu_forbid();
    status = opt.help ? help(stage, &opt) : opt.version ? print_version(stage)
             : opt.gpus                   ? stage->on_gpus(stage, verb->bit, &opt)
                                          : verb->function(stage, &opt);
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        fprintf(stderr, "%s: cannot write the standard output: %s\n", stage->name,
                strerror(errno));
        status = 1;
    }
    return status;
}
