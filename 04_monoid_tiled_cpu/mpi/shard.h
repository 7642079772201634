/* shard.h: the memory of a shard, and answers brought together on rank 0. */
#ifndef SHARD_H
#define SHARD_H

#include "ranks.h"

/* Sets the rows that this rank holds and allocates its q, k, v, bias, o and lse (not
 * filled).  NULL, or why not; every rank gets an answer, "" for one whose neighbour failed. */
const char *shard_new(struct shard *w, const struct problem *whole, enum strategy s,
                      MPI_Comm ranks);
void shard_free(struct shard *w);

/* Fills the inputs from arrays of the whole problem. */
void shard_cut(struct shard *w, enum strategy s, const struct arrays *whole);

/* The strategy on this shard: NULL, or why it failed here. */
const char *shard_attention(const struct shard *w, enum strategy s);

/* Rows of the answer on rank 0: chunk `chunk` of head `head` (of all batches) of `rank`, of o
 * (rows, head_dim_v) or lse (rows).  Rank 0 and `rank` call it, both for the same rows. */
void shard_fetch(const struct shard *w, enum strategy s, int rank, size_t head, int chunk,
                 int is_lse, float *to);

/* o and lse of the whole problem on rank 0, from what shard_attention() left on every rank.
 * The pointers are used on rank 0 only. */
void shard_gather(const struct shard *w, enum strategy s, float *o, float *lse);

/* Do all ranks agree that nothing is wrong?  why: this rank's complaint or NULL.  Where some
 * rank complains, rank 0 writes the first complaint, with its rank, into text [size] and every
 * rank gets 1. */
int ranks_complain(const char *why, char *text, size_t size, MPI_Comm ranks);

#endif
