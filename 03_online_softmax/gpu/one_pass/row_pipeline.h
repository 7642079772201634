/* row_pipeline.h: a row in the shared memories of a cluster of blocks (Hopper).
 *
 * A cluster takes one row after the other; each of its blocks takes a slice of each.  A slice passes
 * through shared memory in chunks, in a circular buffer.  Three roles in a block work on
 * it at the same time, each at its own row:
 *
 *     producer  one thread issues the copy of the next chunk as soon as a stage is free, and
 *               so runs ahead into the next rows
 *     summers   add what arrives to their states (m, l); at the end of the slice the state of
 *               the block goes to every block of the cluster
 *     dividers  merge the states of the blocks, then read the same chunks again:
 *               y = exp(x - m) / l; a stage is free once its chunk is in registers
 *
 * A slice starts at a multiple of 128 bytes, a line of the cache. */
#pragma once

#include "fast_exp.h"
#include "row_team.h"

#ifdef __CUDACC__

#define BLOCK_THREADS (2 * ROLE_THREADS + WARP)

/* The packs of a row that the pipeline moves start at a line; what is before and after them
 * are edges, of less than a line and less than a pack. */
template <class T> constexpr int LINE = 128 / sizeof(T);
#define LINE_PACKS 8

static_assert(LINE<uint16_t> + FULL<uint16_t> <= ROLE_THREADS, "a thread for each element");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* A barrier for the summers alone. */
static __device__ inline void summers_meet(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(ROLE_THREADS) : "memory");
}

/* Where a role is in the buffer: the stage, and the phase bit of its barriers. */
struct pipeline_state { int stage, phase; };

static __device__ inline void advance(struct pipeline_state *p, int stages)
{
    if (++p->stage == stages) {
        p->stage = 0;
        p->phase ^= 1;
    }
}

/* How many packs chunk c of the block's slice holds in this row, and its first one. */
template <class T>
static __device__ inline int chunk_packs(const struct slice<T> &w, struct parts r,
                                         int c, int *first)
{
    const int in_slice = c * w.plan.chunk;
    *first = w.rank * w.plan.slice + in_slice;
    return max(0, min(min(w.plan.chunk, w.plan.slice - in_slice), r.packs - *first));
}

/* Loads chunk c of a row as soon as the stage is free. */
template <class T>
static __device__ inline void load_chunk(struct team_shared &shared, const struct slice<T> &w,
                                         size_t row, int c, struct pipeline_state *at)
{
    const struct parts r = parts_of<FULL<T>, LINE<T>>(row, w.cols);
    int first;
    const int packs = chunk_packs(w, r, c, &first);
    const T *from = w.x + row * w.cols + r.head + (size_t)first * FULL<T>;
    mbarrier_wait(&shared.empty[at->stage], at->phase);
    mbarrier_arrive_expect_tx(&shared.full[at->stage], packs * 16);
    if (packs > 0)
        tma_load_bytes(shared.buffer + at->stage * w.plan.chunk, from, packs * 16,
                       &shared.full[at->stage]);
    advance(at, w.plan.stages);
}

/* The producer: one thread that keeps the buffer full. */
template <class T>
static __device__ inline void produce(struct team_shared &shared, const struct slice<T> &w)
{
    struct pipeline_state at = {0, 1};
    for (size_t turn = 0, row; (row = row_of(shared, w, turn)) < w.rows; turn++) {
        const size_t next = draw_row(shared, w, turn + 1);
        for (int c = 0; c < w.plan.chunks; c++) load_chunk(shared, w, row, c, &at);
        send_row(shared, w, turn + 1, next);
    }
}

/* Waits for the chunk at `at`. */
template <class T>
static __device__ inline const struct packed<T, FULL<T>> *
take(struct team_shared &shared, const struct slice<T> &w, struct pipeline_state at)
{
    mbarrier_wait(&shared.full[at.stage], at.phase);
    return (const struct packed<T, FULL<T>> *)shared.buffer + at.stage * w.plan.chunk;
}

/* A thread has read its packs of the chunk, or needs none. */
static __device__ inline void release(struct team_shared &shared, struct pipeline_state at)
{
    fence_proxy_async(); /* an arrival alone can overtake reads that wait behind stores */
    mbarrier_arrive(&shared.empty[at.stage]);
}

/* The state of the block, from those of its summers, to every block of the cluster. */
template <class T>
static __device__ inline void publish(struct team_shared &shared, const struct slice<T> &w,
                                      size_t turn, struct state mine, int i)
{
    const int lane = i % WARP;
    struct state *of_warp = shared.of_warp[turn % 2];
    mine = lanes_merge(mine);
    if (lane == 0) of_warp[i / WARP] = mine;
    summers_meet();
    if (i >= WARP) return;
    mine = lanes_merge(lane < ROLE_THREADS / WARP ? of_warp[lane] : empty_state());
    send_state(shared, w, turn, mine, lane);
}

