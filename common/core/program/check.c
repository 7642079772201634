/* check.c: the verb check: every variant of a stage on every case. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "measurement/timing.h"
#include "problem/choice.h"
#include "problem/variant.h"
#include "program/complain.h"
#include "program/options.h"
#include "verification/check_variant.h"

enum { MOST_VARIANTS = 64 };

struct tally {
    size_t passed, failed, skipped;
    double worst;            /* largest err / allowed of the passed */
    unsigned types;          /* checked in these */
};

struct entry {
    const struct variant *v;   /* as it runs here */
    char unavailable[200];     /* why it cannot, or "" */
    struct tally ops[N_OPS];
};

struct run {
    const struct stage *stage;
    const struct options *opt;
    struct entry entries[MOST_VARIANTS];
    size_t n_entries, n_failed, n_cases;
    double started, reported;
};

/* --- What is printed. --- */

/* On a terminal a line that is overwritten, else a plain line every ten seconds: case i of n. */
static void progress(struct run *run, size_t i, size_t n, const char *name)
{
    double t = seconds_now();
    int terminal = isatty(STDERR_FILENO);
    if (!complains() || t - run->reported < (terminal ? 0.1 : 10)) return;
    run->reported = t;
    if (terminal) fprintf(stderr, "\r\033[Kchecking %zu/%zu  %s", i, n, name);
    else fprintf(stderr, "checking %s: case %zu of %zu, %.0f s\n", run->stage->name, i, n,
                 t - run->started);
    fflush(stderr);
}

