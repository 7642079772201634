/* zigzag.c: exercise of stage 4, 10 points: who computes which queries.
 *
 * Under a causal mask query i sees i + 1 keys.  R ranks that take contiguous parts of the
 * queries then have unequal work: the last has 2 R - 1 times that of the first.  Cut the queries
 * into 2 R chunks instead, and give every rank two of them, so that all have the same work.
 *
#if TASK == 0
 * Task: fill chunk_of().  rank 0 .. RANKS - 1 asks for its first (which = 0) and its second
 * (which = 1) chunk, 0 .. 2 RANKS - 1.  Every chunk belongs to exactly one rank.
#elif TASK == 1
 * Task: fill rank_of().  Which of the ranks 0 .. RANKS - 1 computes chunk 0 .. 2 RANKS - 1?
#endif
 * A rank whose chunks hold more than their share is stopped, and its last queries stay unwritten.
 *
 * Half of the points: cases random, markers.
 * Time: 30 minutes.
 * Hint: write the work of the 2 R chunks side by side: 1, 3, 5, ...  Which two add up to the same?
 * Right or wrong:  make exercise 4 EX=zigzag */
#include "course/exercise.h"
#include "course/attend.h"

enum { RANKS = 3 /* each has two chunks; one of 3, 4, 5 */ };

/* >>> your part: functions, #include and #define may be added here */
#if TASK == 0
static size_t chunk_of(size_t rank, size_t which)
#else
static size_t rank_of(size_t chunk)
#endif
{
    /* solution begin */
#if TASK == 0
    return which ? 2 * RANKS - 1 - rank : rank;
#else
    return chunk < RANKS ? chunk : 2 * RANKS - 1 - chunk;
#endif
    /* skeleton
    // Your code.
    return 0;
    solution end */
}
/* <<< end of your part */

/* Where chunk c of 2 RANKS of n queries begins. */
static size_t begin_of(size_t n, size_t c)
{
    return c * n / (2 * RANKS);
}

/* The queries of one rank.  Chunk c of a square causal problem has 2 c + 1 parts of the work,
 * all chunks 4 RANKS^2, so that 4 RANKS is a rank's share. */
static void work(const struct head *h, size_t rank)
{
    size_t done = 0;
#if TASK == 0
    for (size_t which = 0; which < 2; which++) {
        size_t c = chunk_of(rank, which);
#else
    for (size_t c = 0; c < 2 * RANKS; c++) {
        if (rank_of(c) != rank) continue;
#endif
        done += 2 * c + 1;
        if (c >= 2 * RANKS || done > 4 * RANKS) return;
        for (size_t i = begin_of(h->seqlen_q, c); i < begin_of(h->seqlen_q, c + 1); i++)
            attend_row(h, i);
    }
}

static void attention_head(const struct head *h)
{
    for (size_t rank = 0; rank < RANKS; rank++) work(h, rank);
}

PROGRAM(4, zigzag, "queries in chunks, two for each rank",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}})
