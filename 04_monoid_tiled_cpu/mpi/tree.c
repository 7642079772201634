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



#include "monoid.h"
#include "problem/host_memory.h"

/* One row of the reduction, in memory as MPI moves it: m, l, then o (d). */
static struct aggregate row_view(float *row, size_t d)
{
    return (struct aggregate){row[0], row[1], row + 2, d};
}

/* b = a . b, element by element: the operation of the monoid as MPI calls it. */
static void merge_rows(void *a, void *b, int *count, MPI_Datatype *type)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(*type, &lower, &extent);
    size_t width = (size_t)extent / sizeof(float), d = width - 2;
    for (int i = 0; i < *count; i++) {
        float *row = (float *)b + (size_t)i * width;
        struct aggregate x = row_view((float *)a + (size_t)i * width, d);
        struct aggregate y = row_view(row, d);
        aggregate_merge(&y, &x);
        row[0] = y.m;
        row[1] = y.l;
    }
}

/* Reduces count rows of d + 2 floats to rank 0. */
static int reduce_rows(float *rows, int count, size_t d, MPI_Comm ranks)
{
    int me, status;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Comm_rank(ranks, &me);
    MPI_Type_contiguous((int)d + 2, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(merge_rows, 1, &op);
    status = MPI_Reduce(me ? rows : MPI_IN_PLACE, rows, count, type, op, 0, ranks);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    return status;
}

/* The same in a fixed order: rank r's rows arrive after those of ranks 0 .. r - 1. */
static int gather_rows(float *rows, int count, size_t d, MPI_Comm ranks)
{
    enum { TAG = 1 };
    int me, n, status = MPI_SUCCESS;
    MPI_Datatype type;
    MPI_Comm_rank(ranks, &me);
    MPI_Comm_size(ranks, &n);
    MPI_Type_contiguous((int)d + 2, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    if (me) {
        status = MPI_Send(rows, count, type, 0, TAG, ranks);
    } else {
        float *next = memory_new((size_t)count * (d + 2) * sizeof *next);
        for (int r = 1; r < n && next && status == MPI_SUCCESS; r++) {
            status = MPI_Recv(next, count, type, r, TAG, ranks, MPI_STATUS_IGNORE);
            for (size_t i = 0; i < (size_t)count; i++) {
                struct aggregate x = row_view(rows + i * (d + 2), d);
                struct aggregate y = row_view(next + i * (d + 2), d);
                aggregate_merge(&x, &y);
                rows[i * (d + 2)] = x.m;
                rows[i * (d + 2) + 1] = x.l;
            }
        }
        if (!next) status = MPI_ERR_NO_MEM;
        memory_free(next);
    }
    MPI_Type_free(&type);
    return status;
}

/* An answer as rows of the reduction.  An answer that is the unit has l = 0. */
static void pack(size_t n, size_t d, const float *o, const float *lse, float *rows)
{
    for (size_t i = 0; i < n; i++) {
        float *row = rows + i * (d + 2);
        row[0] = lse[i];
        row[1] = lse[i] == -INFINITY ? 0 : 1;
        for (size_t c = 0; c < d; c++) row[2 + c] = o[i * d + c];
    }
}

const char *tree_attention(const struct shard *w, int fixed_order)
{
    const struct problem *p = &w->whole;
    size_t n = p->batch * p->heads_q * p->seqlen_q, d = p->head_dim_v;
    struct key_range queries = {0, p->seqlen_q};
    int me;
    MPI_Comm_rank(w->ranks, &me);
    float *rows = memory_new(size_times(size_times(n, d + 2), sizeof *rows));
    int done = rows ? local_attention(w, w->q, queries, w->k, w->v, w->keys.at[FRONT], w->bias,
                                      w->o, w->lse) : -1;
    /* A rank that failed takes part with the unit; the failure is told afterwards. */
    int failed = done < 0, any;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, w->ranks);
    if (any || n > 1u << 30) {
        memory_free(rows);
        return failed ? "no memory for the rows of the reduction" : any ? "" : "too many rows";
    }
    if (done == 0) answer_unit(n, d, w->o, w->lse);
    pack(n, d, w->o, w->lse, rows);
    int status = fixed_order ? gather_rows(rows, (int)n, d, w->ranks)
                             : reduce_rows(rows, (int)n, d, w->ranks);
    for (size_t i = 0; !me && i < n; i++) {
        struct aggregate x = row_view(rows + i * (d + 2), d);
        aggregate_finish(&x, w->o + i * d, &w->lse[i]);
    }
    memory_free(rows);
    return status == MPI_SUCCESS ? NULL : "MPI could not reduce the answers";
}
