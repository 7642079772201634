/* tree.cu: keys cut between the GPUs, all queries on each.
 *
 *     rank r:        x_r = fold of its keys, for all queries
 *     every rank:    x_0 . x_1 . ... . x_(R-1)
 *
 * NCCL has no reduction of one's own making, so the operation of the monoid is done in one of
 * two ways (merge.h has the kernels):
 *   TREE         all-gather the parts, and every GPU merges them in the order of the ranks: one
 *                message, the same bits in every run; each GPU receives R - 1 parts
 *   TREE_REDUCE  the maximum of lse over the ranks, then the sum of the rescaled parts: two
 *                all-reduces, one after the other; what a GPU receives does not grow with R */
#include "team.h"

#include "merge.h"
#include "part.h"

/* Rows of all heads, and floats of one part. */
static size_t rows_of(const struct problem *p) { return p->batch * p->heads_q * p->seqlen_q; }
static size_t floats_of(const struct problem *p) { return rows_of(p) * (p->head_dim_v + 1); }

size_t piece_workspace(const struct problem *whole, enum strategy s, int ranks)
{
    struct chunks queries = queries_of(s, whole, 0, ranks), keys = keys_of(s, whole, 0, ranks);
    struct piece x;
    size_t bytes = 16; /* the counter of work tiles */
    if (!is_tree(s)) return bytes;
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
static void fold_own_keys(struct team *t, struct gpu *g)
{
    struct piece x;
    size_t rows = rows_of(&t->p), d = t->p.head_dim_v;
    CUDA_CHECK(cudaSetDevice(g->device));
    CUDA_CHECK(cudaEventRecord(g->compute_began[0], g->compute));
    if (!piece_of(&t->p, g->queries.at[FRONT], g->keys.at[FRONT], &x)) {
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, unit_kernel, g->part, g->part + rows * d, rows,
                                      d));
    } else {
        x.rows = g->queries.at[FRONT];
        x.cols = g->keys.at[FRONT];
        struct problem p = problem_of_piece(&t->p, &x);
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
template <class T> static void gather_and_fold(struct team *t)
{
    size_t n = floats_of(&t->p), rows = rows_of(&t->p), d = t->p.head_dim_v;
    NCCL_CHECK(t, ncclGroupStart());
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        NCCL_CHECK(t, ncclAllGather(g->part, g->gathered, n, ncclFloat, g->comm, g->compute));
    }
    NCCL_CHECK(t, ncclGroupEnd());
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, fold_kernel<T>, (T *)g->o, g->lse, g->gathered,
                                      t->world->ranks, rows, d));
    }
}

/* An all-reduce of n floats, in place, on every GPU. */
static void all_reduce(struct team *t, bool maxima, size_t n)
{
    NCCL_CHECK(t, ncclGroupStart());
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        float *x = maxima ? g->gathered : g->part;
        NCCL_CHECK(t, ncclAllReduce(x, x, n, ncclFloat, maxima ? ncclMax : ncclSum, g->comm,
                                    g->compute));
    }
    NCCL_CHECK(t, ncclGroupEnd());
}

/* top = max lse;  o, l = sum exp(lse - top) (o, 1);  o / l, top + log l. */
template <class T> static void reduce(struct team *t)
{
    size_t rows = rows_of(&t->p), d = t->p.head_dim_v;
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        CUDA_CHECK(cudaMemcpyAsync(g->gathered, g->part + rows * d, 4 * rows,
                                   cudaMemcpyDeviceToDevice, g->compute));
    }
    all_reduce(t, true, rows);
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, rescale_kernel, g->part, g->gathered, rows, d));
    }
    all_reduce(t, false, floats_of(&t->p));
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel<T>, (T *)g->o, g->lse, g->part,
                                      g->gathered, rows, d));
    }
}

void tree_attention(struct team *t)
{
    if (rows_of(&t->p) == 0) return;
    for (int i = 0; i < t->world->local; i++) fold_own_keys(t, &t->gpu[i]);
    if (t->strategy == TREE && t->p.dtype == BF16) gather_and_fold<__nv_bfloat16>(t);
    else if (t->strategy == TREE) gather_and_fold<__half>(t);
    else if (t->p.dtype == BF16) reduce<__nv_bfloat16>(t);
    else reduce<__half>(t);
}
