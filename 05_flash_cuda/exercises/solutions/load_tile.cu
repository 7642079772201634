/* load_tile.cu: exercise of stage 5, 15 points: a tile into shared memory.
 *
 *     shared.k[r][c] = k[r * head_dim + c]       r < n, c < head_dim
 *     shared.v[r][c] = v[r * head_dim_v + c]     r < n, c < head_dim_v
 *
 * Task: fill load_tile().  The Br threads of the block
 * share the work, neighbours taking neighbouring elements, with a barrier (__syncthreads) on each
 * side of it.
 * May be assumed: n from 1 to Bc; both head dimensions from 1 to MAX_COLS; they may
 * differ.  Row n may lie behind the end of k: it must not be read.  Rows n and up of
 * the tile may hold anything: nobody reads them.
 *
 * Each element is loaded once, and what is loaded is counted.
 *
 * Point: cases many_tiles, ragged.
 * Time: 45 minutes.
 * Hint: the threads of the block share the elements out: thread t takes t, t + Br, t + 2 Br, ...
 * Hint: two barriers: nobody may overwrite what another still reads, nobody may read what
 *       is not there yet.
 * Right or wrong:  make exercise 5 EX=load_tile      (without a GPU: on the CPU) */
#include "harness.h"
#include "course/kernel.h"

enum {
    Br = 32,       /* queries of a block: one for each thread */
    Bc = 16,       /* keys of a tile */
    MAX_COLS = 128 /* largest head_dim and head_dim_v */
};

/* Shared memory.  It is not cleared: what was not written is not a number. */
struct tile { float k[Bc][MAX_COLS], v[Bc][MAX_COLS]; };

/* Copies n keys and values into shared memory, by all threads of the block together.
 *   k (n, head_dim), v (n, head_dim_v)  the tile's rows in main memory; n <= Bc
 * Before: all threads have finished with the tile that was there.  After: all threads see
 * all of the new one. */
static __device__ void load_tile(struct tile &shared, global<const float> k, global<const float> v,
                                 int n, int head_dim, int head_dim_v)
{
    /* solution begin */
    __syncthreads(); /* nobody reads the previous tile any more */
    for (int e = threadIdx.x; e < n * head_dim; e += Br)
        shared.k[e / head_dim][e % head_dim] = k[e];
    for (int e = threadIdx.x; e < n * head_dim_v; e += Br)
        shared.v[e / head_dim_v][e % head_dim_v] = v[e];
    __syncthreads(); /* the tile is complete */
    /* solution end */
}

/* Loads all tiles.  Each thread writes back what another thread has loaded. */
static __global__ void kernel(const float *k, const float *v, float *k_out, float *v_out, int seqlen_k,
                              int head_dim, int head_dim_v)
{
    struct tile &shared = dynamic_shared<struct tile>();
    for (int j_0 = 0; j_0 < seqlen_k; j_0 += Bc) {
        int n = min(+Bc, seqlen_k - j_0);
        load_tile(shared, {k + j_0 * head_dim, (size_t)(n * head_dim)},
                  {v + j_0 * head_dim_v, (size_t)(n * head_dim_v)}, n, head_dim, head_dim_v);
        for (int e = Br - 1 - threadIdx.x; e < n * head_dim; e += Br)
            k_out[j_0 * head_dim + e] = shared.k[e / head_dim][e % head_dim];
        for (int e = Br - 1 - threadIdx.x; e < n * head_dim_v; e += Br)
            v_out[j_0 * head_dim_v + e] = shared.v[e / head_dim_v][e % head_dim_v];
    }
}

/* The judge's call. */
void answer(const struct call *c)
{
    launch(1, Br, sizeof(struct tile), kernel, c->x[0], c->x[1], c->y[0], c->y[1], (int)c->n[0],
           (int)c->n[1], (int)c->n[2]);
    c->y[2][0] = (float)counted::n_loads, c->y[2][1] = (float)counted::n_pieces(), c->y[2][2] = 0;
}
