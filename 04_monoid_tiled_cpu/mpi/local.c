/* local.c: what a rank does alone: the kernel of fast/ on a piece of the problem, and the merge
 * with the answer so far. */
#include "ranks.h"

#include <string.h>

#include "problem/host_memory.h"

extern const struct variant tiled_all_cores; /* fast/tiled.c */

/* row = row . part, for rows `first` ... of every head. */
static void merge_part(size_t first, size_t rows)
{
    size_t heads = whole.batch * whole.heads_q, d = whole.head_dim_v;
#pragma omp parallel for schedule(static) if (heads * rows * d > 1 << 14)
    for (size_t r = 0; r < heads * rows; r++) {
        size_t own = r / rows * shard.n_q + first + r % rows;
        struct aggregate y = {shard.part_m[r], shard.part_l[r], shard.part_o + r * d, d};
        for (size_t c = 0; c < d; c++) y.o[c] *= y.l;
        merge_into(shard.rows + own * (d + 2), &y);
    }
}

/* The bias of a piece, an array of its own. */
static const float *bias_of_piece(const struct piece *x, const struct chunks *keys)
{
    size_t n = range_size(x->cols);
    if (!whole.has_bias) return NULL;
    for (size_t i = 0; i < range_size(x->rows); i++) {
        const float *row = whole_bias +
                           row_of_whole(&shard.queries, x->rows.first + i) * whole.seqlen_k;
        for (size_t j = 0; j < n; j++)
            shard.part_bias[i * n + j] = row[row_of_whole(keys, x->cols.first + j)];
    }
    return shard.part_bias;
}

/* The attention of one piece, merged.   in_hand: which keys of the whole `keys` are */
static void fold_piece(const struct piece *x, const float *keys, const struct chunks *in_hand)
{
    struct problem p = problem_of_piece(&whole, x);
    size_t n_k = chunks_size(in_hand), d = p.head_dim, dv = p.head_dim_v;
    size_t hq = p.heads_q, hk = p.heads_kv;
    p.q_strides = (struct strides){hq * shard.n_q * d, shard.n_q * d, d};
    p.k_strides = (struct strides){hk * n_k * d, n_k * d, d};
    p.v_strides = (struct strides){hk * n_k * dv, n_k * dv, dv};
    const float *v = keys + p.batch * hk * n_k * d;
    struct arrays a = {
        .q = shard.q + x->rows.first * d, .k = keys + x->cols.first * d,
        .v = v + x->cols.first * dv, .bias = bias_of_piece(x, in_hand),
        .o = shard.part_o, .lse = shard.part_m, .l = shard.part_l};
    size_t bytes = tiled_all_cores.workspace(&p);
    a.workspace = bytes ? memory_new(bytes) : NULL;
    if (bytes && !a.workspace) world_abort("no memory for a piece of the attention");
    variant_call(&tiled_all_cores, &p, &a);
    memory_free(a.workspace);
    merge_part(x->rows.first, range_size(x->rows));
}

void fold_keys(const float *keys, int owner, MPI_Request *pending)
{
    struct chunks in_hand = keys_of(strategy, &whole, owner, world.ranks);
    struct piece pieces[MOST_PIECES];
    int ignored, n = pieces_of(&whole, &shard.queries, &in_hand, pieces);
    for (int i = 0; i < n; i++) {
        fold_piece(&pieces[i], keys, &in_hand);
        if (pending) MPI_Testall(2, pending, &ignored, MPI_STATUSES_IGNORE);
    }
}
