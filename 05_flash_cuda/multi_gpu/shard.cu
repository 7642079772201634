/* shard.cu: what lies in the memory of each GPU, and how it gets there and back. */
#include "team.h"

#include <vector>

#include "gpu/gpu_rows.h"
#include "part.h"
extern "C" {
#include "gpu/gpu.h"
#include "problem/dtype.h"
#include "problem/operation.h"
#include "problem/random.h"
}

static size_t heads_q(void) { return whole.batch * whole.heads_q; }
static size_t heads_kv(void) { return whole.batch * whole.heads_kv; }
static size_t number(void) { return dtype_size(whole.dtype); } /* its bytes */

/* Memory of the present GPU; NULL when there is not enough. */
static void *take(struct gpu *g, size_t bytes)
{
    void *memory = NULL;
    g->bytes += bytes;
    cudaError_t error = cudaMalloc(&memory, bytes ? bytes : 16);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        g->lacking = true;
        return NULL;
    }
    CUDA_CHECK(error);
    return g->owned[g->n_owned++] = memory;
}

/* A ring of R > 1 ranks has room for the keys of others beside its own: two places, or one for
 * R = 2. */
static void shard_new(struct gpu *g, int ranks)
{
    size_t d = whole.head_dim_v;
    g->queries = queries_of(strategy, &whole, g->rank, ranks);
    g->keys = keys_of(strategy, &whole, g->rank, ranks);
    g->n_q = chunks_size(&g->queries);
    g->n_k = chunks_size(&g->keys);
    g->bytes = 0;
    g->lacking = false;
    size_t rows = size_times(heads_q(), g->n_q), part = 4 * size_times(rows, d + 1);
    size_t keys = number() * size_times(size_times(heads_kv(), most_keys(strategy, &whole, ranks)),
                                        whole.head_dim + d);
    g->q = (char *)take(g, number() * size_times(rows, whole.head_dim));
    for (int i = 0; i < (strategy->is_ring ? PLACES : 1) && i < ranks; i++)
        g->keys_at[i] = (char *)take(g, keys);
    g->part = (float *)take(g, part);
    g->gathered = (float *)take(g, strategy->is_ring ? 0 : size_times(part, (size_t)ranks));
    g->o = take(g, number() * size_times(rows, d));
    g->lse = strategy->is_ring ? g->part + rows * d : (float *)take(g, 4 * rows);
    g->workspace = take(g, piece_workspace(g));
}

static const char *shards_new(const struct problem *p, const struct strategy *s)
{
    static char text[160];
    const char *why = NULL;
    whole = *p;
    strategy = s;
    team_patience = 15 + problem_flops(p) / (1e13 * world.ranks); /* a GPU does 60e13 */
    EACH_GPU(g) {
        shard_new(g, world.ranks);
        if (!g->lacking || why) continue;
        snprintf(text, sizeof text, "rank %d: its part of %.1f GB does not fit into the GPU's "
                 "memory", g->rank, 1e-9 * (double)g->bytes);
        why = text;
    }
    return why;
}

static void shards_free(void)
{
    EACH_GPU(g) {
        for (int k = 0; k < g->n_owned; k++) CUDA_CHECK(cudaFree(g->owned[k]));
        g->n_owned = 0;
    }
}

static double shard_bytes(void)
{
    double most = 0;
    EACH_GPU(g) most = fmax(most, (double)g->bytes);
    return most;
}

/* Few queries read every key once: their ceiling is the memory, not the tensor cores. */
static double ranks_ceiling(struct measurement *m)
{
    bool decodes = !part_split_refuses(&m->p);
    CUDA_CHECK(cudaSetDevice(gpus[0].device));
    m->ceiling_kind = decodes ? "read" : "gemm";
    m->threads = world.local;
    return world.local * (decodes ? gpu_read_gbps() : gpu_gemm_gflops(m->p.dtype));
}

