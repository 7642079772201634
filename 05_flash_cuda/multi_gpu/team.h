/* team.h: the GPUs of this process, their part of the problem, and NCCL between all. */
#ifndef TEAM_H
#define TEAM_H

#include <nccl.h>

#include "gpu/cuda_check.h"
#include "schedule.h"
#include "world.h"

enum { MOST_RANKS = 64, PLACES = 3 };

/* One GPU: a rank.  Arrays are in its memory, contiguous over the rows that it holds. */
struct gpu {
    int rank, device;
    ncclComm_t comm;
    cudaStream_t compute, copy;   /* the kernels, and the keys that travel under them */
    struct chunks queries, keys;  /* of the whole problem, on this GPU */
    size_t n_q, n_k;
    char *q;                      /* [batch, heads_q, n_q, head_dim] */
    char *keys_at[PLACES];        /* k, then v, of one rank: its own, and arriving ones */
    float *answer;                /* ring: o of what was folded so far; its lse is below */
    float *part;                  /* tree: o, then lse, of this GPU's keys */
    float *gathered;              /* tree: the parts of all ranks, or their maxima */
    void *o;                      /* the result [batch, heads_q, n_q, head_dim_v] */
    float *lse;
    void *workspace;
    void *owned[12];              /* what is to be freed */
    int n_owned;
    /* When things happen: the whole call, and each step of the ring. */
    cudaEvent_t began, ended;
    cudaEvent_t compute_began[MOST_RANKS], computed[MOST_RANKS];
    cudaEvent_t copy_began[MOST_RANKS], arrived[MOST_RANKS];
};

struct team {
    const struct world *world;
    struct gpu gpu[MOST_RANKS];   /* world->local of them */
    struct problem p;             /* the whole */
    enum strategy strategy;
    double patience;              /* seconds until a call counts as hung; grows with the work */
};

/* --- team.cu --- */

/* Finds the GPUs and connects all ranks.  0, or an exit status after one line. */
int team_open(struct team *t, const struct world *w);
void team_close(struct team *t);

/* Waits until every GPU of this process has done what was enqueued.  An error of NCCL, or no
 * end within t->patience, ends all processes with one line. */
void team_wait(struct team *t);

/* Seconds from the first GPU's start to the last one's end, of all processes. */
double team_seconds(const struct team *t);

/* Ends all processes when an NCCL call failed. */
void nccl_check(const struct team *t, ncclResult_t result, const char *call);
#define NCCL_CHECK(t, call) nccl_check(t, call, #call)

/* --- shard.cu --- */

/* The memory of every GPU of this process.  NULL, or why not. */
const char *shards_new(struct team *t, const struct problem *whole, enum strategy s);
void shards_free(struct team *t);

/* Bytes of memory that rank `rank` needs. */
size_t shard_bytes(const struct problem *whole, enum strategy s, int rank, int ranks);

/* Copies rows of chunks between a host array [heads, rows of all, d] and a GPU. */
void shards_cut(struct team *t, const struct arrays *host);

/* n nearly normal numbers, drawn on the present GPU. */
void draw_normal(void *x, size_t n, enum dtype dtype, uint64_t seed);

/* Random inputs, drawn on the GPUs. */
void shards_draw(struct team *t, uint64_t seed);

/* Rows of the result on process 0: chunk c of head h (of all batches) of `rank`, as floats.
 * Every process calls it in the same order.  o [rows, head_dim_v] and lse [rows]; each may be
 * NULL, on every process alike. */
void shard_fetch(struct team *t, int rank, size_t h, int c, float *o, float *lse);

/* --- ring.cu, tree.cu --- */

/* Enqueues the whole computation on every GPU of this process. */
void team_attention(struct team *t);
void ring_attention(struct team *t);
void tree_attention(struct team *t);

/* Bytes of the workspace of any piece. */
size_t piece_workspace(const struct problem *whole, enum strategy s, int ranks);

#endif
