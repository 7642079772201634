/* part.h: the kernels of stage 5 on a part of a longer problem.  What they give is merged with
 * other parts, so o is also kept in float32, with lse. */
#pragma once

#include "harness.h"
#include "gpu/cuda_check.h"

/* A piece of the shards that lie on a GPU.  All arrays begin at its first row; a head has
 * q_rows rows of q, o, answer and lse, and k_rows of k and v, of which the piece takes seqlen_q
 * or seqlen_k. */
struct part {
    const void *q, *k, *v;
    size_t q_rows, k_rows;
    void *o;             /* the result in the problem's type */
    float *answer, *lse; /* the same in float32 */
    bool merges, keeps;  /* whether answer and lse are merged with; whether answer is written */
    void *workspace;
    cudaStream_t stream;
};

/* The last rung (hopper/14_tuned.cu); it takes what its descriptor says.  o and lse are the
 * answer to the keys so far. */
extern "C" const struct variant tuned_cuda;
void part_tuned(const struct problem *p, const struct part *x);

/* Split-KV, for few queries; of contiguous keys.  Writes answer and lse alone. */
const char *part_split_refuses(const struct problem *p);
size_t part_split_workspace(const struct problem *p);
void part_split(const struct problem *p, const struct part *x);
