/* parse.c: the options of a stage program. */
#include "program/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/operation.h"
#include "program/complain.h"

enum { OF_RANKS = 1 << 8 };

enum kind { FLAG, TEXT, COUNT, NUMBER, POSITIVE, WINDOW, SEED, DTYPE, EIGHT_BITS, OP, DEVICE };

/* One option: its value as the help shows it, which verbs take it and where its value goes. */
struct option {
    const char *name;      /* without its two dashes */
    const char *value;     /* NULL: it has none */
    unsigned verbs;
    enum kind kind;
    size_t offset, given;  /* offsets into struct options; given: SIZE_MAX or a flag's */
};

#define AT(field) offsetof(struct options, field)
#define SCORE(field) offsetof(struct options, score.field)
#define NO_FLAG ((size_t)-1)

#define OPTION(name, value, verbs, kind, field, given, word, how) \
    {name, value, verbs, kind, SCORE(field), given},

static const struct option table[] = {
    {"variant", "V", COMPUTES, TEXT, AT(variant), NO_FLAG},
    {"quick", NULL, IN_CHECK | IN_BENCH, FLAG, AT(quick), NO_FLAG},
    {"verbose", NULL, IN_CHECK, FLAG, AT(verbose), NO_FLAG},
    {"seed", "S", IN_CHECK | IN_RUN, SEED, AT(seed), AT(has_seed)},
    {"case", "NAME", IN_CHECK, TEXT, AT(only_case), NO_FLAG},
    {"random", "N", IN_CHECK, COUNT, AT(random), NO_FLAG},
    {"csv", "FILE", IN_BENCH | IN_LIST, TEXT, AT(csv), NO_FLAG},
    {"columns", NULL, IN_LIST, FLAG, AT(columns), NO_FLAG},
    {"dtype", "T", COMPUTES, DTYPE, AT(dtype), AT(has_dtype)},
    {"kv-dtype", "T", COMPUTES, EIGHT_BITS, AT(cache), NO_FLAG},
    {"threads", "N", COMPUTES, COUNT, AT(threads), NO_FLAG},
    {"device", "cpu", COMPUTES | IN_LIST, DEVICE, AT(on_cpu), NO_FLAG},
    {"log", NULL, IN_RUN, FLAG, AT(log), NO_FLAG},
    SCORE_OPTIONS(OPTION)
    {"gpus", "N", COMPUTES | OF_RANKS, COUNT, AT(gpus), NO_FLAG},
    {"strategy", "S", COMPUTES | OF_RANKS, TEXT, AT(strategy), NO_FLAG},
    {"row", "3,2,5,1", IN_TRACE, TEXT, AT(row), NO_FLAG},
    {"op", "O", IN_BENCH | IN_CHECK | IN_RUN, OP, AT(op), AT(has_op)},
    {"rows", "N", IN_BENCH, COUNT, AT(rows), NO_FLAG},
    {"cols", "N", IN_BENCH, COUNT, AT(cols), NO_FLAG},
    {"batch", "N", IN_BENCH, COUNT, AT(batch), NO_FLAG},
    {"heads-q", "N", IN_BENCH, COUNT, AT(heads_q), NO_FLAG},
    {"heads-kv", "N", IN_BENCH, COUNT, AT(heads_kv), NO_FLAG},
    {"seqlen-q", "N", IN_BENCH, COUNT, AT(seqlen_q), NO_FLAG},
    {"seqlen-k", "N", IN_BENCH, COUNT, AT(seqlen_k), NO_FLAG},
    {"head-dim", "N", IN_BENCH, COUNT, AT(head_dim), NO_FLAG},
    {"head-dim-v", "N", IN_BENCH, COUNT, AT(head_dim_v), NO_FLAG},
};
enum { N_FIXED = sizeof table / sizeof table[0], N_OPTIONS = N_FIXED + N_ARRAYS };

/* Option k: of the table, then one for the file of each array, "q". */
static struct option option_at(int k)
{
    struct option file = {NULL, "FILE", IN_RUN, TEXT, AT(file), NO_FLAG};
    if (k < N_FIXED) return table[k];
    file.name = array_list[k - N_FIXED].name;
    file.offset += (size_t)(k - N_FIXED) * sizeof(const char *);
    for (int op = 0; op < N_OPS; op++)
        if (operations[op].files & HAS(k - N_FIXED)) return file;
    file.name = "";
    return file;
}

/* A whole number from `least` to 2^40, nothing before it, the character `last` behind it; returns where
 * that stands, or NULL. */
static const char *parse_whole(const char *text, char last, long long least, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    int starts = isdigit((unsigned char)text[0]) || text[0] == '-';
    return starts && *end == last && !errno && *value >= least && *value <= 1ll << 40 ? end : NULL;
}