/* Takes the packs i, i + ROLE_THREADS, ... of a chunk, of which a thread has at most N. */
template <int N, class T, int W>
static __device__ inline void sum_chunk(struct power_sum *sum, const struct packed<T, W> *chunk,
                                        int packs, int i)
{
    if constexpr (N > 1)
        if (packs <= (N - 1) * ROLE_THREADS + i / WARP * WARP) /* none for this warp */
            return sum_chunk<N - 1>(sum, chunk, packs, i);
    struct packed<T, W> x[N];
    for (int k = 0; k < N; k++)
        if (k < N - 1 || i + k * ROLE_THREADS < packs)
            x[k] = chunk[i + k * ROLE_THREADS];
        else
            for (int e = 0; e < W; e++) x[k].e[e] = T(-INFINITY);
    push(sum, x);
}

/* The summers.  i: the number of the thread among them. */
template <class T>
static __device__ inline void sum_slices(struct team_shared &shared, const struct slice<T> &w,
                                         int i)
{
    struct pipeline_state at = {0, 0};
    for (size_t turn = 0, row; (row = row_of(shared, w, turn)) < w.rows; turn++) {
        const struct parts r = parts_of<FULL<T>, LINE<T>>(row, w.cols);
        const int edge = w.rank == 0 ? edge_of<LINE<T>>(r, w.cols, i) : -1;
        T last = T(-INFINITY); /* widened when it is used: until then nobody waits for it */
        if (edge >= 0) last = w.x[row * w.cols + edge];
        struct power_sum sum = empty_sum();
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            sum_chunk<MOST_EACH>(&sum, take<T>(shared, w, at), packs, i);
            advance(&at, w.plan.stages);
        }
        struct state mine = state_of(sum);
        if (edge >= 0) mine = merge(mine, state_of((float)last));
        publish(shared, w, turn, mine, i);
    }
}

/* The dividers. */
template <class T>
static __device__ inline void divide_slices(struct team_shared &shared,
                                            const struct slice<T> &w, int i)
{
    constexpr int W = FULL<T>;
    struct pipeline_state at = {0, 0};
    for (size_t turn = 0, row; (row = row_of(shared, w, turn)) < w.rows; turn++) {
        const struct parts r = parts_of<FULL<T>, LINE<T>>(row, w.cols);
        T *y_i = w.y + row * w.cols;
        const int edge = w.rank == 0 ? edge_of<LINE<T>>(r, w.cols, i) : -1;
        T last = T(0.0f);
        if (edge >= 0) last = w.x[row * w.cols + edge];
        const struct division d =
            division_of(cluster_state(shared, turn, w.plan.blocks, i % WARP), w.log);
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            auto *out = (struct packed<T, W> *)(y_i + r.head) + first;
            const auto *chunk = take<T>(shared, w, at);
            struct packed<T, W> x[MOST_EACH];
            for (int k = 0; k < MOST_EACH; k++)
                if (i + k * ROLE_THREADS < packs) x[k] = chunk[i + k * ROLE_THREADS];
            release(shared, at);
            for (int k = 0; k < MOST_EACH; k++)
                if (i + k * ROLE_THREADS < packs)
                    divide(out + i + k * ROLE_THREADS, x[k], d);
            advance(&at, w.plan.stages);
        }
        if (edge >= 0) y_i[edge] = T(divided(d, (float)last));
    }
}

/* Barriers that all blocks of the cluster know to be ready before anybody uses them. */
static __device__ inline void get_ready(struct team_shared &shared)
{
    if (threadIdx.x == 0) {
        for (int s = 0; s < MOST_STAGES; s++) {
            mbarrier_init(&shared.full[s], 1);
            mbarrier_init(&shared.empty[s], ROLE_THREADS);
        }
        for (int s = 0; s < EXCHANGES; s++) {
            mbarrier_init(&shared.arrived[s], 1);
            mbarrier_init(&shared.drawn[s], 1);
        }
        fence_mbarrier_init();
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#endif

/* Softmax or logsoftmax of x [rows, cols].  Reads and writes each element once. */
template <class T>
static __global__ __launch_bounds__(BLOCK_THREADS, 1)
void pipeline_kernel(const T *x, T *y, size_t rows, int cols, struct plan plan,
                     uint64_t *drawn, int log)
{
#if __CUDA_ARCH__ >= 900
    struct team_shared &shared = dynamic_shared<struct team_shared>();
    get_ready(shared);
    const int i = threadIdx.x, block = blockIdx.x;
    const struct slice<T> w = {x, y, rows, cols, block / plan.blocks, block % plan.blocks, log,
                               plan, drawn};
    if (i < ROLE_THREADS) sum_slices(shared, w, i);
    else if (i < 2 * ROLE_THREADS) divide_slices(shared, w, i - ROLE_THREADS);
    else if (i == 2 * ROLE_THREADS) produce(shared, w);
#endif
}

#endif
