/* team.h: the blocks that share a row (Hopper), and how they meet.
 *
 * A team is a cluster, whose blocks write into each other's shared memory, or MANY clusters.  The
 * first block of each of those collects the states of its cluster, exchanges them with the others
 * in main memory, a word each, and sends the state of the row to its cluster.
 *
 * Which rows a team takes: teams of MANY clusters take turns.  A cluster draws the number of its
 * next row from a counter in main memory, because multiprocessors do not get the same share of
 * the memory's bandwidth; a cluster that is faster takes more rows.  The producer of block 0
 * draws, and sends the number to every block of the cluster. */
#ifndef TEAM_H
#define TEAM_H

#include "cluster_ptx.h"
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
#define NOT_WRITTEN (~(uint64_t)0) /* a word of a team before its state is there */
static_assert(EXCHANGES > 2 * (MOST_STAGES + 1), "a state is read before the next comes");

/* Stages first .. first + stages - 1 of the buffer. */
struct ring { int first, stages; };

/* blocks: of a cluster; clusters: of a team; teams: how many.  slice: packs of a row in one block,
 * in `chunks` chunks of `chunk` packs (the last may be shorter), whole lines.  The first `kept` of
 * them stay in the ring `keep` until they are divided.  Those of a row that is too long for the
 * buffers pass through `once`, and come again through `again`. */
struct plan {
    int blocks, clusters, teams, slice, chunk, chunks, kept;
    struct ring keep, once, again;
};

struct team_shared {
    uint64_t full[MOST_STAGES], empty[MOST_STAGES];
    uint64_t arrived[EXCHANGES], drawn[EXCHANGES], complete[EXCHANGES];
    size_t row[EXCHANGES];                         /* written by block 0 */
    struct state of_block[EXCHANGES][CLUSTER_MAX]; /* written by every block */
    struct state of_row[EXCHANGES];                /* MANY: written by block 0 */
    struct state of_warp[2][WARP];
    alignas(128) uint4 buffer[BUFFER];
};
static_assert(sizeof(struct team_shared) <= 227 * 1024, "one block per multiprocessor");

/* What a block does: its team, its rank in the cluster, the slice that it takes, and the problem.
 * words: the counter of a cluster, or the states [rows, clusters] of MANY. */
template <class T> struct slice {
    const T *x;
    T *y;
    size_t rows;
    int cols, team, rank, part, log;
    struct plan plan;
    uint64_t *words;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* --- Rows. --- */

/* The row of a team's turn-th turn; w.rows or more: there is none. */
template <bool MANY, class T>
static __device__ inline size_t row_of(struct team_shared &shared, const struct slice<T> &w,
                                       size_t turn)
{
    if (MANY || turn == 0) return w.team + turn * w.plan.teams;
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
    if (w.rank > 0 || w.rows <= (size_t)w.plan.teams) return w.rows; /* who draws nothing */
    return w.plan.teams + atomicAdd((unsigned long long *)w.words, 1ull);
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

/* The state of a block, from its first warp to all blocks of the cluster; MANY: to the first. */
template <bool MANY, class T>
static __device__ inline void send_state(struct team_shared &shared, const struct slice<T> &w,
                                         size_t turn, struct state mine, int lane)
{
    const int slot = turn % EXCHANGES, n = w.plan.blocks;
    if (n == 1) { /* alone: no cluster to send through */
        if (lane == 0) shared.of_block[slot][0] = mine;
        if (lane == 0) mbarrier_arrive(&shared.arrived[slot]);
        return;
    }
    if (lane == 0 && (!MANY || w.rank == 0))
        mbarrier_arrive_expect_tx(&shared.arrived[slot], n * 8);
    if (lane == 0 && MANY) mbarrier_arrive_expect_tx(&shared.complete[slot], 8);
    if (lane < (MANY ? 1 : n))
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

/* A warp of the first block of each of MANY clusters: exchanges their states. */
template <class T>
static __device__ inline void relay_states(struct team_shared &shared,
                                           const struct slice<T> &w, int lane)
{
    const int n = w.plan.clusters;
    for (size_t turn = 0, row; (row = row_of<true>(shared, w, turn)) < w.rows; turn++) {
        const int slot = turn % EXCHANGES;
        const struct state mine = cluster_state(shared, turn, w.plan.blocks, lane);
        uint64_t bits, *words = w.words + row * n; /* never NOT_WRITTEN, as m is never NaN */
        memcpy(&bits, &mine, sizeof bits);
        if (lane == 0) store_shared_word(&words[w.part / w.plan.blocks], bits);
        bits = lane < n ? NOT_WRITTEN : 0;
        while (__any_sync(~0u, bits == NOT_WRITTEN))
            if (bits == NOT_WRITTEN) bits = load_shared_word(&words[lane]);
        struct state other;
        memcpy(&other, &bits, sizeof other);
        const struct state all = lanes_merge(lane < n ? other : empty_state());
        if (lane < w.plan.blocks)
            send(all, &shared.of_row[slot], &shared.complete[slot], lane);
    }
}

/* The state of the row, from all blocks of the team; the same bits in every thread. */
template <bool MANY, class T>
static __device__ inline struct state collect(struct team_shared &shared,
                                              const struct slice<T> &w, size_t turn, int lane)
{
    if (!MANY) return cluster_state(shared, turn, w.plan.blocks, lane);
    cluster_barrier_wait(&shared.complete[turn % EXCHANGES], turn / EXCHANGES % 2);
    return shared.of_row[turn % EXCHANGES];
}

#endif
#endif
#endif
