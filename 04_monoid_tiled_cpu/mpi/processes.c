/* processes.c: the program 04_monoid_tiled_cpu_mpi: each rank is a process with its cores.  What a
 * shard is in its memory; common/core/ranks has the verbs. */
#include "ranks.h"

#include <limits.h>
#include <omp.h>
#include <string.h>

#include "measurement/ceiling.h"
#include "problem/host_memory.h"
#include "problem/random.h"

extern const struct variant tiled_all_cores;

static const struct strategy strategies[] = {
    {"tree", "keys are cut; one reduction with the monoid as MPI_Op", 0, 0, 1},
    {"tree-fixed", "the same, merged by rank: the same bits in every run", 0, 0, 0},
    {"ring", "keys and queries are cut; keys travel; zigzag chunks balance a causal mask", 1, 1, 0},
    {"ring-unbalanced", "the same with contiguous chunks, for comparison", 1, 0, 0},
    {NULL, NULL, 0, 0, 0},
};

struct shard shard;
static double memory_before; /* bytes */

static size_t heads_q(void) { return whole.batch * whole.heads_q; }
static size_t heads_kv(void) { return whole.batch * whole.heads_kv; }

/* n * d floats of the shard; sets *lacking where there is no memory. */
static float *floats(size_t n, size_t d, int *lacking)
{
    float *x = memory_new(size_times(size_times(n, d), sizeof *x));
    if (!x) *lacking = 1;
    return shard.owned[shard.n_owned++] = x;
}

static const char *shards_new(const struct problem *p, const struct strategy *s)
{
    int lacking = 0, me = world.first, ranks = world.ranks;
    size_t widest = most_keys(s, p, ranks), d = p->head_dim_v;
    memory_peak_reset();
    memory_before = (double)memory_peak();
    whole = *p;
    strategy = s;
    shard = (struct shard){.queries = queries_of(s, p, me, ranks),
                           .keys = keys_of(s, p, me, ranks)};
    shard.n_q = chunks_size(&shard.queries);
    shard.n_k = chunks_size(&shard.keys);
    shard.q = floats(heads_q() * shard.n_q, p->head_dim, &lacking);
    for (int i = 0; i < (s->is_ring ? PLACES : 1) && i < ranks; i++)
        shard.keys_at[i] = floats(heads_kv() * widest, p->head_dim + d, &lacking);
    shard.rows = floats(heads_q() * shard.n_q, d + 2, &lacking);
    if (!s->is_ring && !s->reduces && !me)
        shard.arriving = floats(heads_q() * shard.n_q, d + 2, &lacking);
    shard.part_o = floats(heads_q() * shard.n_q, d, &lacking);
    shard.part_m = floats(heads_q(), shard.n_q, &lacking);
    shard.part_l = floats(heads_q(), shard.n_q, &lacking);
    shard.part_bias = floats(shard.n_q, p->has_bias ? widest : 0, &lacking);
    /* MPI counts in an int the floats of a message, or its rows. */
    if (heads_kv() * widest * (p->head_dim + d) > INT_MAX || heads_q() * shard.n_q > INT_MAX)
        return "its part of the keys or queries is too large for a message; give more ranks";
    return lacking ? "its part of the arrays does not fit into memory" : NULL;
}

static void shards_free(void)
{
    while (shard.n_owned) memory_free(shard.owned[--shard.n_owned]);
    memset(&shard, 0, sizeof shard);
}

static void *shard_array(int i, enum array which)
{
    (void)i;
    size_t of_k = which == ARRAY_V ? heads_kv() * shard.n_k * whole.head_dim : 0;
    return which == ARRAY_Q ? shard.q : shard.keys_at[0] + of_k;
}

static void shard_write(int i, void *to, const void *from, size_t bytes)
{
    (void)i;
    memcpy(to, from, bytes);
}

static void draw(float *x, size_t n, uint64_t seed)
{
    struct random r = {seed};
    for (size_t i = 0; i < n; i++) x[i] = random_normal(&r);
}

static void shards_draw(uint64_t seed)
{
    seed += (uint64_t)world.first;
    draw(shard.q, heads_q() * shard.n_q * whole.head_dim, seed);
    draw(shard.keys_at[0], heads_kv() * shard.n_k * (whole.head_dim + whole.head_dim_v),
         seed + 1000);
}

static double shards_attention(void)
{
    double began = MPI_Wtime();
    size_t n = heads_q() * shard.n_q, d = whole.head_dim_v;
    for (size_t i = 0; i < n; i++) {
        float *row = shard.rows + i * (d + 2);
        struct aggregate x = {0, 0, row + 2, d};
        aggregate_unit(&x);
        row[0] = x.m, row[1] = x.l;
    }
    (strategy->is_ring ? ring_attention : tree_attention)();
    for (size_t i = 0; i < n; i++) {
        float *row = shard.rows + i * (d + 2);
        const struct aggregate x = {row[0], row[1], row + 2, d};
        aggregate_finish(&x, x.o, row); /* lse in place of m */
    }
    return MPI_Wtime() - began;
}

static void shard_take(int i, enum array which, size_t first, size_t n, void *to)
{
    (void)i;
    size_t d = whole.head_dim_v, taken = which == ARRAY_O ? d : 1;
    for (size_t r = 0; r < n; r++)
        memcpy((float *)to + r * taken,
               shard.rows + (first + r) * (d + 2) + (which == ARRAY_O ? 2 : 0),
               taken * sizeof(float));
}

static double shard_bytes(void) { return (double)memory_peak() - memory_before; }

static double ranks_ceiling(struct measurement *m)
{
    m->ceiling_kind = "fma";
    m->threads = omp_get_max_threads();
    return ceiling("fma", NULL, m->threads);
}

static const struct kind_of_rank processes = {
    .name = "rank", .stage = "04_monoid_tiled_cpu", .kernel = &tiled_all_cores,
    .features = BASIC_FEATURES | WITH_SHIFT, .device = ON_CPU, .max_score = INFINITY,
    .example = {.op = OP_ATTENTION, .heads_q = 8, .seqlen_q = 4096, .head_dim = 64},
    .quick = 1024, .least_calls = 3, .most_calls = 1000,
    .shards_new = shards_new, .shards_free = shards_free, .array = shard_array,
    .write = shard_write, .draw = shards_draw, .attention = shards_attention,
    .take = shard_take, .bytes = shard_bytes, .ceiling = ranks_ceiling,
};

static const struct stage stage = {
    .number = 4,
    .name = "04_monoid_tiled_cpu_mpi",
    .idea = "the same fold on several machines: keys cut between MPI ranks",
    .strategies = strategies,
    .kind_of_rank = &processes,
    .on_ranks = on_ranks,
};

int main(int argc, char **argv) { return main_on_mpi(argc, argv, &stage); }
