/* push_tile.cu: exercise of stage 5, 20 points: the online softmax inside a kernel.
 *
 *     m_new = max(m, max_j s_j)
 *     l     = l * exp(m - m_new) + sum_j exp(s_j - m_new)
 *     o     = o * exp(m - m_new) + sum_j exp(s_j - m_new) v_j
 *
 * Task: fill push_tile(), which the kernel (common/products/course/kernel.h) calls for each tile: one maximum
 * and one correction for all of it.  Each thread has its own query, so there is nothing to wait for
 * and nothing to exchange.
 * May be assumed: head_dim_v <= MAX_COLS.  Any of the scores may be -INFINITY, all of
 * them too, also in the first tile; the rows of v that belong to them may hold anything.
 * A NaN score makes l and o NaN.
 *
 * Time: 60 minutes.
 * Hint: the same step as in stage 3, with the maximum of a whole tile.
 * Hint: a tile of masked scores only must leave m as it is: then the factor is 1, not
 *       exp(infinity - infinity).
 * Right or wrong:  make exercise 5 EX=push_tile      (without a GPU: on the CPU) */
#include "course/exercise.h"

enum {
    Br = 32,       /* queries of a block: one for each thread */
    Bc = 16,       /* keys of a tile */
    MAX_COLS = 128 /* largest head_dim and head_dim_v */
};

/* Shared memory.  It is not cleared: what was not written is not a number. */
struct tile { float k[Bc][MAX_COLS], v[Bc][MAX_COLS]; };

#define ASKS_FOR_PUSH
#include "course/kernel.h"

/* >>> your part: functions, #include and #define may be added here */
/* Takes a tile into the state of the thread's query.
 *   s (Bc)  scores; -INFINITY: masked, or behind the end of the keys
 *   v (Bc, MAX_COLS)  the tile's values      o (head_dim_v)  un-normalised so far */
static __device__ void push_tile(struct state *x, float *o, const float *s,
                                 const float (*v)[MAX_COLS], int head_dim_v)
{
    /* solution begin */
    float m_new = x->m;
    for (int j = 0; j < Bc; j++) m_new = s[j] > m_new ? s[j] : m_new;
    float correction = m_new == x->m ? 1.0f : expf(x->m - m_new);
    x->m = m_new;
    x->l *= correction;
    for (int d = 0; d < head_dim_v; d++) o[d] *= correction;
    for (int j = 0; j < Bc; j++) {
        if (s[j] == -INFINITY) continue;
        float weight = expf(s[j] - m_new);
        x->l += weight;
        for (int d = 0; d < head_dim_v; d++) o[d] = fmaf(weight, v[j][d], o[d]);
    }
    /* skeleton
    // Your code.
    solution end */
}
/* <<< end of your part */

PROGRAM(5, push_tile, "a kernel that takes in tiles online",
        .types = TYPE(F32), ALL_PROBLEMS, .refuses = above_128_columns,
        .does = {{OP_ATTENTION, attention<load_scaled, product, sees, push_tile>}})
