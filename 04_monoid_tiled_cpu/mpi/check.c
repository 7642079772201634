/* check.c: the case suite on several ranks, each strategy against the reference. */
#include <stdio.h>
#include <string.h>

#include "problem/feature.h"
#include "program.h"
#include "shard.h"
#include "verification/cases.h"
#include "verification/compare.h"
#include "verification/standard.h"

/* One case under one strategy: 1 right, 0 wrong (told), -1 not possible. */
static int check_case(const struct team *t, const struct test_case *c, enum strategy s)
{
    struct inputs *in = inputs_new(c, F32, test_case_seed(c));
    struct shard w;
    const char *why = shard_new(&w, &in->problem, s, t->comm);
    struct outputs out = outputs_new(&in->problem);
    int ok = -1;
    if (!why) {
        shard_cut(&w, s, &in->arrays);
        why = shard_attention(&w, s);
        shard_gather(&w, s, out.array[ARRAY_O].data, out.array[ARRAY_LSE].data);
    }
    char text[512];
    if (ranks_complain(why, text, sizeof text, t->comm)) {
        if (t->me == 0) printf("not run  %s  %s: %s\n", strategy_names[s], c->name, text);
    } else if (t->me == 0) {
        struct standard *standard = standard_new(&in->problem, &in->arrays);
        struct verdict v = compare(standard, &out);
        char index[80];
        verdict_index(&v, index, sizeof index);
        ok = v.ok;
        if (!ok)
            printf("FAILED   %s  %s  %d ranks\n    %s%s: %s\n    got %.9g  want %.9g  error "
                   "%.3g  allowed %.3g\n", strategy_names[s], c->name, t->ranks, v.array, index,
                   v.reason, v.got, v.want, v.err, v.allowed);
        standard_free(standard);
    }
    MPI_Bcast(&ok, 1, MPI_INT, 0, t->comm);
    outputs_free(&out);
    shard_free(&w);
    inputs_free(in);
    return ok;
}

int check_ranks(const struct team *t)
{
    size_t n, total = 0, wrong = 0;
    const struct test_case *c = test_cases(&n);
    for (int s = 0; s < N_STRATEGIES; s++) {
        size_t passed = 0, failed = 0, skipped = 0;
        if (!wanted(t->opt, (enum strategy)s)) continue;
        for (size_t i = 0; i < n; i++) {
            if (c[i].problem.op != OP_ATTENTION || c[i].only_gpu) continue;
            if (problem_features(&c[i].problem) & ~(unsigned)RANK_FEATURES) continue;
            if (t->opt->only_case ? strcmp(t->opt->only_case, c[i].name)
                                  : t->opt->quick && !c[i].quick)
                continue;
            int ok = check_case(t, &c[i], (enum strategy)s);
            passed += ok == 1, failed += ok == 0, skipped += ok < 0;
        }
        if (t->me == 0)
            printf("%-16s %zu passed, %zu failed, %zu skipped\n", strategy_names[s], passed,
                   failed, skipped);
        total += passed, wrong += failed;
    }
    if (t->me == 0)
        printf("%s on %d rank%s: %zu checks passed, %zu failed\n", mpi_stage.name, t->ranks,
               t->ranks == 1 ? "" : "s", total, wrong);
    return wrong ? FAILED : total ? OK : SKIPPED;
}
