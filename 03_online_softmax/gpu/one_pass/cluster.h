/* cluster.h: a row in the shared memories of a cluster of blocks (Hopper).
 *
 * Cluster c takes rows c, c + clusters, ...; block `rank` of it takes the rank-th slice of
 * each.  A slice passes through shared memory in chunks, in a circular buffer of `stages`
 * chunks.  Three roles in a block work on it at the same time, each at its own row:
 *
 *     producer  one thread issues the copy of the next chunk as soon as a stage is free, and
 *               so runs ahead into the next rows
 *     summers   add what arrives to their states (m, l); at the end of the slice the state of
 *               the block goes to every block of the cluster
 *     dividers  merge the states of the blocks, then read the same chunks again:
 *               y = exp(x - m) / l; a stage is free once its chunk is in registers
 *
 * The blocks of a cluster write into each other's shared memory: an asynchronous store that
 * completes on a barrier there. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include "cluster_ptx.h"
#include "row_parts.h"

#ifdef __CUDACC__

#define ROLE_THREADS 256 /* summers, and as many dividers; a warp more for the producer */
#define BLOCK_THREADS (2 * ROLE_THREADS + WARP)
#define PACKS_EACH 2                          /* packs of a chunk for a thread, at most */
#define CHUNK_MAX (ROLE_THREADS * PACKS_EACH) /* packs: 8 KB */
#define BUFFER_BYTES (26 * CHUNK_MAX * 16)    /* 208 of the 227 KB of a block */
#define STAGES_MAX 28                         /* stages of the buffer, at most */
#define CLUSTER_MAX 16                        /* blocks in a cluster */
/* Rows whose states may be in flight.  The summers of a block are less than STAGES_MAX + 1
 * rows ahead of its dividers, and those of another block that much ahead of these. */
#define EXCHANGES 64
static_assert(EXCHANGES > 2 * (STAGES_MAX + 1), "a state is read before the next comes");

/* blocks: of a cluster; clusters: how many; slice: packs of a row in one block, cut into
 * `chunks` pieces of `chunk` packs; stages: pieces in the buffer. */
struct plan { int blocks, clusters, slice, chunk, chunks, stages; };

struct cluster_shared {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX], arrived[EXCHANGES];
    struct state of_block[EXCHANGES][CLUSTER_MAX]; /* written by every block */
    struct state of_warp[2][WARP];
    alignas(128) uint4 buffer[BUFFER_BYTES / 16]; /* stages * chunk packs */
};
static_assert(sizeof(struct cluster_shared) <= 227 * 1024, "one block per multiprocessor");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* A barrier for the summers alone. */
static __device__ inline void summers_meet(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(ROLE_THREADS) : "memory");
}

/* Where a role is in the circular buffer: the stage, and the phase bit of its barriers. */
struct pipeline_state { int stage, phase; };

static __device__ inline void advance(struct pipeline_state *p, int stages)
{
    if (++p->stage == stages) {
        p->stage = 0;
        p->phase ^= 1;
    }
}

/* What a block does: its cluster and its rank in it, and the problem. */
template <class T> struct work {
    const T *x;
    T *y;
    size_t rows;
    int cols, cluster, rank, log;
    struct plan plan;
};

/* How many packs chunk c of the block's slice holds in this row, and its first one. */
template <class T>
static __device__ inline int chunk_packs(const struct work<T> &w, struct parts r,
                                         int c, int *first)
{
    const int in_slice = c * w.plan.chunk;
    *first = w.rank * w.plan.slice + in_slice;
    return max(0, min(min(w.plan.chunk, w.plan.slice - in_slice), r.packs - *first));
}

/* The producer: one thread that keeps the buffer full. */
template <class T>
static __device__ inline void produce(struct cluster_shared &shared,
                                           const struct work<T> &w)
{
    struct pipeline_state at = {0, 1};
    for (size_t row = w.cluster; row < w.rows; row += w.plan.clusters) {
        const struct parts r = parts_of<FULL<T>>(row, w.cols);
        const T *body = w.x + row * w.cols + r.head;
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            barrier_wait(&shared.empty[at.stage], at.phase);
            barrier_expect(&shared.full[at.stage], packs * 16);
            if (packs > 0)
                bulk_load(shared.buffer + at.stage * w.plan.chunk,
                          body + (size_t)first * FULL<T>, packs * 16,
                          &shared.full[at.stage]);
            advance(&at, w.plan.stages);
        }
    }
}

/* Waits for the chunk at `at` and takes thread i's packs out of it. */
template <class T>
static __device__ inline void take(struct cluster_shared &shared,
                                   const struct work<T> &w, struct pipeline_state at, int i,
                                   int packs,
                                   struct pack<T, FULL<T>> (&raw)[PACKS_EACH])
{
    const auto *chunk = (const struct pack<T, FULL<T>> *)shared.buffer
                        + at.stage * w.plan.chunk;
    barrier_wait(&shared.full[at.stage], at.phase);
    for (int k = 0; k < PACKS_EACH; k++)
        if (i + k * ROLE_THREADS < packs) raw[k] = chunk[i + k * ROLE_THREADS];
}

