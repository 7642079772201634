/* cli.c: the command line of a stage program. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "program/options.h"
#include "problem/variant.h"

#define BIT(verb) (1u << (verb))

enum {
    IN_CHECK = BIT(VERB_CHECK), IN_BENCH = BIT(VERB_BENCH), IN_TRACE = BIT(VERB_TRACE),
    IN_RUN = BIT(VERB_RUN), IN_LIST = BIT(VERB_LIST),
    COMPUTES = IN_CHECK | IN_BENCH | IN_RUN
};

enum kind { FLAG, TEXT, COUNT, NUMBER, SEED, DTYPE, OP, DEVICE };

/* One option: which verbs take it and where its value goes. */
struct option {
    const char *name;
    unsigned verbs;
    enum kind kind;
    size_t offset, given;  /* offsets into struct options; given: SIZE_MAX or a flag's */
};

#define AT(field) offsetof(struct options, field)
#define NO_FLAG ((size_t)-1)

static const struct option table[] = {
    {"--variant", COMPUTES, TEXT, AT(variant), NO_FLAG},
    {"--quick", IN_CHECK | IN_BENCH, FLAG, AT(quick), NO_FLAG},
    {"--verbose", COMPUTES | IN_LIST, FLAG, AT(verbose), NO_FLAG},
    {"--seed", IN_CHECK, SEED, AT(seed), AT(has_seed)},
    {"--case", IN_CHECK, TEXT, AT(only_case), NO_FLAG},
    {"--random", IN_CHECK, COUNT, AT(random), NO_FLAG},
    {"--huge", IN_CHECK, FLAG, AT(huge), NO_FLAG},
    {"--csv", IN_BENCH, TEXT, AT(csv), NO_FLAG},
    {"--dtype", COMPUTES, DTYPE, AT(dtype), AT(has_dtype)},
    {"--threads", COMPUTES, COUNT, AT(threads), NO_FLAG},
    {"--device", COMPUTES | IN_LIST, DEVICE, AT(on_cpu), NO_FLAG},
    {"--x", IN_RUN, TEXT, AT(x), NO_FLAG},
    {"--y", IN_RUN, TEXT, AT(y), NO_FLAG},
    {"--q", IN_RUN, TEXT, AT(q), NO_FLAG},
    {"--k", IN_RUN, TEXT, AT(k), NO_FLAG},
    {"--v", IN_RUN, TEXT, AT(v), NO_FLAG},
    {"--o", IN_RUN, TEXT, AT(o), NO_FLAG},
    {"--lse", IN_RUN, TEXT, AT(lse), NO_FLAG},
    {"--bias", IN_RUN, TEXT, AT(bias), NO_FLAG},
    {"--log", IN_RUN, FLAG, AT(log), NO_FLAG},
    {"--causal", IN_RUN | IN_BENCH, FLAG, AT(causal), NO_FLAG},
    {"--scale", IN_RUN, NUMBER, AT(scale), AT(has_scale)},
    {"--row", IN_TRACE, TEXT, AT(row), NO_FLAG},
    {"--op", IN_BENCH | IN_CHECK, OP, AT(op), AT(has_op)},
    {"--rows", IN_BENCH, COUNT, AT(rows), NO_FLAG},
    {"--cols", IN_BENCH, COUNT, AT(cols), NO_FLAG},
    {"--batch", IN_BENCH, COUNT, AT(batch), NO_FLAG},
    {"--heads-q", IN_BENCH, COUNT, AT(heads_q), NO_FLAG},
    {"--heads-kv", IN_BENCH, COUNT, AT(heads_kv), NO_FLAG},
    {"--seqlen-q", IN_BENCH, COUNT, AT(seqlen_q), NO_FLAG},
    {"--seqlen-k", IN_BENCH, COUNT, AT(seqlen_k), NO_FLAG},
    {"--head-dim", IN_BENCH, COUNT, AT(head_dim), NO_FLAG},
    {"--head-dim-v", IN_BENCH, COUNT, AT(head_dim_v), NO_FLAG},
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

int complain_list(const struct stage *stage, const char *format, va_list arguments)
{
    char text[8192];
    vsnprintf(text, sizeof text, format, arguments);
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c)) *c = '?';
    fprintf(stderr, "%s: %s\n", stage->name, text);
    return 2;
}

