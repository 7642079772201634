/* ranks.h: one attention problem on several processes (ranks).
 *
 * Attention is a fold in a monoid (monoid.h), so its keys may be cut between machines as they
 * were cut between chunks and threads.  Each rank folds what it holds with the fast kernel of
 * fast/, and the partial answers are merged.  Two strategies:
 *
 *     tree.c   keys are cut, every rank has all queries; one reduction merges the answers
 *     ring.c   keys and queries are cut; keys and values travel round the ranks
 *
 * An answer is o (rows, head_dim_v), normalised, and lse (rows): the element
 * (v, l, m) = (o, 1, lse) of SE(R^dv) x SE(R), which stands for the same number. */
#ifndef RANKS_H
#define RANKS_H

#include <mpi.h>

#include "chunks.h"

/* What a problem may ask for when it is cut between ranks. */
enum { RANK_FEATURES = BASIC_FEATURES | WITH_SHIFT };

/* What one rank has of a problem.  Arrays are contiguous over the rows it holds.
 *   q [batch, heads_q, n_q, head_dim]      k, v [batch, heads_kv, n_k, ...]
 *   bias [n_q, n_k] (tree), [n_q, keys of all ranks] (ring)
 *   o [batch, heads_q, n_q, head_dim_v]    lse [batch, heads_q, n_q] */
struct shard {
    struct problem whole;        /* the problem of all ranks together */
    struct chunks queries, keys; /* global rows of it that this rank holds */
    const float *q, *k, *v, *bias;
    float *o, *lse;
    MPI_Comm ranks;
};

enum strategy { TREE, TREE_FIXED_ORDER, RING, RING_UNBALANCED, N_STRATEGIES };

/* The rows of queries and keys that `rank` holds under the strategy. */
struct chunks strategy_queries(enum strategy s, const struct problem *whole, int rank,
                               int ranks);
struct chunks strategy_keys(enum strategy s, const struct problem *whole, int rank, int ranks);

/* The answer of this rank's queries, in w->o and w->lse.  Every rank calls it.  TREE leaves
 * the answer on rank 0 only.  NULL, or why it failed here. */
const char *tree_attention(const struct shard *w, int fixed_order);
const char *ring_attention(const struct shard *w, enum strategy s);

/* --- local.c --- */

/* The answer of the queries `rows` (global) over the keys `cols` (global), all heads, by the
 * fastest variant of stage 4.  Keys that the causal mask hides are hidden.
 *   q, bias (rows.first first), k, v (cols.first first)   o, lse  the answer
 * Returns 0 when no query sees a key: then nothing is written.  -1 without memory. */
int local_attention(const struct shard *w, const float *q, struct key_range rows,
                    const float *k, const float *v, struct key_range cols,
                    const float *bias, float *o, float *lse);

/* (o, lse) = (o, lse) . (o2, lse2), row by row.  rows x d. */
void answer_merge(size_t rows, size_t d, float *o, float *lse, const float *o2,
                  const float *lse2);

/* The unit: o = 0, lse = -INFINITY. */
void answer_unit(size_t rows, size_t d, float *o, float *lse);

/* Copies rows [range) of every head between an array that holds `from` rows a head and one
 * that holds `to`.   heads x rows x d */
void copy_rows(float *to_array, size_t to_rows, size_t to_first, const float *from_array,
               size_t from_rows, size_t from_first, size_t n, size_t heads, size_t d);

#endif
