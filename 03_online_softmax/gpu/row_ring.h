/* row_ring.h: a row in the shared memories of a team of blocks (Hopper).
 *
 * A team of `team` blocks takes rows t, t + teams, ...; block `rank` of it takes the
 * rank-th slice of each.  A slice passes through shared memory in chunks, in a ring of
 * `stages` chunks.  Three roles in a block work on it at the same time, each at its own
 * row:
 *
 *     producer  one thread asks the bulk copy engine for the next chunk as soon as one is
 *               free, and so runs ahead into the next rows
 *     summers   push what arrives into their (m, l); at the end of the slice the block's
 *               pair goes to every block of the team
 *     dividers  merge the pairs of the team, then take the same chunks out of shared
 *               memory: y = exp(x - m) / l; a chunk is free once it is in registers
 *
 * The team is a cluster, whose blocks write into each other's shared memory (one
 * asynchronous store, completing on a barrier there), or any set of blocks that run at
 * the same time and meet in main memory: there a pair is one 64-bit word, whose value
 * says whether it has been written. */
#ifndef ROW_RING_H
#define ROW_RING_H

#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "row_parts.h"

#ifdef __CUDACC__

#define RING_THREADS 256 /* summers, and as many dividers; a warp more for the producer */
#define RING_BLOCK (2 * RING_THREADS + WARP)
#define RING_EACH 2                          /* packs of a chunk for a thread, at most */
#define CHUNK_MAX (RING_THREADS * RING_EACH) /* packs: 8 KB */
#define RING_BYTES (26 * CHUNK_MAX * 16)     /* 208 of the 227 KB of a block */
#define STAGES_MAX 28                        /* chunks in the ring, at most */
#define TEAM_MAX 16                          /* blocks in a cluster */
/* Rows whose pairs may be under way.  The summers of a block are less than STAGES_MAX + 1
 * rows ahead of its dividers, and those of another block that much ahead of these. */
#define EXCHANGES 64
static_assert(EXCHANGES > 2 * (STAGES_MAX + 1), "a pair is read before the next comes");

/* team: blocks in a team; teams: of them; slice: packs of a row in one block, cut into
 * `chunks` pieces of `chunk` packs; stages: pieces in the ring; in_cluster: the team is a
 * cluster. */
struct ring_plan { int team, teams, slice, chunk, chunks, stages, in_cluster; };

struct ring_shared {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX], arrived[EXCHANGES];
    struct running of_block[EXCHANGES][TEAM_MAX]; /* written by the team */
    struct running of_warp[2][WARP], of_team[2];
    alignas(128) uint4 ring[RING_BYTES / 16]; /* stages * chunk packs */
};
static_assert(sizeof(struct ring_shared) <= 227 * 1024, "one block per multiprocessor");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

static __device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ inline void barrier_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count));
}

static __device__ inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* One arrival, and `bytes` that must come as well before the phase is over. */
static __device__ inline void barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

/* Waits until the phase of this parity is over. */
static __device__ inline void barrier_wait(uint64_t *barrier, int parity)
{
    asm volatile("{\n\t.reg .pred done;\n"
                 "again%=:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
                 "done, [%0], %1;\n\t"
                 "@!done bra again%=;\n\t}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Asks the copy engine for `bytes` (a multiple of 16) bytes; completes on barrier. */
static __device__ inline void bulk_load(void *to, const void *from, int bytes,
                                        uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Writes r to `slot` of block `rank` of the cluster; completes 8 bytes on its barrier. */
static __device__ inline void send(struct running r, struct running *slot,
                                   uint64_t *barrier, int rank)
{
    uint64_t word;
    memcpy(&word, &r, sizeof word);
    uint32_t remote_slot, remote_barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_slot)
        : "r"(shared_address(slot)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier)
        : "r"(shared_address(barrier)), "r"(rank));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 "
                 "[%0], %1, [%2];" ::"r"(remote_slot), "l"(word), "r"(remote_barrier)
                 : "memory");
}

/* The barrier of a role: 1 for the summers, 2 for the dividers. */
static __device__ inline void role_meets(int role)
{
    asm volatile("bar.sync %0, %1;" ::"r"(role), "n"(RING_THREADS) : "memory");
}

/* A pair in main memory.  All ones is "not written yet": no pair looks like that, because
 * a NaN is written as the one of nanf(). */
#define NOT_WRITTEN 0xffffffffffffffffull

static __device__ inline void publish(struct running r, uint64_t *word)
{
    if (r.m != r.m) r.m = nanf("");
    if (r.l != r.l) r.l = nanf("");
    uint64_t bits;
    memcpy(&bits, &r, sizeof bits);
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(word), "l"(bits) : "memory");
}

