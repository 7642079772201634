/* shard.cu: what lies in the memory of each GPU, and how it gets there and back. */
#include "team.h"

#include <stdlib.h>
#include <vector>

#include "gpu/gpu_rows.h"
extern "C" {
#include "problem/dtype.h"
#include "problem/operation.h"
}

static size_t heads_q(const struct problem *p) { return p->batch * p->heads_q; }
static size_t heads_kv(const struct problem *p) { return p->batch * p->heads_kv; }

/* Sizes in bytes of the arrays of a rank.  A ring of R > 1 ranks has room for the keys of
 * others beside its own: two places, or one for R = 2. */
struct sizes_of_shard { size_t q, keys, answer, part, gathered, o, lse, workspace; int places; };

static struct sizes_of_shard sizes_of(const struct problem *p, enum strategy s, int rank,
                                      int ranks)
{
    struct sizes_of_shard n = {};
    struct chunks queries = queries_of(s, p, rank, ranks);
    size_t rows = size_times(heads_q(p), chunks_size(&queries)), widest = 0;
    for (int r = 0; r < ranks; r++) {
        struct chunks keys = keys_of(s, p, r, ranks);
        if (chunks_size(&keys) > widest) widest = chunks_size(&keys);
    }
    size_t size = dtype_size(p->dtype), part = 4 * size_times(rows, p->head_dim_v + 1);
    n.q = size * size_times(rows, p->head_dim);
    n.keys = size * size_times(size_times(heads_kv(p), widest), p->head_dim + p->head_dim_v);
    n.o = size * size_times(rows, p->head_dim_v);
    n.lse = 4 * rows;
    n.workspace = piece_workspace(p, s, ranks);
    n.places = 1;
    if (is_tree(s)) {
        n.part = part;
        n.gathered = s == TREE ? size_times(part, (size_t)ranks) : 4 * rows;
    } else {
        n.answer = 4 * size_times(rows, p->head_dim_v);
        n.places = ranks < PLACES ? ranks : PLACES;
    }
    return n;
}

size_t shard_bytes(const struct problem *whole, enum strategy s, int rank, int ranks)
{
    struct sizes_of_shard n = sizes_of(whole, s, rank, ranks);
    return n.q + n.keys * n.places + n.answer + n.part + n.gathered + n.o + n.lse + n.workspace;
}

/* Memory of the present GPU; sets *short_of when there is not enough. */
static void *take(struct gpu *g, size_t bytes, bool *short_of)
{
    void *memory = NULL;
    if (*short_of) return NULL;
    cudaError_t error = cudaMalloc(&memory, bytes ? bytes : 16);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        *short_of = true;
        return NULL;
    }
    CUDA_CHECK(error);
    return g->owned[g->n_owned++] = memory;
}

static bool shard_new(struct gpu *g, const struct problem *p, enum strategy s, int ranks)
{
    struct sizes_of_shard n = sizes_of(p, s, g->rank, ranks);
    bool short_of = false;
    g->queries = queries_of(s, p, g->rank, ranks);
    g->keys = keys_of(s, p, g->rank, ranks);
    g->n_q = chunks_size(&g->queries);
    g->n_k = chunks_size(&g->keys);
    CUDA_CHECK(cudaSetDevice(g->device));
    g->q = (char *)take(g, n.q, &short_of);
    for (int i = 0; i < n.places; i++) g->keys_at[i] = (char *)take(g, n.keys, &short_of);
    if (n.answer) g->answer = (float *)take(g, n.answer, &short_of);
    if (n.part) g->part = (float *)take(g, n.part, &short_of);
    if (n.gathered) g->gathered = (float *)take(g, n.gathered, &short_of);
    g->o = take(g, n.o, &short_of);
    g->lse = (float *)take(g, n.lse, &short_of);
    g->workspace = take(g, n.workspace, &short_of);
    return !short_of;
}

const char *shards_new(struct team *t, const struct problem *whole, enum strategy s)
{
    static char text[160];
    t->p = *whole;
    t->strategy = s;
    t->patience = 15 + problem_flops(whole) / (1e13 * t->world->ranks); /* a GPU does 60e13 */
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        if (shard_new(g, whole, s, t->world->ranks)) continue;
        snprintf(text, sizeof text, "rank %d: its part of %.1f GB does not fit into the "
                 "GPU's memory", g->rank,
                 1e-9 * (double)shard_bytes(whole, s, g->rank, t->world->ranks));
        return text;
    }
    return NULL;
}

