/* check.cu: the case suite on several GPUs: each strategy against the same reference and rule of
 * acceptance as one GPU.  Every process draws the same inputs and takes its own part of them. */
#include <string.h>

extern "C" {
#include "problem/operation.h"
#include "problem/variant.h"
#include "verification/check_variant.h"
#include "verification/outputs.h"
}

#include <vector>

#include "part.h"
#include "verbs.h"

struct tally { size_t passed, failed, skipped; };

/* Rows of all ranks into the outputs of process 0. */
static void gather(struct team *t, const struct outputs *out)
{
    const struct problem *p = &t->p;
    int ranks = is_tree(t->strategy) ? 1 : t->world->ranks;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < CHUNKS * p->batch * p->heads_q; i++) {
            struct chunks queries = queries_of(t->strategy, p, r, t->world->ranks);
            struct key_range rows = queries.at[i % CHUNKS];
            size_t n = range_size(rows), first = i / CHUNKS * p->seqlen_q + rows.first;
            std::vector<float> o(n * p->head_dim_v);
            shard_fetch(t, r, i / CHUNKS, (int)(i % CHUNKS), o.data(),
                        (float *)out->array[ARRAY_LSE].data + first);
            for (size_t k = 0; k < o.size(); k++)
                dtypes[p->dtype].store(out->array[ARRAY_O].data, first * p->head_dim_v + k, o[k]);
        }
}

static void print_failure(const struct team *t, const struct test_case *c,
                          const struct verdict *v)
{
    char index[80];
    verdict_index(v, index, sizeof index);
    printf("FAILED   %s  %s  %s  %d GPUs\n    %s%s: %s\n    got %.9g  want %.9g  error %.3g  "
           "allowed %.3g\n", strategy_names[t->strategy], c->name, dtype_name(t->p.dtype),
           t->world->ranks, v->array, index, v->reason, v->got, v->want, v->err, v->allowed);
}

/* The result on this team: 1 right, 0 wrong.  The answer of process 0 counts. */
static int is_right(struct team *t, const struct prepared *p)
{
    struct outputs out = outputs_new(&p->inputs->problem);
    shards_cut(t, &p->inputs->arrays);
    team_attention(t);
    team_wait(t);
    gather(t, &out);
    int ok = 1;
    if (t->world->first == 0) {
        struct verdict v = compare(p->standard, &out);
        ok = v.ok;
        if (!ok) print_failure(t, p->test_case, &v);
    }
    outputs_free(&out);
    world_share(&ok, sizeof ok);
    return ok;
}

/* Why the GPUs cannot share a problem, or NULL: arrays with strides are not cut into shards. */
static const char *team_refuses(const struct problem *p)
{
    struct variant shared = tuned_cuda;
    shared.supports &= ~WITH_STRIDES;
    return variant_refuses(&shared, p);
}

/* One case in one type under every strategy that is wanted.  0, or a status that ends it all. */
static int check_case(struct team *t, const struct test_case *c, enum dtype dtype,
                      const struct options *opt, struct tally tally[N_STRATEGIES])
{
    struct prepared p = prepare(c, dtype, test_case_seed(c));
    const char *why = team_refuses(&p.inputs->problem);
    if (!why) why = not_promised(&tuned_cuda, &p);
    int status = OK;
    for (int s = 0; s < N_STRATEGIES && !status; s++) {
        if (!is_wanted(opt, (enum strategy)s)) continue;
        tally[s].skipped += why != NULL;
        if (why) continue;
        status = world_agree(t->world, shards_new(t, &p.inputs->problem, (enum strategy)s),
                             FAILED);
        int ok = !status && is_right(t, &p);
        tally[s].passed += ok;
        tally[s].failed += !ok;
        shards_free(t);
    }
    prepared_free(&p);
    return status;
}

static bool is_chosen(const struct options *opt, const struct test_case *c, enum dtype dtype)
{
    if (c->problem.op != OP_ATTENTION || !c->halves || dtype == F32) return false;
    if (opt->has_dtype && opt->dtype != dtype) return false;
    if (opt->only_case) return !strcmp(opt->only_case, c->name);
    return c->quick || !opt->quick;
}

int check_on_gpus(struct team *t, const struct options *opt)
{
    size_t n, passed = 0, failed = 0;
    struct tally tally[N_STRATEGIES] = {};
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++)
        for (int d = 0; d < N_DTYPES; d++)
            if (is_chosen(opt, &c[i], (enum dtype)d) &&
                check_case(t, &c[i], (enum dtype)d, opt, tally))
                return FAILED;
    for (int s = 0; s < N_STRATEGIES; s++) {
        if (is_wanted(opt, (enum strategy)s) && t->world->first == 0)
            printf("%-16s %zu passed, %zu failed, %zu skipped\n", strategy_names[s],
                   tally[s].passed, tally[s].failed, tally[s].skipped);
        passed += tally[s].passed;
        failed += tally[s].failed;
    }
    if (t->world->first == 0)
        printf("%s on %d GPU%s: %zu checks passed, %zu failed\n", t->world->stage->name,
               t->world->ranks, t->world->ranks == 1 ? "" : "s", passed, failed);
    return failed ? FAILED : passed ? OK : SKIPPED;
}
