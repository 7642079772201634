/* part.h: the kernels of stage 5 on a part of a longer problem.  What they give is merged with
 * other parts, so o is written in float32, with lse. */
#ifndef PART_H
#define PART_H

#include "stage.h"
#include "gpu/cuda_check.h"

/* A piece of the shards that lie on a GPU.  q, k, v: its first rows; a head has q_rows or
 * k_rows rows in memory, of which the piece takes seqlen_q or seqlen_k. */
struct part {
    const void *q, *k, *v;
    size_t q_rows, k_rows;
    float *o, *lse; /* [batch, heads_q, seqlen_q (, head_dim_v)], contiguous */
    void *workspace;
    cudaStream_t stream;
};

/* The last rung (hopper/16_tuned.cu); it takes what its descriptor says. */
extern "C" const struct variant tuned_cuda;
void part_tuned(const struct problem *p, const struct part *x);

/* Split-KV, for few queries; of contiguous keys. */
const char *part_split_refuses(const struct problem *p);
size_t part_split_workspace(const struct problem *p);
void part_split(const struct problem *p, const struct part *x);

#endif
