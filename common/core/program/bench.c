/* bench.c: measure the variants of a stage beside what the machine can do at most. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"
#include "measurement/csv.h"
#include "problem/choice.h"
#include "problem/host_memory.h"
#include "problem/variant.h"
#include "program/bench.h"
#include "program/complain.h"
#include "program/options.h"

/* Does the standard list ask for this shape of this variant, and in which type? */
static int wanted(const struct shape *s, const struct variant *v, const struct options *opt,
                  struct problem *p)
{
    unsigned here = v->device == ON_GPU ? GPU : v->device == ON_CPU ? CPU : EXECUTED;
    if (!(s->where & here) || (opt->quick && !(s->where & QUICK))) return 0;
    *p = s->p;
    p->scale = p->head_dim ? 1 / sqrtf((float)p->head_dim) : 1;
    if (opt->has_op) p->op = opt->op;
    if (on_heads(&s->p) != on_heads(p)) return 0;
    p->dtype = s->where & SIXTEEN ? BF16 : F32;
    p->cache = opt->cache;
    if (opt->has_dtype) p->dtype = opt->dtype;
    else if (!(v->types & ALL_TYPES)) p->dtype = v->types & TYPE(E4M3) ? E4M3 : INT8;
    else if (s->where & THIRTYTWO && here != GPU) p->dtype = F32;
    else if (here != GPU && !(v->types & TYPE(p->dtype))) p->dtype = v->types & TYPE(F16) ? F16 : BF16;
    return !variant_refuses(v, p);
}

static int asks_rows(const struct options *opt) { return opt->rows || opt->cols; }

static int asks_heads(const struct options *opt)
{
    return opt->batch || opt->heads_q || opt->heads_kv || opt->seqlen_q || opt->seqlen_k ||
           opt->head_dim || opt->head_dim_v || opt->score.causal;
}

static size_t given_or(size_t given, size_t unless) { return given ? given : unless; }

struct problem bench_heads(const struct options *o, const struct problem *unless)
{
    struct problem p = {.op = OP_ATTENTION, .causal = o->score.causal, .batch = given_or(o->batch, 1)};
    p.heads_q = given_or(o->heads_q, given_or(o->heads_kv, unless->heads_q));
    p.heads_kv = given_or(o->heads_kv, p.heads_q);
    p.seqlen_q = given_or(o->seqlen_q, given_or(o->seqlen_k, unless->seqlen_q));
    p.seqlen_k = given_or(o->seqlen_k, p.seqlen_q);
    p.head_dim = given_or(o->head_dim, unless->head_dim);
    p.head_dim_v = given_or(o->head_dim_v, p.head_dim);
    return p;
}

/* The shape given on the command line, if any. */
static int own_shape(const struct options *opt, struct shape *s)
{
    int rows = asks_rows(opt), heads = asks_heads(opt);
    if (!rows && !heads) return 0;
    const struct problem unless = {.heads_q = 1, .seqlen_q = 1024, .head_dim = 64};
    *s = (struct shape){.where = CPU | GPU | EXECUTED | QUICK};
    if (heads) s->p = bench_heads(opt, &unless);
    if (!rows) return 1;
    s->p.op = OP_SOFTMAX;
    s->p.rows = given_or(opt->rows, 1);
    s->p.cols = given_or(opt->cols, 1);
    return 1;
}

int bench_fits(const struct stage *stage, const struct options *opt, const struct problem *own)
{
    int rows = operations[opt->op].family == ON_ROWS;
    if (opt->has_op && !operations[opt->op].is_benched)
        return complain(stage, "--op: bench measures softmax, logsoftmax, attention or backward, not %s",
                        op_name(opt->op));
    if (asks_rows(opt) && asks_heads(opt))
        return complain(stage, "--rows, --cols (softmax) cannot go with the sizes of "
                        "attention or --causal");
    if (opt->has_op && (rows ? asks_heads(opt) : asks_rows(opt)))
        return complain(stage, "--op: %s takes %s", op_name(opt->op), rows ?
                        "--rows and --cols" : "--seqlen-q, --seqlen-k, --head-dim and so on");
    if (!own) return 0;
    if (on_heads(own) && own->heads_q % own->heads_kv)
        return complain(stage, "--heads-q: %zu is not a multiple of --heads-kv %zu",
                        own->heads_q, own->heads_kv);
    return 0;
}

/* Do the arrays of the shape asked for fit into memory? */
static int fits_memory(const struct stage *stage, const struct options *opt,
                       const struct problem *own)
{
    struct problem p = *own;
    p.dtype = opt->has_dtype ? opt->dtype : F32;
    p.cache = opt->cache;
    size_t room = memory_available() / 16 * 15; /* the rest is for all that is not counted */
    if (problem_bytes(&p) > room)
        return complain(stage, "%s: the arrays need %.3g GB of memory, more than there is",
                        options_sizes(opt), (double)problem_bytes(&p) / 1e9);
    return 0;
}

