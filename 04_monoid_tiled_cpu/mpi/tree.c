/* tree.c: keys cut between the ranks, one reduction with the monoid as its operation.
 *
 *     rank r:   x_r = fold of its keys, for all queries
 *     rank 0:   x_0 . x_1 . ... . x_(R-1)
 *
 * Each rank reads K and V once in its memory; what travels is one row (m, l, o) per query and
 * head, whatever the number of keys.  That is little for a few queries, as when text is
 * generated (decode), and much for a long prompt: there the ring is better.
 *
 * MPI promises to reduce as if from rank 0 upwards, but may place the parentheses as it likes,
 * and, when told that the operation commutes, also the order.  The monoid is associative and
 * commutative, so each of these is right; rounding differs between them, so the last bits may
 * change with the number of ranks or the library.  Fixed order gathers all parts at rank 0 and
 * merges them by rank: the same bits for every run with as many ranks. */
#include "ranks.h"

/* b = a . b, row by row. */
static void merge_rows(float *a, float *b, size_t n, size_t d)
{
    for (size_t i = 0; i < n; i++, a += d + 2, b += d + 2) {
        struct aggregate x = {a[0], a[1], a + 2, d};
        merge_into(b, &x);
    }
}

/* The operation of the monoid as MPI calls it. */
static void merge_for_mpi(void *a, void *b, int *count, MPI_Datatype *type)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(*type, &lower, &extent);
    merge_rows(a, b, (size_t)*count, (size_t)extent / sizeof(float) - 2);
}

static void reduce_rows(float *rows, int n, MPI_Datatype row)
{
    MPI_Op op;
    MPI_Op_create(merge_for_mpi, 1, &op);
    MPI_Reduce(world.first ? rows : MPI_IN_PLACE, rows, n, row, op, 0, MPI_COMM_WORLD);
    MPI_Op_free(&op);
}

/* The same in a fixed order: rank r's rows arrive after those of ranks 0 .. r - 1. */
static void gather_rows(float *rows, int n, MPI_Datatype row)
{
    enum { TAG = 1 };
    if (world.first) MPI_Send(rows, n, row, 0, TAG, MPI_COMM_WORLD);
    for (int r = 1; !world.first && r < world.ranks; r++) {
        MPI_Recv(shard.arriving, n, row, r, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        merge_rows(shard.arriving, rows, (size_t)n, whole.head_dim_v);
    }
}

void tree_attention(void)
{
    size_t n = whole.batch * whole.heads_q * whole.seqlen_q;
    MPI_Datatype row;
    MPI_Type_contiguous((int)whole.head_dim_v + 2, MPI_FLOAT, &row);
    MPI_Type_commit(&row);
    fold_keys(shard.keys_at[0], world.first, NULL);
    (strategy->reduces ? reduce_rows : gather_rows)(shard.rows, (int)n, row);
    MPI_Type_free(&row);
}