/* The state of the block, from those of its summers, to every block of the cluster. */
template <class T>
static __device__ inline void publish(struct cluster_shared &shared,
                                           const struct work<T> &w, size_t turn,
                                           struct state mine, int i)
{
    const int lane = i % WARP, slot = turn % EXCHANGES;
    struct state *of_warp = shared.of_warp[turn % 2];
    mine = lanes_merge(mine);
    if (lane == 0) of_warp[i / WARP] = mine;
    summers_meet();
    if (i >= WARP) return;
    mine = lanes_merge(lane < ROLE_THREADS / WARP ? of_warp[lane] : empty_state());
    if (w.plan.blocks == 1) { /* alone: no cluster to send through */
        if (lane == 0) shared.of_block[slot][0] = mine;
        if (lane == 0) barrier_arrive(&shared.arrived[slot]);
        return;
    }
    if (lane == 0) barrier_expect(&shared.arrived[slot], w.plan.blocks * 8);
    if (lane < w.plan.blocks)
        send(mine, &shared.of_block[slot][w.rank], &shared.arrived[slot], lane);
}

/* The summers.  i: the number of the thread among them. */
template <class T>
static __device__ inline void sum_slices(struct cluster_shared &shared,
                                       const struct work<T> &w, int i)
{
    constexpr int W = FULL<T>;
    struct pipeline_state at = {0, 0};
    size_t turn = 0;
    for (size_t row = w.cluster; row < w.rows; row += w.plan.clusters, turn++) {
        const struct parts r = parts_of<W>(row, w.cols);
        const int edge = w.rank == 0 ? edge_of(r, w.cols, i) : -1;
        const float last[1] = {edge >= 0 ? (float)w.x[row * w.cols + edge] : -INFINITY};
        struct state mine = empty_state();
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            struct pack<T, W> raw[PACKS_EACH];
            take(shared, w, at, i, packs, raw);
            float v[PACKS_EACH * W];
            for (int k = 0; k < PACKS_EACH; k++)
                for (int e = 0; e < W; e++)
                    v[k * W + e] = i + k * ROLE_THREADS < packs ? (float)raw[k].e[e]
                                                                : -INFINITY;
            push(&mine, v);
            advance(&at, w.plan.stages);
        }
        if (edge >= 0) push(&mine, last);
        publish(shared, w, turn, mine, i);
    }
}

/* The state of the row, from all blocks of the cluster; the same bits in every divider. */
template <class T>
static __device__ inline struct state collect(struct cluster_shared &shared,
                                                     const struct work<T> &w,
                                                     size_t turn, int i)
{
    const int lane = i % WARP, slot = turn % EXCHANGES;
    barrier_wait(&shared.arrived[slot], turn / EXCHANGES % 2);
    if (w.plan.blocks == 1) return shared.of_block[slot][0];
    return lanes_merge(lane < w.plan.blocks ? shared.of_block[slot][lane] : empty_state());
}

/* The dividers. */
template <class T>
static __device__ inline void divide_slices(struct cluster_shared &shared,
                                          const struct work<T> &w, int i)
{
    constexpr int W = FULL<T>;
    struct pipeline_state at = {0, 0};
    size_t turn = 0;
    for (size_t row = w.cluster; row < w.rows; row += w.plan.clusters, turn++) {
        const struct parts r = parts_of<W>(row, w.cols);
        T *y_i = w.y + row * w.cols;
        const int edge = w.rank == 0 ? edge_of(r, w.cols, i) : -1;
        const float last = edge >= 0 ? (float)w.x[row * w.cols + edge] : 0.0f;
        const struct normaliser f = normaliser_of(collect(shared, w, turn, i), w.log);
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            auto *out = (struct pack<T, W> *)(y_i + r.head) + first;
            struct pack<T, W> raw[PACKS_EACH];
            take(shared, w, at, i, packs, raw);
            __syncwarp();
            if (i % WARP == 0) barrier_arrive(&shared.empty[at.stage]);
            for (int k = 0; k < PACKS_EACH; k++) {
                float v[W];
                for (int e = 0; e < W; e++) v[e] = normalise(f, (float)raw[k].e[e]);
                if (i + k * ROLE_THREADS < packs) store(out + i + k * ROLE_THREADS, v);
            }
            advance(&at, w.plan.stages);
        }
        if (edge >= 0) y_i[edge] = T(normalise(f, last));
    }
}

#endif

/* Softmax or logsoftmax of x [rows, cols].  Reads and writes each element once. */
template <class T>
static __global__ __launch_bounds__(BLOCK_THREADS, 1)
void cluster_kernel(const T *x, T *y, size_t rows, int cols, struct plan plan, int log)
{
#if __CUDA_ARCH__ >= 900
    struct cluster_shared &shared = dynamic_shared<struct cluster_shared>();
    if (threadIdx.x == 0) {
        for (int s = 0; s < plan.stages; s++) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], ROLE_THREADS / WARP);
        }
        for (int s = 0; s < EXCHANGES; s++) barrier_init(&shared.arrived[s], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    /* nobody writes to a block whose barriers are not ready */
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const struct work<T> w = {x, y, rows, cols, (int)blockIdx.x / plan.blocks,
                                   (int)blockIdx.x % plan.blocks, log, plan};
    const int i = threadIdx.x;
    if (i < ROLE_THREADS)
        sum_slices(shared, w, i);
    else if (i < 2 * ROLE_THREADS)
        divide_slices(shared, w, i - ROLE_THREADS);
    else if (i == 2 * ROLE_THREADS)
        produce(shared, w);
#endif
}

#endif
#endif