int complain(const struct stage *stage, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_list(stage, format, arguments);
    va_end(arguments);
    return 2;
}

/* A whole number from 1 to 2^40, nothing before or after it. */
static int parse_count(const char *text, size_t *value)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || n == 0 || n > 1ull << 40)
        return 0;
    *value = (size_t)n;
    return 1;
}

static int parse_seed(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return isdigit((unsigned char)text[0]) && !*end && !errno;
}

static int parse_number(const char *text, float *value)
{
    char *end;
    errno = 0;
    *value = strtof(text, &end);
    return *text && !isspace((unsigned char)*text) && !*end && isfinite(*value);
}

static int parse_dtype(const char *text, enum dtype *value)
{
    for (int t = F32; t <= BF16; t++)
        if (!strcmp(text, dtype_name((enum dtype)t))) {
            *value = (enum dtype)t;
            return 1;
        }
    return 0;
}

static int parse_op(const char *text, enum op *value)
{
    for (int op = 0; op < N_OPS; op++)
        if (!strcmp(text, op_name((enum op)op))) {
            *value = (enum op)op;
            return 1;
        }
    return 0;
}

/* Stores the value of one option; returns 0 or what a right value looks like. */
static const char *store(const struct option *o, const char *text, struct options *opt)
{
    char *at = (char *)opt + o->offset;
    size_t count;
    switch (o->kind) {
    case FLAG:
        *(int *)at = 1;
        return NULL;
    case TEXT:
        *(const char **)at = text;
        return *text ? NULL : "a name";
    case COUNT:
        if (!parse_count(text, &count)) return "a whole number from 1";
        if (o->offset != AT(threads)) {
            *(size_t *)at = count;
            return NULL;
        }
        *(int *)at = (int)count;
        return count <= 4096 ? NULL : "a whole number from 1 to 4096";
    case NUMBER:
        return parse_number(text, (float *)at) ? NULL : "a finite number";
    case SEED:
        return parse_seed(text, (uint64_t *)at) ? NULL : "a whole number";
    case DTYPE:
        return parse_dtype(text, (enum dtype *)at) ? NULL : "f32, f16 or bf16";
    case OP:
        return parse_op(text, (enum op *)at) ? NULL : "an operation like softmax, logsoftmax "
                                                        "or attention";
    case DEVICE:
        *(int *)at = 1;
        return strcmp(text, "cpu") ? "cpu" : NULL;
    }
    return NULL;
}

static const char *const verb_names[] = {"list", "check", "bench", "trace", "run", "help"};

static int parse_verb(const char *text, enum verb *verb)
{
    if (!strcmp(text, "--help") || !strcmp(text, "-h")) text = "help";
    for (int i = VERB_LIST; i <= VERB_HELP; i++)
        if (!strcmp(text, verb_names[i])) {
            *verb = (enum verb)i;
            return 1;
        }
    return 0;
}

