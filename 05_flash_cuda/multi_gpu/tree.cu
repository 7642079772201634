/* tree.cu: keys cut between the GPUs, all queries on each.
 *
 *     rank r:        x_r = fold of its keys, for all queries
 *     every rank:    x_0 . x_1 . ... . x_(R-1)
 *
 * NCCL has no reduction of one's own making, so the operation of the monoid is done in one of
 * two ways (merge.h has the kernels):
 *   tree         all-gather the parts, and every GPU merges them in the order of the ranks: one
 *                message, the same bits in every run; each GPU receives R - 1 parts
 *   tree-reduce  the maximum of lse over the ranks, then the sum of the rescaled parts: two
 *                all-reduces, one after the other; what a GPU receives does not grow with R */
#include "team.h"

#include "merge.h"
#include "part.h"

/* Rows of all heads, and floats of one part. */
static size_t rows_of(const struct problem *p) { return p->batch * p->heads_q * p->seqlen_q; }
static size_t floats_of(const struct problem *p) { return rows_of(p) * (p->head_dim_v + 1); }

size_t piece_workspace(const struct problem *whole, const struct strategy *s, int ranks)
{
    struct chunks queries = queries_of(s, whole, 0, ranks), keys = keys_of(s, whole, 0, ranks);
    struct piece x;
    size_t bytes = 16; /* the counter of work tiles */
    if (!!s->is_ring) return bytes;
    for (int r = 0; r < ranks; r++) {
        keys = keys_of(s, whole, r, ranks);
        if (!piece_of(whole, queries.at[FRONT], keys.at[FRONT], &x)) continue;
        x.rows = queries.at[FRONT];
        x.cols = keys.at[FRONT];
        struct problem p = problem_of_piece(whole, &x);
        if (part_split_refuses(&p)) continue;
        size_t n = part_split_workspace(&p);
        if (n > bytes) bytes = n;
    }
    return bytes;
}

/* The part of this GPU's keys, in g->part. */
static void fold_own_keys(struct gpu *g)
{
    struct piece x;
    size_t rows = rows_of(&whole), d = whole.head_dim_v;
    CUDA_CHECK(cudaSetDevice(g->device));
    CUDA_CHECK(cudaEventRecord(g->compute_began[0], g->compute));
    if (!piece_of(&whole, g->queries.at[FRONT], g->keys.at[FRONT], &x)) {
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, unit_kernel, g->part, g->part + rows * d, rows,
                                      d));
    } else {
        x.rows = g->queries.at[FRONT];
        x.cols = g->keys.at[FRONT];
        struct problem p = problem_of_piece(&whole, &x);
        struct part part = {};
        part.q = g->q;
        part.k = g->keys_at[0];
        part.v = g->keys_at[0] +
                 p.batch * p.heads_kv * g->n_k * p.head_dim * dtype_size(p.dtype);
        part.q_rows = g->n_q;
        part.k_rows = g->n_k;
        part.o = g->o;
        part.answer = g->part;
        part.keeps = true;
        part.lse = g->part + rows * d;
        part.workspace = g->workspace;
        part.stream = g->compute;
        if (part_split_refuses(&p)) part_tuned(&p, &part);
        else part_split(&p, &part);
    }
    CUDA_CHECK(cudaEventRecord(g->computed[0], g->compute));
}

/* All parts on every GPU, merged there. */
template <class T> static void gather_and_fold(void)
{
    size_t n = floats_of(&whole), rows = rows_of(&whole), d = whole.head_dim_v;
    NCCL_CHECK(ncclGroupStart());
    for (int i = 0; i < world.local; i++) {
        struct gpu *g = &gpus[i];
        NCCL_CHECK(ncclAllGather(g->part, g->gathered, n, ncclFloat, g->comm, g->compute));
    }
    NCCL_CHECK(ncclGroupEnd());
    for (int i = 0; i < world.local; i++) {
        struct gpu *g = &gpus[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, fold_kernel<T>, (T *)g->o, g->lse, g->gathered,
                                      world.ranks, rows, d));
    }
}

/* An all-reduce of n floats, in place, on every GPU. */
static void all_reduce(bool maxima, size_t n)
{
    NCCL_CHECK(ncclGroupStart());
    for (int i = 0; i < world.local; i++) {
        struct gpu *g = &gpus[i];
        float *x = maxima ? g->gathered : g->part;
        NCCL_CHECK(ncclAllReduce(x, x, n, ncclFloat, maxima ? ncclMax : ncclSum, g->comm,
                                    g->compute));
    }
    NCCL_CHECK(ncclGroupEnd());
}

/* top = max lse;  o, l = sum exp(lse - top) (o, 1);  o / l, top + log l. */
template <class T> static void reduce(void)
{
    size_t rows = rows_of(&whole), d = whole.head_dim_v;
    for (int i = 0; i < world.local; i++) {
        struct gpu *g = &gpus[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        CUDA_CHECK(cudaMemcpyAsync(g->gathered, g->part + rows * d, 4 * rows,
                                   cudaMemcpyDeviceToDevice, g->compute));
    }
    all_reduce(true, rows);
    for (int i = 0; i < world.local; i++) {
        struct gpu *g = &gpus[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, rescale_kernel, g->part, g->gathered, rows, d));
    }
    all_reduce(false, floats_of(&whole));
    for (int i = 0; i < world.local; i++) {
        struct gpu *g = &gpus[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel<T>, (T *)g->o, g->lse, g->part,
                                      g->gathered, rows, d));
    }
}

void tree_attention(void)
{
    if (rows_of(&whole) == 0) return;
    for (int i = 0; i < world.local; i++) fold_own_keys(&gpus[i]);
    bool is_bf16 = whole.dtype == BF16;
    if (strategy->reduces) (is_bf16 ? reduce<__nv_bfloat16> : reduce<__half>)();
    else (is_bf16 ? gather_and_fold<__nv_bfloat16> : gather_and_fold<__half>)();
}
