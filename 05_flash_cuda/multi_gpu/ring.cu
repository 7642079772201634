/* ring.cu: queries stay on their GPU, keys and values travel round the GPUs.
 *
 *     for step 0 ... R - 1:
 *         copy stream:     send the keys in hand to the next rank, receive those of the last
 *         compute stream:  answer = answer . attention(own queries, keys in hand)
 *
 * Liu, Zaharia and Abbeel 2023, "Ring Attention"; stage 4's mpi/ring.c is the same in C.
 * A kernel merges its tiles with the answer before it writes them (hopper/answer.h).
 *
 * The copies run under the kernels.  An event after each copy and after each step keeps the two
 * streams in order: keys are used after they have arrived, and a place is overwritten
 * after the kernel that read it.  NCCL's copies are kernels too and need some
 * multiprocessors, so they are enqueued before the attention kernel, in a stream of higher
 * priority. */
#include "team.h"

/* Bytes of the keys and values of a rank. */
static size_t bytes_of_keys(int rank)
{
    const struct problem *p = &whole;
    struct chunks keys = keys_of(strategy, p, rank, world.ranks);
    return p->batch * p->heads_kv * chunks_size(&keys) * (p->head_dim + p->head_dim_v) *
           dtype_size(p->dtype);
}

/* Enqueues the exchange of one step on all GPUs of this process. */
static void exchange(int step)
{
    int ranks = world.ranks;
    EACH_GPU(g)
        if (step >= 2) CUDA_CHECK(cudaStreamWaitEvent(g->copy, g->when[COMPUTED][step - 1], 0));
    NCCL_CHECK(ncclGroupStart());
    EACH_GPU(g) {
        int now = owner_of(g->rank, step, ranks), next = owner_of(g->rank, step + 1, ranks);
        NCCL_CHECK(ncclSend(g->keys_at[place_of_step(step)], bytes_of_keys(now),
                               ncclUint8, (g->rank + 1) % ranks, g->comm, g->copy));
        NCCL_CHECK(ncclRecv(g->keys_at[place_of_step(step + 1)], bytes_of_keys(next),
                               ncclUint8, (g->rank - 1 + ranks) % ranks, g->comm, g->copy));
    }
    NCCL_CHECK(ncclGroupEnd());
    EACH_GPU(g) CUDA_CHECK(cudaEventRecord(g->when[ARRIVED][step + 1], g->copy));
}

/* Enqueues what one GPU computes in a step. */
static void compute(struct gpu *g, int step)
{
    int owner = owner_of(g->rank, step, world.ranks);
    struct chunks keys = keys_of(strategy, &whole, owner, world.ranks);
    struct piece pieces[MOST_PIECES];
    int n = pieces_of(&whole, &g->queries, &keys, pieces);
    if (step > 0) CUDA_CHECK(cudaStreamWaitEvent(g->compute, g->when[ARRIVED][step], 0));
    bool all_rows = n > 0 && range_size(pieces[0].rows) == g->n_q;
    if (step == 0 && !all_rows && g->n_q) clear_part(g);
    for (int i = 0; i < n; i++)
        fold_piece(g, &pieces[i], g->keys_at[place_of_step(step)], chunks_size(&keys),
                   step > 0 || i > 0 || !all_rows, step + 1 < world.ranks || i + 1 < n);
    CUDA_CHECK(cudaEventRecord(g->when[COMPUTED][step], g->compute));
}

void ring_attention(void)
{
    int ranks = world.ranks;
    for (int step = 0; step < ranks; step++) {
        if (step + 1 < ranks) exchange(step);
        EACH_GPU(g) compute(g, step);
    }
}
