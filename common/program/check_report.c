/* check_report.c: the lines that the verb check prints. */
#include "program/check_report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "measurement/timing.h"
#include "problem/variant.h"
#include "program/complain.h"
#include "program/verbs.h"

void progress(struct run *run, size_t i, size_t n, const char *name)
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

void progress_end(void)
{
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

void print_failure(const struct run *run, const struct variant *v, const struct prepared *p,
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
    if (run->opt->random)
        printf(
            "    build/%s check --random 1 --op %s --variant %s --dtype %s --seed %llu\n",
            name, op_name(p->test_case->problem.op), v->name, dtype,
            (unsigned long long)p->seed);
    else
        printf("    build/%s check --case %s --variant %s --dtype %s --seed %llu\n", name,
               p->test_case->name, v->name, dtype, (unsigned long long)p->seed);
    fflush(stdout);
}

static void print_tally(const struct entry *e, enum op op)
{
    const struct tally *t = &e->ops[op];
    char types[16];
    dtype_names(t->types, types, sizeof types);
    printf("%-18s  %-20s  %-12s  %6zu  %6zu  %7zu", e->v->name, op_name(op), types,
           t->passed, t->failed, t->skipped);
    if (t->worst_case[0]) printf("  %5.2f", t->worst);
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
            printf("%-18s  %-20s  %-12s  %6s  %6s  %7s  %s\n", heading, "operation",
                   "types", "passed", "failed", "skipped", "error/allowed");
        if (e->unavailable[0]) printf("%-18s  not run: %s\n", e->v->name, e->unavailable);
        for (int op = 0; op < N_OPS; op++) {
            const struct tally *t = &e->ops[op];
            if (t->passed || t->failed || t->skipped) print_tally(e, (enum op)op);
        }
    }
}

/* The largest error / allowed of all that passed, and where. */
static void print_worst(const struct run *run)
{
    const struct tally *worst = NULL;
    const char *name = "";
    for (size_t i = 0; i < run->n_entries; i++)
        for (int op = 0; op < N_OPS; op++) {
            const struct tally *t = &run->entries[i].ops[op];
            if (!t->worst_case[0] || (worst && t->worst <= worst->worst)) continue;
            worst = t;
            name = run->entries[i].v->name;
        }
    if (worst)
        printf("largest error / allowed: %.2f, variant %s\n    case %s in %s\n",
               worst->worst, name, worst->worst_case, dtype_name(worst->worst_dtype));
}

static void print_table(const struct run *run)
{
    for (int g = 0; g < N_GROUPS; g++) print_group(run, (enum group)g);
    print_worst(run);
}

int conclude(const struct run *run)
{
    size_t passed = 0, failed = 0, skipped = 0, absent = 0;
    const char *why = "no case fits";
    int on_cpu = 0, all = 0;
    print_table(run);
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
    if (absent) printf("; %zu of %zu variants were not run", absent, run->n_entries);
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