static __device__ inline struct running await(const uint64_t *word)
{
    uint64_t bits;
    do
        asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(bits) : "l"(word)
                     : "memory");
    while (bits == NOT_WRITTEN);
    struct running r;
    memcpy(&r, &bits, sizeof r);
    return r;
}

/* A place in the ring, and how often the ring has been round (its parity). */
struct place { int stage, parity; };

static __device__ inline void step(struct place *p, int stages)
{
    if (++p->stage == stages) {
        p->stage = 0;
        p->parity ^= 1;
    }
}

/* What a block does: its team and its rank in it, and the problem. */
template <class T> struct ring_work {
    const T *x;
    T *y;
    size_t rows;
    int cols, team, rank, log;
    struct ring_plan plan;
    uint64_t *words;
};

/* How many packs chunk c of the block's slice holds in this row, and its first one. */
template <class T>
static __device__ inline int chunk_packs(const struct ring_work<T> &w, struct parts r,
                                         int c, int *first)
{
    const int in_slice = c * w.plan.chunk;
    *first = w.rank * w.plan.slice + in_slice;
    return max(0, min(min(w.plan.chunk, w.plan.slice - in_slice), r.packs - *first));
}

/* The producer: one thread that keeps the ring full. */
template <class T>
static __device__ inline void ring_produce(struct ring_shared &shared,
                                           const struct ring_work<T> &w)
{
    struct place at = {0, 1};
    for (size_t row = w.team; row < w.rows; row += w.plan.teams) {
        const struct parts r = parts_of<FULL<T>>(row, w.cols);
        const T *body = w.x + row * w.cols + r.head;
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            barrier_wait(&shared.empty[at.stage], at.parity);
            barrier_expect(&shared.full[at.stage], packs * 16);
            if (packs > 0)
                bulk_load(shared.ring + at.stage * w.plan.chunk,
                          body + (size_t)first * FULL<T>, packs * 16,
                          &shared.full[at.stage]);
            step(&at, w.plan.stages);
        }
    }
}

/* Waits for the chunk at `at` and takes thread i's packs out of it. */
template <class T>
static __device__ inline void take(struct ring_shared &shared,
                                   const struct ring_work<T> &w, struct place at, int i,
                                   int packs,
                                   struct pack<T, FULL<T>> (&raw)[RING_EACH])
{
    const auto *chunk = (const struct pack<T, FULL<T>> *)shared.ring
                        + at.stage * w.plan.chunk;
    barrier_wait(&shared.full[at.stage], at.parity);
    for (int k = 0; k < RING_EACH; k++)
        if (i + k * RING_THREADS < packs) raw[k] = chunk[i + k * RING_THREADS];
}

/* The pair of the block, from those of its summers, to every block of the team. */
template <class T>
static __device__ inline void ring_publish(struct ring_shared &shared,
                                           const struct ring_work<T> &w, size_t turn,
                                           size_t row, struct running mine, int i)
{
    const int lane = i % WARP, slot = turn % EXCHANGES;
    struct running *of_warp = shared.of_warp[turn % 2];
    mine = lanes_merge(mine);
    if (lane == 0) of_warp[i / WARP] = mine;
    role_meets(1);
    if (i >= WARP) return;
    mine = lanes_merge(lane < RING_THREADS / WARP ? of_warp[lane] : nothing_seen());
    if (!w.plan.in_cluster) {
        if (lane == 0) publish(mine, &w.words[row * w.plan.team + w.rank]);
        return;
    }
    if (w.plan.team == 1) { /* alone: no cluster to send through */
        if (lane == 0) shared.of_block[slot][0] = mine;
        if (lane == 0) barrier_arrive(&shared.arrived[slot]);
        return;
    }
    if (lane == 0) barrier_expect(&shared.arrived[slot], w.plan.team * 8);
    if (lane < w.plan.team)
        send(mine, &shared.of_block[slot][w.rank], &shared.arrived[slot], lane);
}

