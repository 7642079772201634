/* team.h: the blocks that share a row (Hopper), and how they meet.
 *
 * A team is a cluster, whose blocks write into each other's shared memory, or, with GRID, any
 * set of blocks that run at the same time and exchange words in main memory.
 *
 * Which rows a team takes: the teams of a grid take turns.  A cluster draws the number of its
 * next row from a counter in main memory, because multiprocessors do not get the same share of
 * the memory's bandwidth; a cluster that is faster takes more rows.  The producer of block 0
 * draws, and sends the number to every block of the cluster. */
#ifndef TEAM_H
#define TEAM_H

#include "cluster_ptx.h"
#include "row_parts.h"

#ifdef __CUDACC__

#define ROLE_THREADS 256 /* summers, and as many dividers; a warp more for the producer */
/* Who includes this file says what a block's buffer is, of at most 227 KB: STAGES chunks, in which
 * a thread has PACKS_EACH packs. */
#define CHUNK (ROLE_THREADS * PACKS_EACH)
#define CLUSTER_MAX 16  /* blocks in a cluster */
#define GRID_MAX 256    /* blocks in a team of a grid */
/* Rows whose states may be in flight.  The summers of a block are less than STAGES + 1 rows
 * ahead of its dividers, and those of another block that much ahead of these. */
#define EXCHANGES 32
#define NOT_WRITTEN (~(uint64_t)0) /* a word of a grid before its state is there */
static_assert(EXCHANGES > 2 * (STAGES + 1), "a state is read before the next comes");

/* blocks: of a team; teams: how many; slice: packs of a row in one block, cut into `chunks`
 * chunks of `chunk` packs (the last may be shorter), whole lines; twice: chunks of a slice that
 * do not stay in the buffer and are read twice. */
struct plan { int blocks, teams, slice, chunk, chunks, twice; };

struct team_shared {
    uint64_t full[STAGES], empty[STAGES], arrived[EXCHANGES], drawn[EXCHANGES];
    size_t row[EXCHANGES];                         /* written by block 0 */
    struct state of_block[EXCHANGES][CLUSTER_MAX]; /* written by every block; GRID: [][0] */
    struct state of_warp[2][WARP];
    alignas(128) uint4 buffer[STAGES * CHUNK];
};
static_assert(sizeof(struct team_shared) <= 227 * 1024, "one block per multiprocessor");

/* What a block does: its team and its rank in it, and the problem.  words: the counter of a
 * cluster, or the states [rows, blocks] of a grid. */
template <class T> struct work {
    const T *x;
    T *y;
    size_t rows;
    int cols, team, rank, log;
    struct plan plan;
    uint64_t *words;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* --- Rows. --- */

/* The row of a team's turn-th turn; w.rows or more: there is none. */
template <bool GRID, class T>
static __device__ inline size_t row_of(struct team_shared &shared, const struct work<T> &w,
                                       size_t turn)
{
    if (GRID || turn == 0) return w.team + turn * w.plan.teams;
    const int slot = turn % EXCHANGES;
    cluster_barrier_wait(&shared.drawn[slot], (turn - (slot == 0)) / EXCHANGES % 2);
    return shared.row[slot];
}

/* One thread of each block: gets ready for the number of the row of that turn. */
template <class T>
static __device__ inline size_t draw_row(struct team_shared &shared, const struct work<T> &w,
                                         size_t turn)
{
    if (w.plan.blocks > 1) barrier_expect(&shared.drawn[turn % EXCHANGES], 8);
    if (w.rank > 0) return 0;
    return w.plan.teams + atomicAdd((unsigned long long *)w.words, 1ull);
}

template <class T>
static __device__ inline void send_row(struct team_shared &shared, const struct work<T> &w,
                                       size_t turn, size_t row)
{
    const int slot = turn % EXCHANGES;
    if (w.rank > 0) return;
    if (w.plan.blocks == 1) { /* alone: no cluster to send through */
        shared.row[slot] = row;
        barrier_arrive(&shared.drawn[slot]);
        return;
    }
    for (int block = 0; block < w.plan.blocks; block++)
        send(row, &shared.row[slot], &shared.drawn[slot], block);
}

/* --- States. --- */

/* The state of a block, from its first warp to all blocks of the team. */
template <bool GRID, class T>
static __device__ inline void send_state(struct team_shared &shared, const struct work<T> &w,
                                         size_t turn, size_t row, struct state mine, int lane)
{
    const int slot = turn % EXCHANGES;
    if (GRID) {
        uint64_t bits; /* never NOT_WRITTEN, because m is never NaN */
        memcpy(&bits, &mine, sizeof bits);
        if (lane == 0) store_shared_word(&w.words[row * w.plan.blocks + w.rank], bits);
    } else if (w.plan.blocks == 1) {
        if (lane == 0) shared.of_block[slot][0] = mine;
        if (lane == 0) barrier_arrive(&shared.arrived[slot]);
    } else {
        if (lane == 0) barrier_expect(&shared.arrived[slot], w.plan.blocks * 8);
        if (lane < w.plan.blocks)
            send(mine, &shared.of_block[slot][w.rank], &shared.arrived[slot], lane);
    }
}

/* A warp of a grid's block: waits for the states of the team and merges them.  A lane loads all
 * words that it misses at once, then sleeps: the blocks all load the same few lines. */
template <class T>
static __device__ inline void relay_states(struct team_shared &shared,
                                           const struct work<T> &w, int lane)
{
    constexpr int EACH = GRID_MAX / WARP;
    for (size_t turn = 0, row; (row = row_of<true>(shared, w, turn)) < w.rows; turn++) {
        const uint64_t *words = w.words + row * w.plan.blocks;
        uint64_t bits[EACH];
        for (int k = 0; k < EACH; k++)
            bits[k] = lane + k * WARP < w.plan.blocks ? NOT_WRITTEN : 0;
        for (bool all = false; !all;) {
            for (int k = 0; k < EACH; k++)
                if (bits[k] == NOT_WRITTEN) bits[k] = load_shared_word(&words[lane + k * WARP]);
            all = true;
            for (int k = 0; k < EACH; k++) all &= bits[k] != NOT_WRITTEN;
            if (!all) __nanosleep(200);
        }
        struct state merged = empty_state();
        for (int k = 0; k < EACH; k++) {
            struct state one;
            memcpy(&one, &bits[k], sizeof one);
            if (lane + k * WARP < w.plan.blocks) merged = merge(merged, one);
        }
        merged = lanes_merge(merged);
        if (lane == 0) shared.of_block[turn % EXCHANGES][0] = merged;
        if (lane == 0) barrier_arrive(&shared.arrived[turn % EXCHANGES]);
    }
}

/* The state of the row, from all blocks of the team; the same bits in every thread. */
template <bool GRID, class T>
static __device__ inline struct state collect(struct team_shared &shared,
                                              const struct work<T> &w, size_t turn, int lane)
{
    const int slot = turn % EXCHANGES;
    cluster_barrier_wait(&shared.arrived[slot], turn / EXCHANGES % 2);
    if (GRID || w.plan.blocks == 1) return shared.of_block[slot][0];
    return lanes_merge(lane < w.plan.blocks ? shared.of_block[slot][lane] : empty_state());
}

#endif
#endif
#endif