static void progress_end(void)
{
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

/* One failure: where, got and want, and the command that shows it again. */
static void print_failure(const struct run *run, const struct variant *v, const struct prepared *p,
                   const struct verdict *verdict)
{
    char index[80];
    const char *name = run->stage->name, *dtype = dtype_name(p->inputs->problem.dtype);
    verdict_index(verdict, index, sizeof index);
    progress_end();
    printf("FAILED   %s  %s  %s\n", v->name, p->test_case->name, dtype);
    if (run->n_failed > 1 && !run->opt->verbose) return;
    printf("    %s%s: %s\n", verdict->array, index, verdict->reason);
    printf("    got %.9g  want %.9g  error %.3g  allowed %.3g\n", verdict->got,
           verdict->want, verdict->err, verdict->allowed);
    printf("    seed %llu; to see it again:\n", (unsigned long long)p->seed);
    printf("    build/%s check %s %s --variant %s --dtype %s --seed %llu\n", name,
           run->opt->random ? "--random 1 --op" : "--case",
           run->opt->random ? op_name(p->test_case->problem.op) : p->test_case->name, v->name,
           dtype, (unsigned long long)p->seed);
    fflush(stdout);
}

static void print_tally(const struct entry *e, enum op op)
{
    const struct tally *t = &e->ops[op];
    char types[32];
    dtype_names(t->types, types, sizeof types);
    printf("%-23s  %-20s  %-12s  %6zu  %6zu  %7zu", e->v->name, op_name(op), types,
           t->passed, t->failed, t->skipped);
    if (t->passed) printf("  %5.2f", t->worst);
    printf("\n");
}

static void print_group(const struct run *run, enum group group)
{
    int lines = 0;
    for (size_t i = 0; i < run->n_entries; i++) {
        const struct entry *e = &run->entries[i];
        if (e->v->group != group) continue;
        char heading[40];
        snprintf(heading, sizeof heading, "# %s", group_name(group));
        if (!lines++)
            printf("%-23s  %-20s  %-12s  %6s  %6s  %7s  %s\n", heading, "operation",
                   "types", "passed", "failed", "skipped", "error/allowed");
        if (e->unavailable[0]) printf("%-23s  not run: %s\n", e->v->name, e->unavailable);
        for (int op = 0; op < N_OPS; op++) {
            const struct tally *t = &e->ops[op];
            if (t->passed || t->failed || t->skipped) print_tally(e, (enum op)op);
        }
    }
}

/* The table of all variants and the counts.  Returns the exit status. */
static int conclude(const struct run *run)
{
    size_t passed = 0, failed = 0, skipped = 0, absent = 0;
    const char *why = "no case fits";
    int on_cpu = 0, all = 0;
    for (int g = 0; g < N_GROUPS; g++) print_group(run, (enum group)g);
    for (size_t i = 0; i < run->n_entries; i++) {
        const struct entry *e = &run->entries[i];
        if (e->unavailable[0]) {
            absent++;
            why = e->unavailable;
        } else if (e->v->device == GPU_ON_CPU) {
            on_cpu = 1;
            all |= e->v->only_arch && !run->opt->quick;
        }
        for (int op = 0; op < N_OPS; op++) {
            passed += e->ops[op].passed;
            failed += e->ops[op].failed;
            skipped += e->ops[op].skipped;
        }
    }
    if (on_cpu)
        printf("CUDA kernels were executed on the CPU%s\n",
               all ? "" : ", on the small cases only");
    printf("%s: %zu case%s in %.1f s", run->stage->name, run->n_cases,
           run->n_cases == 1 ? "" : "s", seconds_now() - run->started);
    if (absent)
        printf("; %zu of %zu variants %s not run", absent, run->n_entries,
               absent == 1 ? "was" : "were");
    if (!passed && !failed)
        printf("; nothing was checked: %s",
               skipped ? "what was asked for is not promised or not supported" : why);
    printf("\n");
    if (run->stage->ranks) printf("%s on %s: ", run->stage->name, run->stage->ranks);
    printf("%zu checks passed, %zu failed", passed, failed);
    if (!run->stage->ranks) printf(", %zu skipped", skipped);
    printf("\n");
    return failed ? 1 : passed ? 0 : 77;
}

/* --- What is checked. --- */

/* Is entry e to be tried on c in this type at all? */
static int is_candidate(const struct run *run, const struct entry *e,
                        const struct test_case *c, enum dtype dtype)
{
    if (e->unavailable[0] || !variant_does(e->v, c->problem.op)) return 0;
    if (!(e->v->types & TYPE(dtype))) return 0;
    /* of an aside on the CPU: its reference takes longer than itself */
    if (dtype_size(dtype) == 1 && e->v->device == ON_CPU && !c->quick && !run->opt->only_case) return 0;
    if (c->problem.cache && !(e->v->supports & WITH_EIGHT_BITS)) return 0;
    if (c->only_gpu && e->v->device != ON_GPU && !e->v->least_arch && !run->opt->only_case) return 0;
    if (e->v->device != GPU_ON_CPU || c->executed || run->opt->only_case) return 1;
    /* A kernel for one architecture: it was named, and needs larger cases to fill its tiles. */
    return e->v->only_arch && !run->opt->quick &&
           c->problem.batch * c->problem.heads_q < 1000;
}

static void check_entry(struct run *run, struct entry *e, const struct prepared *p)
{
    const struct test_case *c = p->test_case;
    const struct problem *problem = &p->inputs->problem;
    struct tally *t = &e->ops[problem->op];
    const char *why = variant_refuses(e->v, problem), *could_not = NULL;
    if (!why) why = not_promised(e->v, p);
    struct verdict verdict = {0};
    if (!why) {
        /* The parts of several ranks may be merged in any order, too. */
        int repeat = c->quick && !run->stage->ranks && !e->v->in_any_order &&
                     (c->recipe == RANDOM || c->recipe == ASCENDING);
        verdict = check_variant(e->v, p, repeat, &could_not);
        why = could_not;
    }
    if (why) {
        t->skipped++;
        if (run->opt->verbose || run->opt->only_case)
            printf("skipped  %s  %s  %s: %s\n", e->v->name, c->name,
                   problem_types(problem), why);
        return;
    }
    t->types |= TYPE(problem->dtype);
    if (!verdict.ok) {
        t->failed++;
        run->n_failed++;
        print_failure(run, e->v, p, &verdict);
        return;
    }
    t->passed++;
    if (run->opt->verbose)
        printf("passed   %s  %s  %s  %.2f\n", e->v->name, c->name,
               problem_types(problem), verdict.worst);
    if (verdict.worst > t->worst) t->worst = verdict.worst;
}

static void check_case(struct run *run, const struct test_case *c, uint64_t seed)
{
    int checked = 0;
    for (int d = 0; d < N_DTYPES; d++) {
        enum dtype dtype = (enum dtype)d;
        int wanted = 0;
        if (run->opt->has_dtype && dtype != run->opt->dtype) continue;
        if (dtypes[dtype].roundoff > 0 && !c->halves) continue;
        if (run->opt->cache && c->problem.cache != run->opt->cache) continue;
        if (c->problem.cache && (dtype == E4M3 || dtype == c->problem.cache)) continue;
        for (size_t i = 0; i < run->n_entries; i++)
            wanted |= is_candidate(run, &run->entries[i], c, dtype);
        if (!wanted) continue;
        checked = 1;
        struct prepared p = prepare(c, dtype, seed);
        for (size_t i = 0; i < run->n_entries; i++)
            if (is_candidate(run, &run->entries[i], c, dtype))
                check_entry(run, &run->entries[i], &p);
        prepared_free(&p);
    }
    run->n_cases += checked;
}

/* Fills run->entries. */
static void choose_variants(struct run *run)
{
    for (size_t i = 0; run->stage->variants[i]; i++) {
        const struct variant *v = run->stage->variants[i];
        if (run->opt->variant && strcmp(v->name, run->opt->variant)) continue;
        if (run->n_entries == MOST_VARIANTS) break;
        struct entry *e = &run->entries[run->n_entries++];
        e->v = variant_here(v);
        const char *why = run->opt->variant ? variant_unavailable(e->v)
                                            : variant_not_by_default(e->v);
        if (why) snprintf(e->unavailable, sizeof e->unavailable, "%s", why);
    }
}

/* The operations that some variant here does, attention four times as often. */
static size_t operations_here(const struct run *run, enum op *ops)
{
    size_t n = 0;
    for (int op = 0; op < N_OPS; op++) {
        int done = 0;
        for (size_t i = 0; i < run->n_entries; i++)
            done |= !run->entries[i].unavailable[0] &&
                    variant_does(run->entries[i].v, (enum op)op);
        if (run->opt->has_op ? op != (int)run->opt->op : !done) continue;
        for (int k = 0; k < (op == OP_ATTENTION ? 4 : 1); k++) ops[n++] = (enum op)op;
    }
    return n;
}

/* Cases drawn at random; case i has the seed of the first plus i. */
static void check_random(struct run *run)
{
    enum op ops[N_OPS + 3];
    size_t n_ops = operations_here(run, ops), n = run->opt->random;
    uint64_t first = run->opt->has_seed ? run->opt->seed : 1;
    for (size_t i = 0; i < n && n_ops; i++) {
        struct test_case c = test_case_draw(ops[(first + i) % n_ops], first + i);
        progress(run, i, n, c.name);
        check_case(run, &c, first + i);
    }
    printf("%zu problems drawn at random, seeds %llu to %llu\n", n,
           (unsigned long long)first, (unsigned long long)(first + n - 1));
}

int check_stage(const struct stage *stage, const struct options *opt)
{
    static struct run run;
    size_t n;
    const struct test_case *c = test_cases(&n);
    double now = seconds_now();
    run = (struct run){.stage = stage, .opt = opt, .started = now, .reported = now};
    if (opt->only_case && !test_case_find(opt->only_case))
        return complain(stage,
                        "--case %s: no such case; check --verbose prints their names",
                        opt->only_case);
    choose_variants(&run);
    if (opt->random) check_random(&run);
    for (size_t i = 0; !opt->random && i < n; i++) {
        if (opt->only_case ? strcmp(opt->only_case, c[i].name) != 0
                           : opt->quick && !c[i].quick)
            continue;
        if (opt->has_op && c[i].problem.op != opt->op) continue;
        progress(&run, i, n, c[i].name);
        check_case(&run, &c[i], opt->has_seed ? opt->seed : test_case_seed(&c[i]));
    }
    progress_end();
    return conclude(&run);
}