/* Both sides, -1 for no limit; in struct problem the right one follows the left one. */
static int parse_window(const char *text, ptrdiff_t sides[2])
{
    long long left, right;
    const char *comma = parse_whole(text, ',', -1, &left);
    if (!comma || !parse_whole(comma + 1, 0, -1, &right)) return 0;
    sides[0] = left, sides[1] = right;
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

/* Stores the value of one option; returns 0 or what a right value looks like. */
static const char *store(const struct option *o, const char *text, struct options *opt)
{
    char *at = (char *)opt + o->offset;
    long long count;
    switch (o->kind) {
    case FLAG:
        *(int *)at = 1;
        return NULL;
    case TEXT:
        *(const char **)at = text;
        return *text ? NULL : "a name";
    case COUNT:
        if (!parse_whole(text, 0, 1, &count)) return "a whole number from 1";
        if (o->offset == AT(threads) && count > 4096) return "a whole number from 1 to 4096";
        *(size_t *)at = (size_t)count;
        return NULL;
    case NUMBER:
        return parse_number(text, (float *)at) ? NULL : "a finite number";
    case POSITIVE:
        return parse_number(text, (float *)at) && *(float *)at > 0
                   ? NULL : "a finite number above 0";
    case WINDOW:
        return parse_window(text, (ptrdiff_t *)at)
                   ? NULL : "L,R: keys to the left and to the right, -1 for no limit";
    case SEED:
        return parse_seed(text, (uint64_t *)at) ? NULL : "a whole number";
    case DTYPE:
        return dtype_find(text, (enum dtype *)at) ? NULL : "f32, f16, bf16, e4m3 or int8";
    case EIGHT_BITS:
        return dtype_find(text, (enum dtype *)at) && dtype_size(*(enum dtype *)at) == 1
                   ? NULL : "e4m3 or int8";
    case OP:
        return op_find(text, (enum op *)at) ? NULL : "an operation like softmax, logsoftmax "
                                                        "or attention";
    case DEVICE:
        *(int *)at = 1;
        return strcmp(text, "cpu") ? "cpu" : NULL;
    }
    return NULL;
}

enum op run_operation(const struct options *opt)
{
    int on_rows = opt->file[ARRAY_X] || opt->file[ARRAY_Y] || (opt->log && !opt->file[ARRAY_Q]);
    enum op op = opt->has_op ? opt->op : on_rows ? OP_SOFTMAX
                 : opt->file[ARRAY_DO] ? OP_BACKWARD : OP_ATTENTION;
    return op == OP_SOFTMAX && opt->log ? OP_LOGSOFTMAX : op;
}

/* Does `run` of op take option k? */
static int is_of(enum op op, int k)
{
    size_t at = option_at(k).offset;
    if (k >= N_FIXED) return (operations[op].files & HAS(k - N_FIXED)) != 0;
    if (at == AT(log)) return op == OP_LOGSOFTMAX;
    int of_score = at >= AT(score) && at < AT(score) + sizeof(struct problem);
    return !of_score || operations[op].family == ON_HEADS;
}

/* What must be given together, and what cannot be. */
static int validate_run(const struct stage *stage, const struct options *opt,
                        const unsigned char *seen)
{
    enum op op = run_operation(opt);
    int asks = opt->has_op;
    if (!operations[op].files)
        return complain(stage, "--op: run does not do %s", op_name(op));
    for (int k = 0; k < N_OPTIONS; k++) {
        if (seen[k] && !is_of(op, k))
            return complain(stage, "run: --%s cannot go with %s (%s)", option_at(k).name,
                            operations[op].family == ON_ROWS ? "--x and --y"
                            : "--q, --k and --v", op_name(op));
        asks |= seen[k] && !(is_of(OP_ATTENTION, k) && is_of(OP_SOFTMAX, k));
    }
    if (!asks)
        return complain(stage, "run: give --x and --y (softmax) or --q, --k, --v and --o "
                        "(attention)");
    for (int i = 0; i < N_ARRAYS; i++)
        if (files_needed(op) & HAS(i) && !opt->file[i])
            return complain(stage, "run: --%s is missing: name a .npy file", array_list[i].name);
    if (opt->file[ARRAY_DSINKS] && !opt->file[ARRAY_SINKS])
        return complain(stage, "run: --sinks is missing: --dsinks is the gradient of sinks");
    if (opt->file[ARRAY_DBIAS] && !opt->file[ARRAY_BIAS])
        return complain(stage, "run: --bias is missing: --dbias is the gradient of a bias");
    if (!opt->file[ARRAY_CU_SEQLENS_Q] != !opt->file[ARRAY_CU_SEQLENS_K])
        return complain(stage, "run: --cu-seqlens-%s is missing: packed sequences need both "
                               "--cu-seqlens-q and --cu-seqlens-k",
                        opt->file[ARRAY_CU_SEQLENS_Q] ? "k" : "q");
    return 0;
}

/* Is `given` one of the names, which NULL ends?  what: "variant", as in --variant */
static int validate_name(const struct stage *stage, const char *what, const char *given,
                         const char *const *names)
{
    char all[1024] = "";
    size_t n = 0, i = 0;
    for (; names[i] && strcmp(names[i], given); i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", names[i]);
    if (names[i]) return 0;
    return complain(stage, "--%s: no %s '%s'; there are %s", what, what, given, all);
}

static int validate_names(const struct stage *stage, const struct options *opt)
{
    const char *names[128] = {0};
    size_t n = 0;
    if (opt->strategy && !stage->strategies)
        return complain(stage, "--strategy: this program is one process; the programs of "
                               "several ranks take it");
    for (; opt->strategy && stage->strategies[n].name; n++) names[n] = stage->strategies[n].name;
    if (opt->strategy && validate_name(stage, "strategy", opt->strategy, names)) return 2;
    for (n = 0; stage->variants[n]; n++) names[n] = stage->variants[n]->name;
    names[n] = NULL;
    return opt->variant ? validate_name(stage, "variant", opt->variant, names) : 0;
}

/* --gpus, and what goes with it alone. */
static int validate_gpus(const struct stage *stage, const struct options *opt)
{
    int takes_gpus = stage->on_ranks && !stage->ranks;
    if (opt->gpus && !takes_gpus)
        return complain(stage, "--gpus: %s", stage->ranks
                        ? "mpirun -n says how many processes there are" : "stage 5 takes it");
    if (opt->gpus > 64) return complain(stage, "--gpus: give 1 to 64");
    if (opt->gpus && opt->variant)
        return complain(stage, "--variant: cannot go with --gpus, which takes the last rung");
    if (!opt->gpus && takes_gpus && opt->strategy)
        return complain(stage, "--strategy: goes with --gpus N");
    return 0;
}

static int parse_option(int argc, char **argv, int *i, const struct verb *verb,
                        const struct stage *stage, struct options *opt,
                        unsigned char *seen)
{
    const char *name = argv[*i], *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    for (int k = 0; length > 2 && !strncmp(name, "--", 2) && k < N_OPTIONS; k++) {
        struct option found = option_at(k), *o = &found;
        if (strlen(o->name) != length - 2 || strncmp(o->name, name + 2, length - 2)) continue;
        if (!(o->verbs & verb->bit))
            return complain(stage, "--%s: not an option of %s", o->name, verb->name);
        if (seen[k]++) return complain(stage, "--%s is given twice; give it once", o->name);
        const char *value = "";
        if (o->kind == FLAG) {
            if (equals) return complain(stage, "--%s takes no value", o->name);
        } else if (equals) {
            value = equals + 1;
        } else if (++*i < argc) {
            value = argv[*i];
        } else {
            return complain(stage, "--%s: its value is missing", o->name);
        }
        const char *right = store(o, value, opt);
        if (right) return complain(stage, "--%s: '%s' is not %s", o->name, value, right);
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
    int status = validate_names(stage, opt);
    if (!status) status = validate_gpus(stage, opt);
    if (!status && verb->bit == IN_RUN) status = validate_run(stage, opt, seen);
    return status;
}

const char *options_sizes(const struct options *opt)
{
    static char text[160];
    size_t n = 0;
    for (int k = 0; k < N_FIXED; k++)
        if (table[k].offset >= AT(rows) && *(const size_t *)((const char *)opt + table[k].offset))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s--%s", n ? ", " : "", table[k].name);
    return text;
}

void options_help(const struct stage *stage, const struct verb *verb)
{
    enum { INDENT = 7, WIDTH = 90 };
    int column = WIDTH;
    for (int k = 0; k < N_OPTIONS; k++) {
        char text[64];
        const struct option o = option_at(k);
        int is_hidden = (o.verbs & OF_RANKS && !stage->on_ranks) ||
                        (o.offset == AT(gpus) && stage->ranks);
        if (!(o.verbs & verb->bit) || !*o.name || is_hidden) continue;
        int n = snprintf(text, sizeof text, o.value ? "[--%s %s]" : "[--%s]", o.name, o.value);
        if (column + 1 + n > WIDTH) column = printf("\n%*s", INDENT, "") - 1;
        else column += printf(" ");
        column += printf("%s", text);
    }
    printf("\n");
}
