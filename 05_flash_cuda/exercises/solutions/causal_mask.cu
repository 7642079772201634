/* causal_mask.cu: exercise of stage 5, 10 points: which keys a query sees.
 *
 *     key j is seen by query i when  j <= i + seqlen_k - seqlen_q     (causal)
 *
#if TASK == 0
 * Task: fill keys_seen().  The kernel (common/products/course/kernel.h) masks by it and, asking for the last
 * query of a block, skips the tiles that no query of the block sees.
 * May be assumed: sizes below 2^30.  seqlen_q may differ from seqlen_k: the diagonal ends in
 * the bottom right corner, and with more queries than keys the first ones see none.
#elif TASK == 1
 * Task: fill first_query().  The kernel (common/products/course/kernel.h) masks by it and, asking for the first
 * key of a tile, skips the tiles that no query of the block sees.
 * May be assumed: sizes below 2^30.  seqlen_q may differ from seqlen_k: the diagonal ends in
 * the bottom right corner, and with more keys than queries every query sees the first ones.
#endif
 * Sizes are of an unsigned type: beware of differences below 0.
 *
 * Time: 30 minutes.
 * Hint: which key does the last query see when there are more keys than queries?
 * Hint: the number may be negative before it is cut to 0.
 * Right or wrong:  make exercise 5 EX=causal_mask      (without a GPU: on the CPU) */
#include "course/exercise.h"

enum {
    Br = 32,       /* queries of a block: one for each thread */
    Bc = 16,       /* keys of a tile */
    MAX_COLS = 128 /* largest head_dim and head_dim_v */
};

/* Shared memory.  It is not cleared: what was not written is not a number. */
struct tile { float k[Bc][MAX_COLS], v[Bc][MAX_COLS]; };

#define ASKS_FOR_MASK
#include "course/kernel.h"

/* >>> your part: functions, #include and #define may be added here */
#if TASK == 0
/* How many keys query i sees, the first ones: 0 .. seqlen_k. */
static __device__ int keys_seen(const struct problem &p, int i)
#else
/* The first query that sees key j, 0 <= j < seqlen_k; all queries after it see j, too. */
static __device__ int first_query(const struct problem &p, int j)
#endif
{
    /* solution begin */
#if TASK == 0
    int seqlen_q = (int)p.seqlen_q, seqlen_k = (int)p.seqlen_k;
    if (!p.causal) return seqlen_k;
    return max(0, min(seqlen_k, i + 1 + seqlen_k - seqlen_q));
#else
    return p.causal ? max(0, j + (int)p.seqlen_q - (int)p.seqlen_k) : 0;
#endif
    /* skeleton
    // Your code.
#if TASK == 0
    return p.causal ? 0 : (int)p.seqlen_k;
#else
    return p.causal ? (int)p.seqlen_q : 0;
#endif
    solution end */
}
/* <<< end of your part */

static __device__ bool is_seen(const struct problem &p, int i, int j)
{
#if TASK == 0
    return j < keys_seen(p, i);
#else
    return j < (int)p.seqlen_k && i >= first_query(p, j);
#endif
}

PROGRAM(5, causal_mask, "a kernel with a causal mask",
        .types = TYPE(F32), ALL_PROBLEMS, .refuses = above_128_columns,
        .does = {{OP_ATTENTION, attention<load_scaled, product, is_seen, push_keys>}})