/* What must be given together, and what cannot be. */
static int validate_run(const struct stage *stage, const struct options *opt)
{
    int softmax = opt->x || opt->y || opt->log;
    int attention = opt->q || opt->k || opt->v || opt->o || opt->lse || opt->bias ||
                    opt->causal || opt->has_scale;
    if (softmax && attention)
        return complain(stage, "run: --x, --y, --log (softmax) cannot go with --q, --k, --v, "
                               "--o, --lse, --bias, --causal, --scale (attention)");
    if (!softmax && !attention)
        return complain(stage, "run: give --x and --y (softmax) or --q, --k, --v and --o "
                               "(attention)");
    const struct { const char *name, *value; int needed; } files[] = {
        {"--x", opt->x, softmax},   {"--y", opt->y, softmax},   {"--q", opt->q, attention},
        {"--k", opt->k, attention}, {"--v", opt->v, attention}, {"--o", opt->o, attention},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (files[i].needed && !files[i].value)
            return complain(stage, "run: %s is missing: name a .npy file", files[i].name);
    if (opt->lse && !strcmp(opt->lse, opt->o))
        return complain(stage, "run: --lse and --o both name '%s'; give two files", opt->o);
    return 0;
}

/* Is the variant one of the stage's? */
static int validate_variant(const struct stage *stage, const struct options *opt)
{
    if (!opt->variant) return 0;
    char names[1024] = "";
    for (size_t i = 0; stage->variants[i]; i++) {
        if (!strcmp(stage->variants[i]->name, opt->variant)) return 0;
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", stage->variants[i]->name);
    }
    return complain(stage, "--variant: no variant '%s'; there are %s", opt->variant, names);
}

static int parse_option(int argc, char **argv, int *i, const struct stage *stage,
                        struct options *opt, unsigned char *seen)
{
    const char *name = argv[*i], *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    for (int k = 0; k < N_OPTIONS; k++) {
        const struct option *o = &table[k];
        if (strlen(o->name) != length || strncmp(o->name, name, length)) continue;
        if (!(o->verbs & BIT(opt->verb)))
            return complain(stage, "%s: not an option of %s", o->name, verb_names[opt->verb]);
        if (seen[k]++) return complain(stage, "%s is given twice; give it once", o->name);
        const char *value = "";
        if (o->kind == FLAG) {
            if (equals) return complain(stage, "%s takes no value", o->name);
        } else if (equals) {
            value = equals + 1;
        } else if (++*i < argc) {
            value = argv[*i];
        } else {
            return complain(stage, "%s: its value is missing", o->name);
        }
        const char *right = store(o, value, opt);
        if (right) return complain(stage, "%s: '%s' is not %s", o->name, value, right);
        if (o->given != NO_FLAG) *(int *)((char *)opt + o->given) = 1;
        return 0;
    }
    if (name[0] == '-')
        return complain(stage, "%s: unknown option; %s help lists them", name, stage->name);
    return complain(stage, "'%s': unexpected argument; options begin with --", name);
}

int options_parse(int argc, char **argv, const struct stage *stage, struct options *opt)
{
    unsigned char seen[N_OPTIONS] = {0};
    *opt = (struct options){0};
    if (argc < 2)
        return complain(stage, "give a verb: list, check, bench, trace, run or help");
    if (!parse_verb(argv[1], &opt->verb))
        return complain(stage, "'%s': unknown verb; there are list, check, bench, trace, run "
                               "and help", argv[1]);
    for (int i = 2; i < argc; i++) {
        int status = parse_option(argc, argv, &i, stage, opt, seen);
        if (status) return status;
    }
    int status = validate_variant(stage, opt);
    if (!status && opt->verb == VERB_RUN) status = validate_run(stage, opt);
    return status;
}

static int help(const struct stage *stage)
{
    printf("%s: %s\n\n"
           "%s list\n"
           "%s check [--variant V] [--quick] [--case NAME] [--random N]\n"
           "      [--seed S] [--dtype T] [--op O] [--huge]\n"
           "%s bench [--variant V] [--quick] [--csv FILE] [--op O] [--rows N --cols N]\n"
           "      [--batch N --heads-q N --heads-kv N --seqlen-q N --seqlen-k N\n"
           "       --head-dim N --head-dim-v N] [--causal] [--dtype T]\n"
           "%s trace [--row 3,2,5,1]\n"
           "%s run --x x.npy --y y.npy [--log]\n"
           "%s run --q q.npy --k k.npy --v v.npy --o o.npy [--lse l.npy] [--bias b.npy]\n"
           "      [--causal] [--scale s] [--dtype f16|bf16|f32] [--variant V]\n\n"
           "check, bench and run also take --threads N, --device cpu and --verbose; list\n"
           "--verbose says what a variant that chooses takes for some shapes.\n"
           "Exit status: 0 done or passed, 1 failed, 2 bad usage or input, 77 skipped.\n",
           stage->name, stage->idea, stage->name, stage->name, stage->name, stage->name,
           stage->name, stage->name);
    return 0;
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
    occupy_streams();
    int status = options_parse(argc, argv, stage, &opt);
    if (status) return status;
    if (opt.threads) omp_set_num_threads(opt.threads);
    if (opt.on_cpu) gpu_forbid();
    switch (opt.verb) {
    case VERB_LIST: status = list_stage(stage, &opt); break;
    case VERB_CHECK: status = check_stage(stage, &opt); break;
    case VERB_BENCH: status = bench_stage(stage, &opt); break;
    case VERB_TRACE: status = trace_stage(stage, &opt); break;
    case VERB_RUN: status = run_stage(stage, &opt); break;
    case VERB_HELP: status = help(stage); break;
    }
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        fprintf(stderr, "%s: cannot write the standard output: %s\n", stage->name,
                strerror(errno));
        status = 1;
    }
    return status;
}
