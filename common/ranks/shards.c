/* shards.c: shards are filled, and answers taken out; the strategies as variants for `check`. */
#include "ranks/shards.h"

#include <stdio.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "program/options.h"

enum { FAILED = 1, SKIPPED = 77 };
enum { BIAS_ROWS = 64 }; /* at once: a bias is as wide as there are keys on all ranks */

const char *shards_fill(rows_function *rows, const void *from)
{
    static const enum array inputs[] = {ARRAY_Q, ARRAY_K, ARRAY_V, ARRAY_BIAS};
    const char *why = NULL;
    for (int i = 0; i < world.local; i++)
        for (int a = 0; a < 4; a++) {
            enum array which = inputs[a];
            int is_key = which == ARRAY_K || which == ARRAY_V;
            size_t row = 0, step = which == ARRAY_BIAS ? BIAS_ROWS : SIZE_MAX / 2;
            struct chunks c = (is_key ? keys_of : queries_of)(strategy, &whole,
                                                              world.first + i, world.ranks);
            if (array_role(&whole, which) == ABSENT) continue;
            for (int k = 0; k < CHUNKS; k++)
                for (struct key_range r = c.at[k]; r.first < r.end && !why;) {
                    size_t n = range_size(r) < step ? range_size(r) : step;
                    float *numbers = NULL;
                    why = rows(from, which, (struct key_range){r.first, r.first + n}, &numbers);
                    if (!why) shard_put(i, which, row, n, numbers);
                    memory_free(numbers);
                    row += n, r.first += n;
                }
        }
    return why;
}

static struct key_range chunk_at(const struct slices *s, int *rank, int *chunk)
{
    *chunk = s->at < s->ranks ? FRONT : BACK;
    *rank = (int)(s->at < s->ranks ? s->at : 2 * s->ranks - 1 - s->at);
    return queries_of(strategy, &whole, *rank, world.ranks).at[*chunk];
}

static size_t width_of(const struct slices *s)
{
    return s->which == ARRAY_O ? whole.head_dim_v : 1;
}

const char *slices_new(struct slices *s, enum array which)
{
    size_t longest = 1;
    int rank, chunk;
    *s = (struct slices){.which = which, .ranks = strategy->is_ring ? (size_t)world.ranks : 1};
    for (; s->at < 2 * s->ranks; s->at++) {
        size_t n = range_size(chunk_at(s, &rank, &chunk));
        if (n > longest) longest = n;
    }
    s->at = 0;
    s->memory = memory_new(size_times(size_times(longest, width_of(s)), sizeof *s->memory));
    return s->memory ? NULL : "no memory for a slice of the output";
}

/* n rows of a chunk: from this process's shard, or sent to process 0. */
static void fetch(const struct slices *s, int rank, int chunk, size_t n)
{
    struct chunks queries = queries_of(strategy, &whole, rank, world.ranks);
    size_t row = s->head * chunks_size(&queries) +
                 (chunk == BACK ? range_size(queries.at[FRONT]) : 0);
    int i = rank - world.first, here = i >= 0 && i < world.local, owner = rank / world.local;
    if (here) shard_take(i, s->which, row, n, s->memory);
    if (owner && (here || world.first == 0)) world_send(s->memory, n * width_of(s), owner);
}

size_t slices_next(void *slices, const float **numbers)
{
    struct slices *s = slices;
    for (; s->head < whole.batch * whole.heads_q; s->head++, s->at = 0)
        while (s->at < 2 * s->ranks) {
            int rank, chunk;
            size_t n = range_size(chunk_at(s, &rank, &chunk));
            s->at++;
            if (n == 0) continue;
            fetch(s, rank, chunk, n);
            *numbers = s->memory;
            return n * width_of(s);
        }
    return 0;
}

/* --- check: a strategy as a variant.  Every process has the same arrays, takes its part of them,
 *     and gets the whole answer: so all come to the same verdict, and take the same path. --- */

static const char *rows_of_arrays(const void *from, enum array which, struct key_range rows,
                                  float **numbers)
{
    const struct extents e = array_extents(&whole, which);
    size_t width = e.size[e.rank - 1], all = e.size[e.rank - 2], n = range_size(rows);
    size_t heads = array_dense_count(&whole, which) / (all * width);
    enum dtype dtype = which == ARRAY_BIAS ? F32 : whole.dtype;
    const void *array = array_of(from, which);
    *numbers = memory_new(size_times(size_times(heads * n, width), sizeof **numbers));
    for (size_t i = 0; *numbers && i < heads * n * width; i++) {
        size_t row = i / width / n * all + rows.first + i / width % n;
        (*numbers)[i] = dtypes[dtype].load(array, row * width + i % width);
    }
    return *numbers ? NULL : "no memory for a part of an array";
}

/* Rows of all ranks into an array of process 0, and from there to all. */
static void gather(enum array which, void *array)
{
    struct slices s;
    const float *numbers;
    const char *why = slices_new(&s, which);
    if (why) world_abort(why);
    for (size_t at = 0, n; (n = slices_next(&s, &numbers)); at += n)
        for (size_t k = 0; k < n; k++)
            dtypes[array_dtype(&whole, which)].store(array, at + k, numbers[k]);
    memory_free(s.memory);
    world_share(array, array_bytes(&whole, which));
}

static void compute(const struct strategy *s, const struct problem *p, const struct arrays *a)
{
    const char *why = shards_new(p, s);
    if (!why) why = shards_fill(rows_of_arrays, a);
    if (why) world_abort(why);
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