/* The summers.  i: the number of the thread among them. */
template <class T>
static __device__ inline void ring_sum(struct ring_shared &shared,
                                       const struct ring_work<T> &w, int i)
{
    constexpr int W = FULL<T>;
    struct place at = {0, 0};
    size_t turn = 0;
    for (size_t row = w.team; row < w.rows; row += w.plan.teams, turn++) {
        const struct parts r = parts_of<W>(row, w.cols);
        const int edge = w.rank == 0 ? edge_of(r, w.cols, i) : -1;
        const float last[1] = {edge >= 0 ? (float)w.x[row * w.cols + edge] : -INFINITY};
        struct running mine = nothing_seen();
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            struct pack<T, W> raw[RING_EACH];
            take(shared, w, at, i, packs, raw);
            float v[RING_EACH * W];
            for (int k = 0; k < RING_EACH; k++)
                for (int e = 0; e < W; e++)
                    v[k * W + e] = i + k * RING_THREADS < packs ? (float)raw[k].e[e]
                                                                : -INFINITY;
            push(&mine, v);
            step(&at, w.plan.stages);
        }
        if (edge >= 0) push(&mine, last);
        ring_publish(shared, w, turn, row, mine, i);
    }
}

/* The pair of the row, from all blocks of the team; the same bits in every divider. */
template <class T>
static __device__ inline struct running ring_collect(struct ring_shared &shared,
                                                     const struct ring_work<T> &w,
                                                     size_t turn, size_t row, int i)
{
    const int lane = i % WARP, slot = turn % EXCHANGES;
    if (w.plan.in_cluster) {
        barrier_wait(&shared.arrived[slot], turn / EXCHANGES % 2);
        if (w.plan.team == 1) return shared.of_block[slot][0];
        return lanes_merge(lane < w.plan.team ? shared.of_block[slot][lane]
                                              : nothing_seen());
    }
    if (i < WARP) {
        struct running all = nothing_seen();
        for (int b = lane; b < w.plan.team; b += WARP)
            all = merge(all, await(&w.words[row * w.plan.team + b]));
        all = lanes_merge(all);
        if (lane == 0) shared.of_team[turn % 2] = all;
    }
    role_meets(2);
    return shared.of_team[turn % 2];
}

/* The dividers. */
template <class T>
static __device__ inline void ring_divide(struct ring_shared &shared,
                                          const struct ring_work<T> &w, int i)
{
    constexpr int W = FULL<T>;
    struct place at = {0, 0};
    size_t turn = 0;
    for (size_t row = w.team; row < w.rows; row += w.plan.teams, turn++) {
        const struct parts r = parts_of<W>(row, w.cols);
        T *y_i = w.y + row * w.cols;
        const int edge = w.rank == 0 ? edge_of(r, w.cols, i) : -1;
        const float last = edge >= 0 ? (float)w.x[row * w.cols + edge] : 0.0f;
        const struct finish f = finish_of(ring_collect(shared, w, turn, row, i), w.log);
        for (int c = 0; c < w.plan.chunks; c++) {
            int first;
            const int packs = chunk_packs(w, r, c, &first);
            auto *out = (struct pack<T, W> *)(y_i + r.head) + first;
            struct pack<T, W> raw[RING_EACH];
            take(shared, w, at, i, packs, raw);
            __syncwarp();
            if (i % WARP == 0) barrier_arrive(&shared.empty[at.stage]);
            for (int k = 0; k < RING_EACH; k++) {
                float v[W];
                for (int e = 0; e < W; e++) v[e] = finished(f, (float)raw[k].e[e]);
                if (i + k * RING_THREADS < packs) store(out + i + k * RING_THREADS, v);
            }
            step(&at, w.plan.stages);
        }
        if (edge >= 0) y_i[edge] = T(finished(f, last));
    }
}

#endif

/* Softmax or logsoftmax of x [rows, cols].  words [rows * team], all NOT_WRITTEN, for a
 * team that is no cluster.  Reads and writes each element once. */
template <class T>
static __global__ __launch_bounds__(RING_BLOCK, 1)
void ring_kernel(const T *x, T *y, size_t rows, int cols, struct ring_plan plan,
                 uint64_t *words, int log)
{
#if __CUDA_ARCH__ >= 900
    struct ring_shared &shared = dynamic_shared<struct ring_shared>();
    if (threadIdx.x == 0) {
        for (int s = 0; s < plan.stages; s++) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], RING_THREADS / WARP);
        }
        for (int s = 0; s < EXCHANGES; s++) barrier_init(&shared.arrived[s], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    /* nobody writes to a block whose barriers are not ready */
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const struct ring_work<T> work = {x, y, rows, cols, (int)blockIdx.x / plan.team,
                                      (int)blockIdx.x % plan.team, log, plan, words};
    const int i = threadIdx.x;
    if (i < RING_THREADS)
        ring_sum(shared, work, i);
    else if (i < 2 * RING_THREADS)
        ring_divide(shared, work, i - RING_THREADS);
    else if (i == 2 * RING_THREADS)
        ring_produce(shared, work);
#endif
}

#endif
#endif
