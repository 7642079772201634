/* causal_mask.cu: exercise of stage 5, 10 points: which keys a query sees.
 *
 *     key j is seen by query i when  j <= i + seqlen_k - seqlen_q     (causal)
 *
 * Task: fill keys_seen().  A kernel masks by it, and skips the tiles that no
 * query of a block sees.
 * May be assumed: sizes below 2^30.  seqlen_q may differ from seqlen_k: the diagonal ends in
 * the bottom right corner, and with more queries than keys the first ones see none.
 * Sizes are of an unsigned type: beware of differences below 0.
 *
 * Point: cases more_keys, more_queries.
 * Time: 30 minutes.
 * Hint: which key does the last query see when there are more keys than queries?
 * Hint: the number may be negative before it is cut to 0.
 * Right or wrong:  make exercise 5 EX=causal_mask      (without a GPU: on the CPU) */
#include "harness.h"
#include "course/kernel.h"

/* How many keys query i sees, the first ones: 0 .. seqlen_k. */
static __device__ int keys_seen(const struct problem &p, int i)
{
    /* solution begin */
    int seqlen_q = (int)p.seqlen_q, seqlen_k = (int)p.seqlen_k;
    if (!p.causal) return seqlen_k;
    return max(0, min(seqlen_k, i + 1 + seqlen_k - seqlen_q));
    /* skeleton
    return p.causal ? 0 : (int)p.seqlen_k;
    solution end */
}

static __global__ void kernel(struct problem p, float *keys)
{
    size_t i = blockIdx.x * 32 + threadIdx.x;
    if (i < p.seqlen_q) keys[i] = (float)keys_seen(p, (int)i);
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct problem p = {};
    p.seqlen_q = (size_t)c->n[0], p.seqlen_k = (size_t)c->n[1], p.causal = (int)c->n[2];
    launch((unsigned)(c->n[0] + 31) / 32, 32, 0, kernel, p, c->y[0]);
}