static void *shard_array(int i, enum array which)
{
    const struct gpu *g = &gpus[i];
    size_t of_k = which == ARRAY_V ? heads_kv() * g->n_k * whole.head_dim * number() : 0;
    return which == ARRAY_Q ? g->q : g->keys_at[0] + of_k;
}

static void shard_write(int i, void *to, const void *from, size_t bytes)
{
    CUDA_CHECK(cudaSetDevice(gpus[i].device));
    CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

/* A block that is drawn here, and then repeated: the array may be larger than the host's memory. */
void draw_normal(void *x, size_t n, enum dtype dtype, uint64_t seed)
{
    const size_t size = dtype_size(dtype), most = 1000003;
    std::vector<char> block((n < most ? n : most) * size);
    struct random r = {seed};
    for (size_t i = 0; i * size < block.size(); i++)
        dtypes[dtype].store(block.data(), i, random_normal(&r));
    CUDA_CHECK(cudaMemcpy(x, block.data(), block.size(), cudaMemcpyHostToDevice));
    for (size_t done = block.size(), step; done && done < n * size; done += step) {
        step = done < n * size - done ? done : n * size - done;
        CUDA_CHECK(cudaMemcpy((char *)x + done, x, step, cudaMemcpyDeviceToDevice));
    }
}

static void shards_draw(uint64_t seed)
{
    EACH_GPU(g) {
        uint64_t own = seed + ((uint64_t)(g->rank + 1) << 44);
        draw_normal(g->q, heads_q() * g->n_q * whole.head_dim, whole.dtype,
                    strategy->is_ring ? own : seed);
        draw_normal(g->keys_at[0], heads_kv() * g->n_k * (whole.head_dim + whole.head_dim_v),
                    whole.dtype, own + ((uint64_t)1 << 42));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
}

static void shard_take(int i, enum array which, size_t first, size_t n, void *to)
{
    const struct gpu *g = &gpus[i];
    size_t row = which == ARRAY_O ? whole.head_dim_v * number() : sizeof(float);
    const char *from = which == ARRAY_O ? (const char *)g->o : (const char *)g->lse;
    CUDA_CHECK(cudaSetDevice(g->device));
    CUDA_CHECK(cudaMemcpy(to, from + first * row, n * row, cudaMemcpyDeviceToHost));
}

static double shards_attention(void)
{
    double longest = 0;
    EACH_GPU(g) {
        CUDA_CHECK(cudaEventRecord(g->began, g->compute));
        CUDA_CHECK(cudaStreamWaitEvent(g->copy, g->began, 0));
    }
    if (strategy->is_ring) ring_attention();
    else tree_attention();
    EACH_GPU(g) CUDA_CHECK(cudaEventRecord(g->ended, g->compute));
    team_wait();
    EACH_GPU(g) {
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, g->began, g->ended));
        longest = fmax(longest, 1e-3 * ms);
    }
    return longest;
}

extern "C" const struct kind_of_rank gpus_as_ranks = {
    .name = "GPU",
    .stage = "05_flash_cuda",
    .kernel = &tuned_cuda,
    .features = WITH_CAUSAL | WITH_GROUPS | WITH_HEAD_DIM_V | WITH_SHIFT,
    .device = ON_GPU,
    /* part_tuned() and part_split() give lse = m + log l in one float, which rounds log l by
     * u |m|: that is the relative error of a part's weight. */
    .max_score = 1000,
    .example = {.op = OP_ATTENTION, .heads_q = 16, .seqlen_q = 65536, .head_dim = 128},
    .quick = 8192,
    .least_calls = 5,
    .most_calls = 20,
    .open = team_open,
    .close = team_close,
    .shards_new = shards_new,
    .shards_free = shards_free,
    .array = shard_array,
    .write = shard_write,
    .draw = shards_draw,
    .attention = shards_attention,
    .take = shard_take,
    .bytes = shard_bytes,
    .ceiling = ranks_ceiling,
    .alone = alone,
    .alone_done = alone_done,
};
