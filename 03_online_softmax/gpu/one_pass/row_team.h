/* row_team.h: the blocks of a cluster, which share a row (Hopper), and how they meet: each writes into
 * the shared memory of the others.
 *
 * A cluster draws the number of its next row from a counter in main memory, because multiprocessors
 * do not get the same share of the memory's bandwidth; a cluster that is faster takes more rows.
 * The producer of block 0 draws, and sends the number to every block of the cluster. */
#pragma once

#include "gpu/ptx.h"
#include "row_parts.h"

#ifdef __CUDACC__

#define ROLE_THREADS 256 /* summers, and as many dividers */
#define MOST_EACH 6      /* packs of a chunk that a thread has */
#define BUFFER 14080     /* packs of a block's buffer: of the 227 KB of its shared memory */
#define MOST_STAGES 13   /* chunks of the buffer */
#define CLUSTER_MAX 16   /* blocks in a cluster */
/* Rows whose states may be in flight.  The summers of a block are less than MOST_STAGES + 1 rows
 * ahead of its dividers, and those of another block that much ahead of these. */
#define EXCHANGES 32
static_assert(EXCHANGES > 2 * (MOST_STAGES + 1), "a state is read before the next comes");

/* blocks: of a cluster; clusters: how many.  slice: packs of a row in one block, whole lines, in
 * `chunks` chunks of `chunk` packs (the last may be shorter); stages: chunks in the buffer. */
struct plan { int blocks, clusters, slice, chunk, chunks, stages; };

struct team_shared {
    uint64_t full[MOST_STAGES], empty[MOST_STAGES];
    uint64_t arrived[EXCHANGES], drawn[EXCHANGES];
    size_t row[EXCHANGES];                         /* written by block 0 */
    struct state of_block[EXCHANGES][CLUSTER_MAX]; /* written by every block */
    struct state of_warp[2][WARP];
    alignas(128) uint4 buffer[BUFFER];
};
static_assert(sizeof(struct team_shared) <= 227 * 1024, "one block per multiprocessor");

/* What a block does: its cluster, its rank in it, which is the slice that it takes, and the problem.
 * drawn: the counter of the rows that have been drawn. */
template <class T> struct slice {
    const T *x;
    T *y;
    size_t rows;
    int cols, cluster, rank, log;
    struct plan plan;
    uint64_t *drawn;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* --- Instructions. --- */

/* mbarrier_wait() for what other blocks of the cluster have written. */
static __device__ inline void cluster_barrier_wait(uint64_t *barrier, int phase)
{
    asm volatile("{\n\t.reg .pred done;\n"
                 "again%=:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again%=;\n\t}" ::"r"(shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}

/* Writes the 8 bytes of `word` to `slot` of block `rank` of the cluster, asynchronously; the
 * store completes 8 bytes on `barrier` there. */
template <class WORD>
static __device__ inline void send(WORD word, WORD *slot, uint64_t *barrier, int rank)
{
    static_assert(sizeof(WORD) == 8, "one store");
    uint64_t bits;
    memcpy(&bits, &word, sizeof bits);
    uint32_t remote_slot, remote_barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_slot)
        : "r"(shared_address(slot)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier)
        : "r"(shared_address(barrier)), "r"(rank));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 "
                 "[%0], %1, [%2];" ::"r"(remote_slot), "l"(bits), "r"(remote_barrier)
                 : "memory");
}

/* --- Rows. --- */

/* The row of a cluster's turn-th turn; w.rows or more: there is none. */
template <class T>
static __device__ inline size_t row_of(struct team_shared &shared, const struct slice<T> &w,
                                       size_t turn)
{
    if (turn == 0) return w.cluster;
    const int slot = turn % EXCHANGES;
    cluster_barrier_wait(&shared.drawn[slot], (turn - (slot == 0)) / EXCHANGES % 2);
    return shared.row[slot];
}

/* One thread of each block: gets ready for the number of the row of that turn. */
template <class T>
static __device__ inline size_t draw_row(struct team_shared &shared, const struct slice<T> &w,
                                         size_t turn)
{
    if (w.plan.blocks > 1) mbarrier_arrive_expect_tx(&shared.drawn[turn % EXCHANGES], 8);
    if (w.rank > 0 || w.rows <= (size_t)w.plan.clusters) return w.rows; /* who draws nothing */
    return w.plan.clusters + atomicAdd((unsigned long long *)w.drawn, 1ull);
}

template <class T>
static __device__ inline void send_row(struct team_shared &shared, const struct slice<T> &w,
                                       size_t turn, size_t row)
{
    const int slot = turn % EXCHANGES;
    if (w.rank > 0) return;
    if (w.plan.blocks == 1) { /* alone: no cluster to send through */
        shared.row[slot] = row;
        mbarrier_arrive(&shared.drawn[slot]);
        return;
    }
    for (int block = 0; block < w.plan.blocks; block++)
        send(row, &shared.row[slot], &shared.drawn[slot], block);
}

/* --- States. --- */

/* The state of a block, from its first warp to all blocks of the cluster. */
template <class T>
static __device__ inline void send_state(struct team_shared &shared, const struct slice<T> &w,
                                         size_t turn, struct state mine, int lane)
{
    const int slot = turn % EXCHANGES, n = w.plan.blocks;
    if (n == 1) { /* alone: no cluster to send through */
        if (lane == 0) shared.of_block[slot][0] = mine;
        if (lane == 0) mbarrier_arrive(&shared.arrived[slot]);
        return;
    }
    if (lane == 0) mbarrier_arrive_expect_tx(&shared.arrived[slot], n * 8);
    if (lane < n)
        send(mine, &shared.of_block[slot][w.rank], &shared.arrived[slot], lane);
}

/* The state of all blocks of the cluster; the same bits in every lane. */
static __device__ inline struct state cluster_state(struct team_shared &shared, size_t turn,
                                                    int blocks, int lane)
{
    const int slot = turn % EXCHANGES;
    cluster_barrier_wait(&shared.arrived[slot], turn / EXCHANGES % 2);
    if (blocks == 1) return shared.of_block[slot][0];
    return lanes_merge(lane < blocks ? shared.of_block[slot][lane] : empty_state());
}

#endif
#endif
