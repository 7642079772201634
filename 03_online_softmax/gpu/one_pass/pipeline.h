/* pipeline.h: a row in the shared memories of a team of blocks (Hopper).
 *
 * A team takes one row after the other; block `rank` of it takes the rank-th slice of each.  A
 * slice passes through shared memory in chunks, in a circular buffer of STAGES chunks.  Three
 * roles in a block work on it at the same time, each at its own row:
 *
 *     producer  one thread issues the copy of the next chunk as soon as a stage is free, and
 *               so runs ahead into the next rows
 *     summers   add what arrives to their states (m, l); at the end of the slice the state of
 *               the block goes to every block of the team
 *     dividers  merge the states of the blocks, then read the same chunks again:
 *               y = exp(x - m) / l; a stage is free once its chunk is in registers
 *
 * A slice starts at a multiple of 128 bytes, a line of the cache.  Both roles release a chunk of a
 * grid: where a row is too long for the buffers, its first chunks are summed, pass the dividers,
 * and come again after the chunks that stay. */
#ifndef PIPELINE_H
#define PIPELINE_H

#include "fast_exp.h"
#include "team.h"

#ifdef __CUDACC__

template <bool GRID> constexpr int BLOCK_THREADS = 2 * ROLE_THREADS + (GRID ? 2 : 1) * WARP;

/* The packs of a row that the pipeline moves start at a line; what is before and after them
 * are edges, of less than a line and less than a pack. */
template <class T> constexpr int LINE = 128 / sizeof(T);
#define LINE_PACKS 8

template <class T>
static __device__ inline struct parts line_parts(size_t row, int cols)
{
    struct parts r;
    r.head = min((int)((0 - row * (size_t)cols) & (LINE<T> - 1)), cols);
    r.packs = (cols - r.head) / FULL<T>;
    r.tail = (cols - r.head) % FULL<T>;
    return r;
}

/* Which edge element is thread i's: the first LINE threads take the head, the others the
 * tail; -1 for the rest. */
template <class T>
static __device__ inline int line_edge(struct parts r, int cols, int i)
{
    if (i < r.head) return i;
    if (i >= LINE<T> && i - LINE<T> < r.tail) return cols - r.tail + i - LINE<T>;
    return -1;
}
static_assert(LINE<uint16_t> + FULL<uint16_t> <= ROLE_THREADS, "a thread for each element");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* A barrier for the summers alone. */
static __device__ inline void summers_meet(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(ROLE_THREADS) : "memory");
}

/* Where a role is in the circular buffer: the stage, and the phase bit of its barriers. */
struct pipeline_state { int stage, phase; };

static __device__ inline void advance(struct pipeline_state *p)
{
    if (++p->stage == STAGES) {
        p->stage = 0;
        p->phase ^= 1;
    }
}

/* A row passes through the buffer as `chunks` chunks in loop 1, and then the first `twice` of
 * them again, backwards, because the cache may still hold those that were read last.  The chunk
 * that comes v-th. */
static __device__ inline int chunk_of(const struct plan &plan, int v)
{
    return v < plan.chunks ? v : plan.chunks + plan.twice - 1 - v;
}

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
template <bool GRID, class T>
static __device__ inline void produce(struct team_shared &shared, const struct work<T> &w)
{
    struct pipeline_state at = {0, 1};
    for (size_t turn = 0, row; (row = row_of<GRID>(shared, w, turn)) < w.rows; turn++) {
        const size_t next = GRID ? 0 : draw_row(shared, w, turn + 1);
        const struct parts r = line_parts<T>(row, w.cols);
        const T *body = w.x + row * w.cols + r.head;
        for (int v = 0; v < w.plan.chunks + w.plan.twice; v++) {
            int first;
            const int packs = chunk_packs(w, r, chunk_of(w.plan, v), &first);
            barrier_wait(&shared.empty[at.stage], at.phase);
            barrier_expect(&shared.full[at.stage], packs * 16);
            if (packs > 0)
                bulk_load(shared.buffer + at.stage * CHUNK, body + (size_t)first * FULL<T>,
                          packs * 16, &shared.full[at.stage]);
            advance(&at);
        }
        if (!GRID) send_row(shared, w, turn + 1, next);
    }
}

