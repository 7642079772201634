/* team.h: the GPUs of this process, their shards of the problem, and NCCL between all.
 *
 * What common/core/ranks/shards.h asks of a rank (struct kind_of_rank) stands in team.cu (finding
 * and connecting GPUs), shard.cu (their memory) and one_gpu.cu (one of them alone, for bench). */
#pragma once

#include <nccl.h>

#include "gpu/cuda_check.h"
#include "ranks/shards.h"

enum { MOST_RANKS = 64, PLACES = 3 };
enum { COMPUTED, ARRIVED, N_MOMENTS }; /* ARRIVED: for that step */

/* One GPU: a rank.  Arrays are in its memory, contiguous over the rows that it holds. */
struct gpu {
    int rank, device;
    ncclComm_t comm;
    cudaStream_t compute, copy;   /* the kernels, and the keys that travel under them */
    struct chunks queries, keys;  /* of the whole problem, on this GPU */
    size_t n_q, n_k;
    char *q;                      /* [batch, heads_q, n_q, head_dim] */
    char *keys_at[PLACES];        /* k, then v, of one rank: its own, and arriving ones */
    float *part;                  /* o, then lse, of the keys that were folded so far */
    float *gathered;              /* tree: the parts of all ranks */
    void *o;                      /* the result [batch, heads_q, n_q, head_dim_v] */
    float *lse;                   /* of the ring: the end of `part` */
    void *workspace;
    void *owned[12];              /* what is to be freed */
    int n_owned;
    size_t bytes;                 /* of all arrays */
    bool lacking;                 /* there is not as much memory */
    /* When things happen: the whole call, and each step of the ring. */
    cudaEvent_t began, ended, when[N_MOMENTS][MOST_RANKS];
};

extern struct gpu gpus[MOST_RANKS]; /* world.local of them */

/* A loop over them, in which each is the current device. */
#define EACH_GPU(g) for (struct gpu *g = gpus; g < gpus + world.local && gpu_set(g); g++)
static inline bool gpu_set(const struct gpu *g)
{
    CUDA_CHECK(cudaSetDevice(g->device));
    return true;
}

/* Seconds until a call counts as hung: grows with the work. */
extern double team_patience;

/* team.cu and one_gpu.cu, as struct kind_of_rank says. */
const char *team_open(void);
void team_close(void);
int alone(const struct problem *p, double *seconds);
int alone_done(struct measurement *m);

/* Waits until every GPU of this process has done what was enqueued.  An error of NCCL, or no
 * end within team_patience, ends all processes with one line. */
void team_wait(void);

/* Ends all processes when an NCCL call failed. */
void nccl_check(ncclResult_t result, const char *call);
#define NCCL_CHECK(call) nccl_check(call, #call)

/* n normal numbers into memory of the present GPU. */
void draw_normal(void *x, size_t n, enum dtype dtype, uint64_t seed);

/* Enqueues the whole computation on every GPU of this process. */
void ring_attention(void);
void tree_attention(void);

/* piece.cu: enqueues the attention of one piece, of g's queries and keys [heads, n_keys, ...].
 *   merges  with what g->part holds        keeps  the result in g->part, beside g->o */
void fold_piece(struct gpu *g, const struct piece *x, const char *keys, size_t n_keys, bool merges,
                bool keeps);
void clear_part(struct gpu *g); /* no keys yet: o = 0, lse = -INFINITY */

/* Bytes of the workspace of any piece of g. */
size_t piece_workspace(const struct gpu *g);
