/* hopper_schedule.h: which tile a persistent block computes next.
 *
 * As many blocks as multiprocessors are started, and each works through many tiles; while
 * consumers write one tile's o, the producer already loads the next.
 *
 * Full mask: all tiles cost the same; block b takes b, b + blocks, b + 2 blocks, ...
 *
 * Causal: tiles at the end of the sequence cost most.  They come first, and whoever is
 * free takes the next one from a counter: long jobs first, short ones fill the gaps
 * (Graham's LPT rule).  But all heavy tiles of all heads first would ask for every head's
 * K and V at once; so heads go by in *sections* whose K and V together fit into the L2
 * cache. */
#ifndef HOPPER_SCHEDULE_H
#define HOPPER_SCHEDULE_H

#include "ring.h"

struct schedule {
    int *counter; /* in the workspace: tasks given out by asking */
    int heads;    /* of all batches */
    int section;  /* heads that are worked on together */
    int n_tasks;  /* tiles x heads */
};

/* What a block is told to compute: the tile, or -1: no more. */
struct task {
    int tile, head, batch, safe;
};

/* Task n: sections one after another; inside a section the last tile of every head, then
 * the last but one of every head, ... */
static __device__ __forceinline__ struct task find_task(const struct schedule &t,
                                                        const struct job &j, int n)
{
    int per_section = t.section * j.tiles, section = n / per_section;
    int rest = n - section * per_section;
    if (n >= t.n_tasks) return task{-1, 0, 0, 0};
    int width = min(t.section, t.heads - section * t.section);
    int head = section * t.section + rest % width;
    struct task task;
    task.tile = j.tiles - 1 - rest / width;
    task.batch = head / j.heads_q;
    task.head = head - task.batch * j.heads_q;
    task.safe = 0;
    return task;
}

/* The number of the task after n, asked for by thread 0.  The exchange with itself tells
 * the assembler that the number is the same for the whole warp; otherwise it suspects
 * every slot and address that depends on it, keeps them out of the uniform registers that
 * the copy engine wants, and the producer becomes the slowest of all. */
static __device__ __forceinline__ int next_task(const struct schedule &t,
                                                const struct job &j, int n)
{
    int next = j.causal ? (int)gridDim.x + atomicAdd(t.counter, 1) : n + (int)gridDim.x;
    return __shfl_sync(1u, next, 0);
}

/* Q tiles in slots; with each comes the task it belongs to. */
template <class C> struct queue {
    alignas(1024) typename C::T q[C::QUERIES][C::Br * C::D];
    uint64_t full[C::QUERIES], empty[C::QUERIES];
    struct task task[C::QUERIES];
};

template <class C> static __device__ __forceinline__ void queue_init(queue<C> &queue)
{
    for (int i = 0; i < C::QUERIES; i++) {
        barrier_init(&queue.full[i], 1);
        barrier_init(&queue.empty[i], C::WARPGROUPS);
    }
}

/* Orders the Q tile of a task into an empty slot. */
template <class C>
static __device__ __forceinline__ void queue_load(queue<C> &queue, int slot,
                                                  const struct job &j, struct task task)
{
    queue.task[slot] = task;
    load_tile<C, C::Br>(queue.q[slot], &j.q, &queue.full[slot], task.tile * C::Br,
                        task.head, task.batch);
}

/* Tells the consumers that no task will follow. */
template <class C>
static __device__ __forceinline__ void queue_end(queue<C> &queue, int slot)
{
    queue.task[slot].tile = -1;
    barrier_arrive(&queue.full[slot]);
}

/* ---- the host's side ---- */

/* The schedule for j's tiles; starts the counter at 0. */
static struct schedule schedule_of(const struct job &j, const struct problem *p,
                                   const struct arrays *a)
{
    struct schedule t;
    size_t head_bytes = 2 * p->seqlen_k * (p->head_dim + p->head_dim_v);
    size_t room = p->seqlen_k <= 512 ? 8u << 20 : 16u << 20; /* of the L2 cache */
    t.counter = (int *)a->workspace;
    t.heads = (int)(p->batch * p->heads_q);
    t.n_tasks = j.tiles * t.heads;
    t.section = 1;
    if (p->causal) {
        size_t group = p->heads_q / p->heads_kv;
        while (2 * t.section * head_bytes <= room * group && t.section < t.heads)
            t.section *= 2;
        CUDA_CHECK(cudaMemsetAsync(t.counter, 0, sizeof(int), (cudaStream_t)a->stream));
    }
    return t;
}

/* One block a multiprocessor, or one a task if there are fewer. */
static dim3 persistent_grid(const struct schedule &t)
{
    int device, n;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device));
    return dim3((unsigned)(t.n_tasks < n ? t.n_tasks : n));
}

#endif