/* Waits for the chunk at `at`. */
template <class T>
static __device__ inline const struct pack<T, FULL<T>> *
take(struct team_shared &shared, struct pipeline_state at)
{
    barrier_wait(&shared.full[at.stage], at.phase);
    return (const struct pack<T, FULL<T>> *)shared.buffer + at.stage * CHUNK;
}

/* A warp: it has read the chunk, or does not need it. */
static __device__ inline void release(struct team_shared &shared, struct pipeline_state at)
{
    reads_before_copies();
    __syncwarp();
    if (threadIdx.x % WARP == 0) barrier_arrive(&shared.empty[at.stage]);
}

/* A role lets n chunks pass. */
static __device__ inline void pass(struct team_shared &shared, struct pipeline_state *at, int n)
{
    for (; n > 0; n--, advance(at)) {
        barrier_wait(&shared.full[at->stage], at->phase);
        __syncwarp();
        if (threadIdx.x % WARP == 0) barrier_arrive(&shared.empty[at->stage]);
    }
}

/* The state of the block, from those of its summers, to every block of the team. */
template <bool GRID, class T>
static __device__ inline void publish(struct team_shared &shared, const struct work<T> &w,
                                      size_t turn, size_t row, struct state mine, int i)
{
    const int lane = i % WARP;
    struct state *of_warp = shared.of_warp[turn % 2];
    mine = lanes_merge(mine);
    if (lane == 0) of_warp[i / WARP] = mine;
    summers_meet();
    if (i >= WARP) return;
    mine = lanes_merge(lane < ROLE_THREADS / WARP ? of_warp[lane] : empty_state());
    send_state<GRID>(shared, w, turn, row, mine, lane);
}

/* Takes the packs i, i + ROLE_THREADS, ... of a chunk, of which a thread has at most N. */
template <int N, class T, int W>
static __device__ inline void sum_chunk(struct power_sum *sum, const struct pack<T, W> *chunk,
                                        int packs, int i)
{
    if constexpr (N > 1)
        if (packs <= (N - 1) * ROLE_THREADS) return sum_chunk<N - 1>(sum, chunk, packs, i);
    struct pack<T, W> x[N];
    for (int k = 0; k < N; k++)
        if (k < N - 1 || i + k * ROLE_THREADS < packs)
            x[k] = chunk[i + k * ROLE_THREADS];
        else
            for (int e = 0; e < W; e++) x[k].e[e] = T(-INFINITY);
    push(sum, x);
}

/* The summers.  i: the number of the thread among them. */
template <bool GRID, class T>
static __device__ inline void sum_slices(struct team_shared &shared, const struct work<T> &w,
                                         int i)
{
    struct pipeline_state at = {0, 0};
    for (size_t turn = 0, row; (row = row_of<GRID>(shared, w, turn)) < w.rows; turn++) {
        const struct parts r = line_parts<T>(row, w.cols);
        const int edge = w.rank == 0 ? line_edge<T>(r, w.cols, i) : -1;
        const float last[1] = {edge >= 0 ? (float)w.x[row * w.cols + edge] : -INFINITY};
        struct power_sum sum = empty_sum();
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            const auto *chunk = take<T>(shared, at);
            sum_chunk<PACKS_EACH>(&sum, chunk, packs, i);
            if (GRID) release(shared, at);
            advance(&at);
        }
        struct state mine = state_of(sum);
        if (edge >= 0) push(&mine, last);
        publish<GRID>(shared, w, turn, row, mine, i);
        if (GRID) pass(shared, &at, w.plan.twice);
    }
}

