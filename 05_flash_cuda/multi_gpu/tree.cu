/* tree.cu: keys cut between the GPUs, all queries on each.
 *
 *     rank r:        x_r = fold of its keys, for all queries
 *     every rank:    x_0 . x_1 . ... . x_(R-1)
 *
 * NCCL has no reduction of one's own making.  So every GPU gathers all parts and merges them in the
 * order of the ranks (merge.h): one message, the same bits in every run. */
#include "team.h"

#include "merge.h"

/* The part of this GPU's keys, in g->part. */
static void fold_own_keys(struct gpu *g)
{
    struct piece x[MOST_PIECES]; /* all of its keys are one */
    int sees = pieces_of(&whole, &g->queries, &g->keys, x);
    if (sees) fold_piece(g, x, g->keys_at[0], g->n_k, false, true);
    else clear_part(g);
}

/* All parts on every GPU, merged there. */
template <class T> static void gather_and_fold(void)
{
    size_t rows = whole.batch * whole.heads_q * whole.seqlen_q, d = whole.head_dim_v;
    NCCL_CHECK(ncclGroupStart());
    EACH_GPU(g) {
        NCCL_CHECK(ncclAllGather(g->part, g->gathered, rows * (d + 1), ncclFloat, g->comm,
                                 g->compute));
    }
    NCCL_CHECK(ncclGroupEnd());
    EACH_GPU(g) {
        cudaLaunchConfig_t config = merge_launch(rows, g->compute);
        CUDA_CHECK(cudaLaunchKernelEx(&config, fold_kernel<T>, (T *)g->o, g->lse, g->gathered,
                                      world.ranks, rows, d));
    }
}

void tree_attention(void)
{
    if (gpus[0].n_q == 0 || whole.batch * whole.heads_q == 0) return;
    EACH_GPU(g) fold_own_keys(g);
    if (whole.dtype == BF16) gather_and_fold<__nv_bfloat16>();
    else gather_and_fold<__half>();
}
