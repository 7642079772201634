/* ranks.h: one attention problem on several processes (ranks).
 *
 * Attention is a fold in a monoid (monoid.h), so its keys may be cut between machines as they
 * were cut between chunks and threads.  Each rank folds what it holds with the fast kernel of
 * fast/, and the partial answers are merged.  Two strategies:
 *
 *     tree.c   keys are cut, every rank has all queries; one reduction merges the answers
 *     ring.c   keys and queries are cut; keys and values travel round the ranks
 *
 * The answer so far is a row (m, l, o) for each query of every head, o [head_dim_v] not yet divided
 * by l: an element of SE(R^dv) x SE(R).  lse = m + log l would not do in place of m and l: where all
 * scores of a row are huge, as behind a mask of -1e30, a float rounds log l away. */
#pragma once

#include <mpi.h>

#include "monoid.h"
#include "ranks/shards.h"

enum { PLACES = 3 };

/* What this rank holds of the problem `whole`. */
struct shard {
    struct chunks queries, keys; /* rows of the whole; a shard's chunks lie one after another */
    size_t n_q, n_k;             /* their numbers */
    float *q;                    /* [batch, heads_q, n_q, head_dim] */
    float *keys_at[PLACES];      /* of one rank: k [batch, heads_kv, n, head_dim], then v; the
                                  * rank's own, and arriving ones (schedule.h) */
    float *rows;                 /* the answer so far [batch, heads_q, n_q, head_dim_v + 2] */
    float *arriving;             /* tree: that of another rank */
    float *part_o, *part_m, *part_l; /* of one piece: [batch, heads_q, rows, ...]; o / l */
    float *part_bias;
    float *owned[16];            /* all of these, to be freed */
    int n_owned;
};
extern struct shard shard;

/* Merges y into a row of the answer. */
static inline void merge_into(float *row, const struct aggregate *y)
{
    struct aggregate x = {row[0], row[1], row + 2, y->d};
    aggregate_merge(&x, y);
    row[0] = x.m, row[1] = x.l;
}

/* answer = answer . attention(own queries, keys), every visible piece of it.
 *   keys     those of rank `owner`
 *   pending  two requests that MPI may move on between the pieces, or NULL */
void fold_keys(const float *keys, int owner, MPI_Request *pending);

/* The answer of all ranks, in `rows`: each rank's queries on that rank, or (tree) all on
 * rank 0. */
void ring_attention(void);
void tree_attention(void);