/* *y = the results of x; p: the powers of the row's maximum. */
template <class T>
static __device__ inline void divide(struct pack<T, FULL<T>> *y,
                                     const struct pack<T, FULL<T>> &x,
                                     const struct normaliser &f, struct powers p)
{
    float v[FULL<T>];
    if (f.log)
        for (int e = 0; e < FULL<T>; e++) v[e] = normalise(f, (float)x.e[e]);
    else
        for (int e = 0; e < FULL<T>; e++) v[e] = power(p, (float)x.e[e]) * f.scale;
    store(y, v);
}

/* The dividers. */
template <bool GRID, class T>
static __device__ inline void divide_slices(struct team_shared &shared,
                                            const struct work<T> &w, int i)
{
    constexpr int W = FULL<T>;
    struct pipeline_state at = {0, 0};
    for (size_t turn = 0, row; (row = row_of<GRID>(shared, w, turn)) < w.rows; turn++) {
        const struct parts r = line_parts<T>(row, w.cols);
        T *y_i = w.y + row * w.cols;
        const int edge = w.rank == 0 ? line_edge<T>(r, w.cols, i) : -1;
        const float last = edge >= 0 ? (float)w.x[row * w.cols + edge] : 0.0f;
        if (GRID) pass(shared, &at, w.plan.twice);
        const struct normaliser f =
            normaliser_of(collect<GRID>(shared, w, turn, i % WARP), w.log);
        const struct powers p = powers_of(f.shift);
        struct normaliser of_powers = f;
        of_powers.scale *= unscaled(p, f.shift);
        for (int v = GRID ? w.plan.twice : 0; v < w.plan.chunks + w.plan.twice; v++) {
            int first;
            const int packs = chunk_packs(w, r, chunk_of(w.plan, v), &first);
            auto *out = (struct pack<T, W> *)(y_i + r.head) + first;
            const auto *chunk = take<T>(shared, at);
            struct pack<T, W> x[PACKS_EACH];
            for (int k = 0; k < PACKS_EACH; k++)
                if (i + k * ROLE_THREADS < packs) x[k] = chunk[i + k * ROLE_THREADS];
            release(shared, at);
            for (int k = 0; k < PACKS_EACH; k++)
                if (i + k * ROLE_THREADS < packs)
                    divide(out + i + k * ROLE_THREADS, x[k], of_powers, p);
            advance(&at);
        }
        if (edge >= 0) y_i[edge] = T(normalise(f, last));
    }
}

/* Barriers that all blocks of the team know to be ready before anybody uses them. */
template <bool GRID> static __device__ inline void get_ready(struct team_shared &shared)
{
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], (GRID ? 2 : 1) * ROLE_THREADS / WARP);
        }
        for (int s = 0; s < EXCHANGES; s++) {
            barrier_init(&shared.arrived[s], 1);
            barrier_init(&shared.drawn[s], 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (GRID)
        __syncthreads();
    else
        asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#endif

/* Softmax or logsoftmax of x [rows, cols].  Reads and writes each element once. */
template <bool GRID, class T>
static __global__ __launch_bounds__(BLOCK_THREADS<GRID>, 1)
void pipeline_kernel(const T *x, T *y, size_t rows, int cols, struct plan plan,
                     uint64_t *words, int log)
{
#if __CUDA_ARCH__ >= 900
    struct team_shared &shared = dynamic_shared<struct team_shared>();
    get_ready<GRID>(shared);
    const struct work<T> w = {x, y, rows, cols, (int)blockIdx.x / plan.blocks,
                              (int)blockIdx.x % plan.blocks, log, plan, words};
    const int i = threadIdx.x;
    if (i < ROLE_THREADS)
        sum_slices<GRID>(shared, w, i);
    else if (i < 2 * ROLE_THREADS)
        divide_slices<GRID>(shared, w, i - ROLE_THREADS);
    else if (i == 2 * ROLE_THREADS)
        produce<GRID>(shared, w);
    else if (GRID && i >= 2 * ROLE_THREADS + WARP)
        relay_states(shared, w, i % WARP);
#endif
}

#endif
#endif