void shards_free(struct team *t)
{
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        for (int k = 0; k < g->n_owned; k++) CUDA_CHECK(cudaFree(g->owned[k]));
        g->n_owned = 0;
    }
}

/* Rows of both chunks of every head: from the host array [heads, all, d] to [heads, n, d]. */
static void cut(const struct chunks *c, const void *from, size_t all, void *to, size_t heads,
                size_t row_bytes)
{
    size_t row = 0, n = chunks_size(c);
    for (int i = 0; i < CHUNKS; row += range_size(c->at[i++])) {
        size_t size = range_size(c->at[i]);
        if (size == 0 || heads == 0) continue;
        CUDA_CHECK(cudaMemcpy2D((char *)to + row * row_bytes, n * row_bytes,
                                (const char *)from + c->at[i].first * row_bytes,
                                all * row_bytes, size * row_bytes, heads,
                                cudaMemcpyHostToDevice));
    }
}

void shards_cut(struct team *t, const struct arrays *host)
{
    const struct problem *p = &t->p;
    size_t size = dtype_size(p->dtype);
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        char *v = g->keys_at[0] + heads_kv(p) * g->n_k * p->head_dim * size;
        CUDA_CHECK(cudaSetDevice(g->device));
        cut(&g->queries, host->q, p->seqlen_q, g->q, heads_q(p), p->head_dim * size);
        cut(&g->keys, host->k, p->seqlen_k, g->keys_at[0], heads_kv(p), p->head_dim * size);
        cut(&g->keys, host->v, p->seqlen_k, v, heads_kv(p), p->head_dim_v * size);
    }
}

/* Element i is nearly normal: the sum of four uniform numbers, drawn from i and the seed. */
template <class T> static __global__ void draw_kernel(T *x, size_t n, uint64_t seed)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t z = (i + seed) * 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) +
                  (int)(z >> 48);
        x[i] = T((float)(sum - 131070) * (1.7320508f / 65536));
    }
}

void draw_normal(void *x, size_t n, enum dtype dtype, uint64_t seed)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(2048);
    config.blockDim = dim3(256);
    if (dtype == BF16)
        CUDA_CHECK(cudaLaunchKernelEx(&config, draw_kernel<__nv_bfloat16>, (__nv_bfloat16 *)x,
                                      n, seed));
    else CUDA_CHECK(cudaLaunchKernelEx(&config, draw_kernel<__half>, (__half *)x, n, seed));
}

void shards_draw(struct team *t, uint64_t seed)
{
    const struct problem *p = &t->p;
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        uint64_t own = seed + ((uint64_t)(g->rank + 1) << 44);
        CUDA_CHECK(cudaSetDevice(g->device));
        draw_normal(g->q, heads_q(p) * g->n_q * p->head_dim, p->dtype,
                    is_tree(t->strategy) ? seed : own);
        draw_normal(g->keys_at[0], heads_kv(p) * g->n_k * (p->head_dim + p->head_dim_v),
                    p->dtype, own + ((uint64_t)1 << 42));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
}

/* The rows from this process's own GPU. */
static void fetch_own(const struct team *t, const struct gpu *g, size_t h, int c, float *o,
                      float *lse)
{
    const struct problem *p = &t->p;
    size_t first = c == FRONT ? 0 : range_size(g->queries.at[FRONT]);
    size_t row = h * g->n_q + first, n = range_size(g->queries.at[c]);
    size_t size = dtype_size(p->dtype), count = n * p->head_dim_v;
    CUDA_CHECK(cudaSetDevice(g->device));
    if (lse) CUDA_CHECK(cudaMemcpy(lse, g->lse + row, 4 * n, cudaMemcpyDeviceToHost));
    if (!o) return;
    std::vector<char> narrow(count * size);
    CUDA_CHECK(cudaMemcpy(narrow.data(), (char *)g->o + row * p->head_dim_v * size,
                          count * size, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) o[i] = dtypes[p->dtype].load(narrow.data(), i);
}

void shard_fetch(struct team *t, int rank, size_t h, int c, float *o, float *lse)
{
    const struct world *w = t->world;
    struct chunks queries = queries_of(t->strategy, &t->p, rank, w->ranks);
    size_t n = range_size(queries.at[c]);
    int here = rank >= w->first && rank < w->first + w->local;
    if (n == 0) return;
    if (here) fetch_own(t, &t->gpu[rank - w->first], h, c, o, lse);
    int owner = rank / w->local; /* every process has as many GPUs */
    if (owner && o && (here || w->first == 0)) world_send(o, n * t->p.head_dim_v, owner);
    if (owner && lse && (here || w->first == 0)) world_send(lse, n, owner);
}