/* Is there anything to measure?  If not, one line says what the variant does not support. */
static int supported(const struct stage *stage, const struct options *opt,
                     const struct shape *list, size_t n)
{
    struct problem p = {0};
    const char *refusal = NULL;
    for (size_t t = 0; stage->variants[t]; t++) {
        const struct variant *v = variant_here(stage->variants[t]);
        if (opt->variant && strcmp(v->name, opt->variant)) continue;
        for (size_t i = 0; i < n; i++)
            if (wanted(&list[i], v, opt, &p)) return 0;
        if (n == 1) refusal = variant_refuses(v, &p);
    }
    if (!refusal) refusal = opt->has_op ? op_name(opt->op) : "softmax or attention";
    if (!opt->variant)
        return complain(stage, "bench: this stage does not support %s", refusal);
    return complain(stage, "variant %s does not support %s", opt->variant, refusal);
}

/* Measures the shapes of the list that v does; *n_measured counts those that fit. */
static int bench_variant(const struct stage *stage, const struct variant *v,
                         const struct options *opt, const struct shape *list, size_t n,
                         struct csv *csv, size_t *n_measured)
{
    double seconds = opt->quick ? 0.3 : 1, longest = opt->quick ? 0.5 : 2;
    struct pace pace[2] = {{0, 0}, {0, 0}}; /* of softmax, of attention */
    int failed = 0, asked = n == 1;
    for (size_t i = 0; i < n && !failed; i++) {
        struct problem p;
        if (!wanted(&list[i], v, opt, &p)) {
            if (asked) printf("%-23s does not support %s\n", v->name, variant_refuses(v, &p));
            continue;
        }
        struct pace *last = &pace[on_heads(&p)];
        double expected = last->work > 0 ? last->seconds * bench_work(&p) / last->work : 0;
        if (expected > (list[i].where & FAST ? longest / 8 : longest) && !asked) {
            char shape[128];
            bench_describe(&p, shape, sizeof shape);
            printf("%-23s %-46s not measured: one call would take about %.1f s\n", v->name,
                   shape, expected);
            continue;
        }
        int status = bench_measure(stage, v, p, seconds, csv, last);
        failed = status == 1;
        *n_measured += status == 0;
    }
    return failed;
}

/* Without a GPU a stage's kernels are slower than the C code of the stage before: why? */
static void say_executed(const struct variant *v, int *said)
{
    if (v->device != GPU_ON_CPU || (*said)++) return;
    printf("no GPU is used: the CPU executes the CUDA kernels thread by thread, to show that they "
           "are right; their times say nothing of a GPU's\n");
}

/* Every variant in turn; the exit status. */
static int bench_variants(const struct stage *stage, const struct options *opt,
                          const struct shape *list, size_t n, struct csv *csv)
{
    int failed = 0, ran = 0, said = 0;
    size_t n_measured = 0;
    printf("%s on %s%s%s\n", stage->name, machine_name(), gpu_arch() ? " and " : "",
           gpu_arch() ? gpu_name() : "");
    for (size_t i = 0; stage->variants[i] && !failed; i++) {
        const struct variant *v = variant_here(stage->variants[i]);
        if (opt->variant && strcmp(v->name, opt->variant)) continue;
        const char *why = opt->variant ? variant_unavailable(v) : variant_not_by_default(v);
        if (why) {
            printf("%-23s skipped: %s\n", v->name, why);
            continue;
        }
        say_executed(v, &said);
        ran++;
        failed = bench_variant(stage, v, opt, list, n, csv, &n_measured);
    }
    if (failed) return 1;
    if (ran && !n_measured)
        return complain(stage, "bench: nothing was measured: memory is short, or it would "
                        "take too long; give smaller sizes");
    return ran ? 0 : 77;
}

int bench_stage(const struct stage *stage, const struct options *opt)
{
    const char *why = NULL;
    struct shape own;
    int one = own_shape(opt, &own);
    const struct shape *list = one ? &own : bench_shapes;
    size_t n = one ? 1 : n_bench_shapes;
    int status = bench_fits(stage, opt, one ? &own.p : NULL);
    if (!status && one) status = fits_memory(stage, opt, &own.p);
    if (!status) status = supported(stage, opt, list, n);
    if (status) return status;
    struct csv *csv = opt->csv ? csv_open(opt->csv, &why) : NULL;
    if (why) return complain(stage, "--csv: %s: %s", opt->csv, why);
    status = bench_variants(stage, opt, list, n, csv);
    why = csv ? csv_close(csv) : NULL;
    if (why) fprintf(stderr, "%s: --csv: %s: %s\n", stage->name, opt->csv, why);
    return why ? 1 : status;
}
