/* shards.c: shards are filled, and answers taken out; the strategies as variants of `check` and
 * `run`. */
#include "ranks/shards.h"

#include <stdio.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "program/options.h"

enum { SKIPPED = 77 };

/* The rows r of every head of array `which`, as floats: [heads, rows, width].  A bias has no heads. */
static float *rows_of(const struct arrays *a, enum array which, struct key_range r)
{
    const struct extents e = array_extents(&whole, which);
    size_t width = e.size[e.rank - 1], all = e.size[e.rank - 2], n = range_size(r);
    size_t heads = array_dense_count(&whole, which) / (all * width);
    const struct dtype_entry *type = &dtypes[array_dtype(&whole, which)];
    float *rows = memory_new(size_times(size_times(heads * n, width), sizeof *rows));
    if (!rows) world_abort("no memory for a part of an array");
    for (size_t i = 0; i < heads * n * width; i++) {
        size_t row = i / width / n * all + r.first + i / width % n;
        rows[i] = type->load(array_of(a, which), row * width + i % width);
    }
    return rows;
}

/* Fills the shards of this process. */
static void fill(const struct arrays *a)
{
    for (int which = ARRAY_Q; which <= ARRAY_BIAS; which++)
        for (int i = 0; i < world.local && array_role(&whole, which) != ABSENT; i++) {
            int is_key = which == ARRAY_K || which == ARRAY_V;
            struct chunks c = (is_key ? keys_of : queries_of)(strategy, &whole, world.first + i,
                                                              world.ranks);
            for (size_t k = 0, row = 0; k < CHUNKS; row += range_size(c.at[k++])) {
                if (range_size(c.at[k]) == 0) continue;
                float *rows = rows_of(a, which, c.at[k]);
                shard_put(i, which, row, range_size(c.at[k]), rows);
                memory_free(rows);
            }
        }
}

/* o or lse of all ranks into an array of process 0, and from there to all. */
static void gather(enum array which, void *array)
{
    const struct dtype_entry *type = &dtypes[array_dtype(&whole, which)];
    size_t width = which == ARRAY_O ? whole.head_dim_v : 1, heads = whole.batch * whole.heads_q;
    int ranks = strategy->is_ring ? world.ranks : 1; /* that hold the answer */
    float *rows = memory_new(size_times(size_times(whole.seqlen_q, width), sizeof *rows));
    if (!rows) world_abort("no memory for a part of the output");
    for (int rank = 0; rank < ranks; rank++) {
        struct chunks c = queries_of(strategy, &whole, rank, world.ranks);
        int i = rank - world.first, here = i >= 0 && i < world.local, owner = rank / world.local;
        size_t n = chunks_size(&c), front = range_size(c.at[FRONT]);
        for (size_t h = 0; h < heads && n; h++) {
            if (here) shard_take(i, which, h * n, n, rows);
            if (owner && (here || world.first == 0)) world_send(rows, n * width, owner);
            for (size_t e = 0; e < n * width; e++) {
                size_t row = e / width;
                row += row < front ? c.at[FRONT].first : c.at[BACK].first - front;
                type->store(array, (h * whole.seqlen_q + row) * width + e % width, rows[e]);
            }
        }
    }
    memory_free(rows);
    world_share(array, array_bytes(&whole, which));
}

/* --- A strategy as a variant.  Every process has the same arrays, takes its part of them, and
 *     gets the whole answer: so all come to the same verdict, and take the same path. --- */

static void compute(const struct strategy *s, const struct problem *p, const struct arrays *a)
{
    const char *why = shards_new(p, s);
    if (why) world_abort(why);
    fill(a);
    shards_attention();
    gather(ARRAY_O, a->o);
    gather(ARRAY_LSE, a->lse);
    shards_free();
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
    const struct variant *kernel = kind_of_rank.kernel;
    strategies = stage->strategies;
    for (int i = 0; strategies[i].name; i++) {
        variants[i] = (struct variant){
            .name = strategies[i].name, .idea = strategies[i].idea, .device = ON_CPU,
            .least_arch = kernel->least_arch, .only_arch = kernel->only_arch, .all_cores = 1,
            .types = kernel->types, .supports = kernel->supports & kind_of_rank.features,
            .max_score = fminf(kernel->max_score, kind_of_rank.max_score), .masked_rows = kernel->masked_rows,
            .isolates_v = kernel->isolates_v, .refuses = kernel->refuses,
            .does = {{OP_ATTENTION, functions[i]}}};
        list[i] = &variants[i];
    }
    snprintf(ranks, sizeof ranks, "%d %s%s", world.ranks, kind_of_rank.name,
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
    int status = world_agree(ranks_open(), SKIPPED);
    if (status) return status;
    if (o.strategy) o.variant = o.strategy;
    status = verb == IN_CHECK ? check_stage(&all, &o)
             : verb == IN_RUN ? run_on_ranks(&all, &o)
                              : bench_on_ranks(&all, &o);
    ranks_close();
    return status;
}
