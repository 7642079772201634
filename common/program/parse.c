/* parse.c: the options of a stage program. */
#include "program/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/operation.h"
#include "program/complain.h"

enum { COMPUTES = IN_CHECK | IN_BENCH | IN_RUN };

enum kind { FLAG, TEXT, COUNT, NUMBER, POSITIVE, WINDOW, SEED, DTYPE, OP, DEVICE };

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
    {"--window", IN_RUN, WINDOW, AT(window), AT(has_window)},
    {"--softcap", IN_RUN, POSITIVE, AT(softcap), NO_FLAG},
    {"--sinks", IN_RUN, TEXT, AT(sinks), NO_FLAG},
    {"--cu-seqlens-q", IN_RUN, TEXT, AT(cu_seqlens_q), NO_FLAG},
    {"--cu-seqlens-k", IN_RUN, TEXT, AT(cu_seqlens_k), NO_FLAG},
    {"--gpus", COMPUTES, COUNT, AT(gpus), NO_FLAG},
    {"--strategy", COMPUTES, TEXT, AT(strategy), NO_FLAG},
    {"--timeline", IN_BENCH, TEXT, AT(timeline), NO_FLAG},
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

/* One side of a window: -1 for no limit, or 0 to 2^40; it ends at the character `last`. */
static const char *parse_side(const char *text, char last, ptrdiff_t *value)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    int starts = isdigit((unsigned char)text[0]) || text[0] == '-';
    if (!starts || *end != last || errno || n < -1 || n > 1ll << 40) return NULL;
    *value = (ptrdiff_t)n;
    return end;
}

static int parse_window(const char *text, struct window *w)
{
    const char *comma = parse_side(text, ',', &w->left);
    return comma && parse_side(comma + 1, 0, &w->right);
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
    case POSITIVE:
        return parse_number(text, (float *)at) && *(float *)at > 0
                   ? NULL : "a finite number above 0";
    case WINDOW:
        return parse_window(text, (struct window *)at)
                   ? NULL : "L,R: keys to the left and to the right, -1 for no limit";
    case SEED:
        return parse_seed(text, (uint64_t *)at) ? NULL : "a whole number";
    case DTYPE:
        return dtype_find(text, (enum dtype *)at) ? NULL : "f32, f16 or bf16";
    case OP:
        return op_find(text, (enum op *)at) ? NULL : "an operation like softmax, logsoftmax "
                                                        "or attention";
    case DEVICE:
        *(int *)at = 1;
        return strcmp(text, "cpu") ? "cpu" : NULL;
    }
    return NULL;
}

/* What must be given together, and what cannot be. */
static int validate_run(const struct stage *stage, const struct options *opt)
{
    int softmax = opt->x || opt->y || opt->log;
    int attention = opt->q || opt->k || opt->v || opt->o || opt->lse || opt->bias ||
                    opt->causal || opt->has_scale || opt->has_window || opt->softcap != 0 ||
                    opt->sinks || opt->cu_seqlens_q || opt->cu_seqlens_k;
    if (softmax && attention)
        return complain(stage, "run: --x, --y, --log (softmax) cannot go with --q, --k, --v, "
                               "--o, --lse, --bias, --causal, --scale, --window, --softcap, "
                               "--sinks, --cu-seqlens-q, --cu-seqlens-k (attention)");
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
    if (!opt->cu_seqlens_q != !opt->cu_seqlens_k)
        return complain(stage, "run: --cu-seqlens-%s is missing: packed sequences need both "
                               "--cu-seqlens-q and --cu-seqlens-k",
                        opt->cu_seqlens_q ? "k" : "q");
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

/* --gpus, and what goes with it alone. */
static int validate_gpus(const struct stage *stage, const struct options *opt)
{
    if (opt->gpus && !stage->on_gpus)
        return complain(stage, "--gpus: %s", stage->strategies
                        ? "mpirun -n says how many processes there are" : "stage 5 takes it");
    if (opt->gpus > 64) return complain(stage, "--gpus: give 1 to 64");
    if (opt->gpus && opt->variant)
        return complain(stage, "--variant: cannot go with --gpus, which takes the last rung");
    if (!opt->gpus && stage->on_gpus && opt->strategy)
        return complain(stage, "--strategy: goes with --gpus N");
    if (opt->timeline && !opt->gpus && (stage->on_gpus || stage->number != 5))
        return complain(stage, "--timeline: several GPUs write it; stage 5 takes --gpus N");
    return 0;
}

/* Is the strategy one of the stage's, and has it any? */
static int validate_strategy(const struct stage *stage, const struct options *opt)
{
    char names[256] = "";
    if (!opt->strategy) return 0;
    if (!stage->strategies)
        return complain(stage, "--strategy: this program is one process; the programs of "
                               "several ranks take it");
    for (size_t i = 0; stage->strategies[i]; i++) {
        if (!strcmp(stage->strategies[i], opt->strategy)) return 0;
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", stage->strategies[i]);
    }
    return complain(stage, "--strategy: no strategy '%s'; there are %s", opt->strategy, names);
}

static int parse_option(int argc, char **argv, int *i, const struct verb *verb,
                        const struct stage *stage, struct options *opt,
                        unsigned char *seen)
{
    const char *name = argv[*i], *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    for (int k = 0; k < N_OPTIONS; k++) {
        const struct option *o = &table[k];
        if (strlen(o->name) != length || strncmp(o->name, name, length)) continue;
        if (!(o->verbs & verb->bit))
            return complain(stage, "%s: not an option of %s", o->name, verb->name);
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

int options_parse(int argc, char **argv, const struct verb *verb, const struct stage *stage,
                  struct options *opt)
{
    unsigned char seen[N_OPTIONS] = {0};
    *opt = (struct options){0};
    for (int i = 0; i < argc; i++) {
        opt->help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
        opt->version = !strcmp(argv[i], "--version");
        if (opt->help || opt->version) return 0;
        int status = parse_option(argc, argv, &i, verb, stage, opt, seen);
        if (status) return status;
    }
    int status = validate_variant(stage, opt);
    if (!status) status = validate_strategy(stage, opt);
    if (!status) status = validate_gpus(stage, opt);
    if (!status && verb->bit == IN_RUN) status = validate_run(stage, opt);
    return status;
}
