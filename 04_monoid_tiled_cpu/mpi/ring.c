/* ring.c: queries stay, keys and values travel round the ranks.
 *
 *     for step 0 .. R - 1:
 *         send the keys and values in hand to the next rank, receive those of the last one
 *         meanwhile: answer = answer . attention(own queries, keys in hand)
 *
 * Liu, Zaharia and Abbeel 2023, "Ring Attention".  A rank holds 1/R of the queries and at most
 * three buffers of 1/R of the keys and values, so the memory of each falls as 1/R.  A step
 * computes for a time that grows with the square of the length and moves bytes that grow with
 * the length: on long sequences the copy hides behind the products.
 *
 * Under a causal mask the rank of the first queries would have nothing to do in most steps.
 * With zigzag chunks (schedule.h) every rank has the same number of visible pairs in each step;
 * the striped and zigzag orders were published with later ring attention implementations. */
#include "ranks.h"

/* Floats of the keys and values of a rank. */
static int keys_floats(int rank)
{
    struct chunks keys = keys_of(strategy, &whole, rank, world.ranks);
    return (int)(chunks_size(&keys) * whole.batch * whole.heads_kv *
                 (whole.head_dim + whole.head_dim_v));
}

void ring_attention(void)
{
    enum { TAG = 2 };
    int me = world.first, ranks = world.ranks;
    for (int step = 0; step < ranks; step++) {
        float *now = shard.keys_at[place_of_step(step)];
        float *next = shard.keys_at[place_of_step(step + 1)];
        int owner = owner_of(me, step, ranks), last = step + 1 == ranks;
        MPI_Request pending[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        if (!last) {
            MPI_Irecv(next, keys_floats(owner_of(me, step + 1, ranks)), MPI_FLOAT,
                      (me - 1 + ranks) % ranks, TAG, MPI_COMM_WORLD, &pending[0]);
            MPI_Isend(now, keys_floats(owner), MPI_FLOAT, (me + 1) % ranks, TAG,
                      MPI_COMM_WORLD, &pending[1]);
        }
        fold_keys(now, owner, last ? NULL : pending);
        MPI_Waitall(2, pending, MPI_STATUSES_IGNORE);
    }
}
