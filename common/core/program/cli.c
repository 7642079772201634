/* cli.c: the command line of a stage program. */
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "problem/heads.h"
#include "program/complain.h"
#include "program/options.h"

static int help(const struct stage *stage, const struct options *opt);

static int version(const struct stage *stage, const struct options *opt)
{
    (void)opt;
    printf("%s %s\n", stage->name, VERSION);
    return 0;
}

static const struct verb verbs[] = {
    {"list", "the variants of this stage, one line each", IN_LIST, list_stage},
    {"check", "compares them with a reference in float64", IN_CHECK, check_stage},
    {"bench", "times them", IN_BENCH, bench_stage},
    {"trace", "prints m, l and o after every step of a short row", IN_TRACE, trace_stage},
    {"run", "softmax of --x to --y, or attention of --q, --k and --v to --o: .npy files;\n"
            "       with --do its gradients, to --dq, --dk and --dv", IN_RUN,
     run_stage},
    {"help", NULL, 0, help},
    {"version", NULL, 0, version},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

/* A program of several ranks does not trace. */
static int has_verb(const struct stage *stage, const struct verb *verb)
{
    return !(stage->ranks && verb->bit == IN_TRACE);
}

static int help(const struct stage *stage, const struct options *opt)
{
    (void)opt;
    printf("%s: %s\n\n%s%s VERB [OPTION ...]\n\n", stage->name, stage->idea,
           stage->ranks ? "mpirun -n R " : "", stage->name);
    for (int i = 0; i < N_VERBS; i++) {
        if (!verbs[i].what || !has_verb(stage, &verbs[i])) continue;
        printf("%-6s %s", verbs[i].name, verbs[i].what);
        options_help(stage, &verbs[i]);
    }
    for (int i = 0; stage->strategies && stage->strategies[i].name; i++)
        printf("%s%s", i ? ", " : "\nStrategies: ", stage->strategies[i].name);
    printf("\n--help and --version may follow every verb.\n"
           "Exit status: 0 done or passed, 1 failed, 2 bad usage or input, 77 skipped.\n");
    return 0;
}

/* Sets *verb and *opt from the command line.  Returns 0, or 2 after one line on stderr that names
 * the culprit. */
static int command_parse(int argc, char **argv, const struct stage *stage,
                         const struct verb **verb, struct options *opt)
{
    const char *name = argc > 1 ? argv[1] : "", *trace = stage->ranks ? "" : "trace, ";
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(name, verbs[i].name) || !has_verb(stage, &verbs[i])) continue;
        *verb = &verbs[i];
        return options_parse(argc - 2, argv + 2, *verb, stage, opt);
    }
    if (argc < 2) return complain(stage, "give a verb: list, check, bench, %srun or help", trace);
    return complain(stage, "'%s': unknown verb; there are list, check, bench, %srun and help",
                    name, trace);
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
    const struct verb *verb = NULL;
    occupy_streams();
    int status = command_parse(argc, argv, stage, &verb, &opt);
    if (status) return status;
    if (opt.threads) omp_set_num_threads((int)opt.threads);
    if (omp_get_max_threads() > MOST_THREADS) omp_set_num_threads(MOST_THREADS);
    if (opt.on_cpu) gpu_forbid();
    int on_ranks = verb->bit & COMPUTES && (opt.gpus || stage->ranks);
    status = opt.help ? help(stage, &opt) : opt.version ? version(stage, &opt)
             : on_ranks ? stage->on_ranks(stage, verb->bit, &opt) : verb->function(stage, &opt);
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        fprintf(stderr, "%s: cannot write the standard output: %s\n", stage->name,
                strerror(errno));
        status = 1;
    }
    return status;
}
