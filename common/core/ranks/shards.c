/* shards.c: shards are filled, and answers taken out; the strategies as variants of `check` and
 * `run`. */
#include "ranks/shards.h"

#include <stdio.h>
#include <string.h>

#include "problem/host_memory.h"
#include "program/options.h"

enum { SKIPPED = 77 };

struct problem whole;
const struct strategy *strategy;
const float *whole_bias;
const struct kind_of_rank *kind;

static size_t heads_of(enum array which)
{
    return whole.batch * (which == ARRAY_K || which == ARRAY_V ? whole.heads_kv : whole.heads_q);
}

/* Bytes of a row of array `which`. */
static size_t row_of(enum array which)
{
    size_t width = which == ARRAY_LSE ? 1
                   : which == ARRAY_Q || which == ARRAY_K ? whole.head_dim : whole.head_dim_v;
    return width * dtype_size(array_dtype(&whole, which));
}

/* Fills the shards of this process. */
static void fill(const struct arrays *a)
{
    for (int which = ARRAY_Q; which <= ARRAY_V; which++)
        for (int i = 0; i < world.local; i++) {
            int is_q = which == ARRAY_Q, rank = world.first + i;
            size_t all = is_q ? whole.seqlen_q : whole.seqlen_k, row = row_of(which);
            struct chunks c = (is_q ? queries_of : keys_of)(strategy, &whole, rank, world.ranks);
            char *to = kind->array(i, which);
            const char *from = array_of(a, which);
            for (size_t h = 0; h < heads_of(which); h++)
                for (int k = 0; k < CHUNKS; to += range_size(c.at[k++]) * row)
                    kind->write(i, to, from + (h * all + c.at[k].first) * row,
                                range_size(c.at[k]) * row);
        }
}

/* o or lse of all ranks into an array of process 0, and from there to all. */
static void gather(enum array which, void *array)
{
    size_t row = row_of(which);
    char *rows = memory_new(size_times(whole.seqlen_q, row));
    if (!rows) world_abort("no memory for a part of the output");
    for (int rank = 0; rank < (strategy->is_ring ? world.ranks : 1); rank++) {
        struct chunks c = queries_of(strategy, &whole, rank, world.ranks);
        int i = rank - world.first, here = i >= 0 && i < world.local, owner = rank / world.local;
        size_t n = chunks_size(&c), front = range_size(c.at[FRONT]);
        for (size_t h = 0; h < heads_of(which) && n; h++) {
            char *head = (char *)array + h * whole.seqlen_q * row;
            if (!here && world.first) continue;
            if (here) kind->take(i, which, h * n, n, rows);
            if (owner) world_send(rows, n * row, owner);
            memcpy(head + c.at[FRONT].first * row, rows, front * row);
            memcpy(head + c.at[BACK].first * row, rows + front * row, (n - front) * row);
        }
    }
    memory_free(rows);
    world_share(array, array_bytes(&whole, which));
}

/* --- A strategy as a variant.  Every process has the same arrays, takes its part of them, and
 *     gets the whole answer: so all come to the same verdict, and take the same path. --- */

static void compute(const struct strategy *s, const struct problem *p, const struct arrays *a)
{
    const char *why = kind->shards_new(p, s);
    if (why) world_abort(why);
    whole_bias = a->bias;
    fill(a);
    kind->attention();
    gather(ARRAY_O, a->o);
    gather(ARRAY_LSE, a->lse);
    kind->shards_free();
}

enum { MOST_STRATEGIES = 4 };
static const struct strategy *strategies;
#define FUNCTION(i)                                                          \
    static void compute_##i(const struct problem *p, const struct arrays *a) \
    {                                                                        \
        compute(&strategies[i], p, a);                                       \
    }
FUNCTION(0) FUNCTION(1) FUNCTION(2) FUNCTION(3)

struct stage stage_of_ranks(const struct stage *stage)
{
    static variant_function *const functions[] = {compute_0, compute_1, compute_2, compute_3};
    static struct variant variants[MOST_STRATEGIES];
    static const struct variant *list[MOST_STRATEGIES + 1];
    static char ranks[32];
    kind = stage->kind_of_rank;
    const struct variant *kernel = kind->kernel;
    strategies = stage->strategies;
    for (int i = 0; strategies[i].name; i++) {
        variants[i] = (struct variant){
            .name = strategies[i].name, .idea = strategies[i].idea, .device = ON_CPU,
            .least_arch = kernel->least_arch, .only_arch = kernel->only_arch, .all_cores = 1,
            .types = kernel->types, .supports = kernel->supports & kind->features,
            .max_score = fminf(kernel->max_score, kind->max_score), .masked_rows = kernel->masked_rows,
            .isolates_v = kernel->isolates_v, .refuses = kernel->refuses,
            .does = {{OP_ATTENTION, functions[i]}}};
        list[i] = &variants[i];
    }
    snprintf(ranks, sizeof ranks, "%d %s%s", world.ranks, kind->name,
             world.ranks == 1 ? "" : "s");
    struct stage all = *stage;
    all.variants = list;
    all.ranks = ranks;
    return all;
}

int verb_on_ranks(const struct stage *stage, unsigned verb, const struct options *opt)
{
    struct stage all = stage_of_ranks(stage);
    struct options o = *opt;
    int status = world_agree(kind->open ? kind->open() : NULL, SKIPPED);
    if (status) return status;
    if (o.strategy) o.variant = o.strategy;
    status = verb == IN_CHECK ? check_stage(&all, &o)
             : verb == IN_RUN ? run_on_ranks(&all, &o)
                              : bench_on_ranks(&all, &o);
    if (kind->close) kind->close();
    return status;
}
