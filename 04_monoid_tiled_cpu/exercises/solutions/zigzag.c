/* zigzag.c: exercise of stage 4, 10 points: who computes which queries.
 *
 * R processes share the queries; a *rank* is one of them, and its number.  Under a causal mask
 * query i sees i + 1 keys.  Contiguous parts of the queries are then unequal work: the last rank
 * has 2 R - 1 times that of the first.  Cut the queries into 2 R chunks instead, and give every
 * rank two of them, so that all have the same work.
 *
 * Task: fill chunk_of().  rank 0 .. ranks - 1 asks for its first (which = 0) and its second
 * (which = 1) chunk, 0 .. 2 ranks - 1.  Every chunk belongs to exactly one rank.
 * Chunk c has 2 c + 1 parts of the work, and every rank must have the same.
 *
 * Point: cases few, many.
 * Time: 30 minutes.
 * Hint: write the work of the 2 R chunks side by side: 1, 3, 5, ...  Which two add up to the same?
 * Right or wrong:  make exercise 4 EX=zigzag */
#include "course/exercise.h"

/* The chunk, 0 .. 2 ranks - 1, that a rank computes first (which = 0) or second (which = 1). */
static size_t chunk_of(size_t ranks, size_t rank, size_t which)
{
    /* solution begin */
    return which ? 2 * ranks - 1 - rank : rank;
    /* skeleton
    return ranks - ranks + rank - rank + which;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    c->y[0][0] = (float)chunk_of((size_t)c->n[0], (size_t)c->n[1], (size_t)c->n[2]);
}
