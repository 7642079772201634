/* load_tile.cu: exercise of stage 5, 15 points: a tile into shared memory.
 *
#if TASK == 0
 *     shared.k[r][c] = k[r * head_dim + c]       r < n, c < head_dim
#elif TASK == 1
 *     shared.k[c][r] = k[r * head_dim + c]       r < n, c < head_dim: K is transposed
#endif
 *     shared.v[r][c] = v[r * head_dim_v + c]     r < n, c < head_dim_v
 *
 * Task: fill load_tile() for the kernel in common/products/course/kernel.h.  The Br threads of the block
 * share the work, neighbours taking neighbouring elements, with a barrier (__syncthreads) on each
 * side of it.
 * May be assumed: n from 1 to Bc; both head dimensions from 1 to MAX_COLS; they may
 * differ.  Row n may lie behind the end of k: it must not be read.  Rows n and up of
 * the tile may hold anything: nobody reads them.
 *
 * Time: 45 minutes.
 * Hint: the threads of the block share the elements out: thread t takes t, t + Br, t + 2 Br, ...
 * Hint: two barriers: nobody may overwrite what another still reads, nobody may read what
 *       is not there yet.
 * Right or wrong:  make exercise 5 EX=load_tile      (without a GPU: on the CPU) */
#include "course/exercise.h"

enum {
    Br = 32,       /* queries of a block: one for each thread */
    Bc = 16,       /* keys of a tile; one of 8, 16, 24 */
    MAX_COLS = 128 /* largest head_dim and head_dim_v */
};

/* Shared memory.  It is not cleared: what was not written is not a number. */
#if TASK == 0
struct tile { float k[Bc][MAX_COLS], v[Bc][MAX_COLS]; };
#else
struct tile { float k[MAX_COLS][Bc + 1], v[Bc][MAX_COLS]; };
#endif

#define ASKS_FOR_LOAD
#include "course/kernel.h"

/* >>> your part: functions, #include and #define may be added here */
/* Copies n keys and values into shared memory, by all threads of the block together.
 *   k (n, head_dim), v (n, head_dim_v)  the tile's rows in main memory; n <= Bc
 * Before: all threads have finished with the tile that was there.  After: all threads see
 * all of the new one. */
static __device__ void load_tile(struct tile &shared, const float *k, const float *v,
                                 int n, int head_dim, int head_dim_v)
{
    /* solution begin */
    __syncthreads(); /* nobody reads the previous tile any more */
    for (int e = threadIdx.x; e < n * head_dim; e += Br)
#if TASK == 0
        shared.k[e / head_dim][e % head_dim] = k[e];
#else
        shared.k[e % head_dim][e / head_dim] = k[e];
#endif
    for (int e = threadIdx.x; e < n * head_dim_v; e += Br)
        shared.v[e / head_dim_v][e % head_dim_v] = v[e];
    __syncthreads(); /* the tile is complete */
    /* skeleton
    // Your code.
    solution end */
}
/* <<< end of your part */

static __device__ void load(struct tile &shared, const float *k, const float *v, int n, int head_dim,
                            int head_dim_v, float)
{
    load_tile(shared, k, v, n, head_dim, head_dim_v);
}

static __device__ float score(const struct tile &shared, const float *q_i, int j, int head_dim,
                              float scale)
{
    float dot = 0.0f;
#if TASK == 0
    for (int d = 0; d < head_dim; d++) dot = fmaf(q_i[d], shared.k[j][d], dot);
#else
    for (int d = 0; d < head_dim; d++) dot = fmaf(q_i[d], shared.k[d][j], dot);
#endif
    return scale * dot;
}

PROGRAM(5, load_tile, "a kernel that loads tiles into shared memory",
        .types = TYPE(F32), ALL_PROBLEMS, .refuses = above_128_columns,
        .does = {{OP_ATTENTION, attention<load, score, sees, push_keys>}})
