/* answer.h: the end of a work tile that has seen only some of the keys, when queries stay on a
 * GPU and keys arrive one part after the other (multi_gpu/ring.cu).  The tile is merged in
 * registers with the answer of the parts before.  o and lse of the answer lie in float32, because
 * a part rounded to 16 bits would add its own rounding to each merge. */
#pragma once

#include "merge_weights.h"
#include "store.h"

/* The answer so far. */
struct answer {
    float *o;           /* in float32 */
    int rows;           /* of a head there, and in lse */
    bool merges, keeps; /* whether it is read, and written */
};

/* The pair of columns `i`, of row or row + 8, of the thread's part of o; NULL outside. */
template <class C>
static __device__ __forceinline__ float2 *answer_at(const struct answer &answer,
                                                    const struct params &params, int row,
                                                    size_t at, int i, int below)
{
    int column = 8 * i + 2 * (threadIdx.x % 4);
    if (row + 8 * below >= params.seqlen_q || column >= params.head_dim_v) return NULL;
    return (float2 *)(answer.o + (at + 8 * below) * params.head_dim_v + column);
}

/* o += weights old of the answer. */
template <class C>
static __device__ __forceinline__ void add_answer(float (&o)[DV<C> / 2],
                                                  const struct answer &answer,
                                                  const struct params &params, int row,
                                                  size_t at, const float (&old)[2])
{
#pragma unroll
    for (int i = 0; i < DV<C> / 4; i++) {
        const float2 *from = answer_at<C>(answer, params, row, at, i / 2, i % 2);
        float2 x = from ? *from : make_float2(0.0f, 0.0f);
        o[2 * i] += old[i % 2] * x.x;
        o[2 * i + 1] += old[i % 2] * x.y;
    }
}

template <class C>
static __device__ __forceinline__ void keep_answer(const float (&o)[DV<C> / 2],
                                                   const struct answer &answer,
                                                   const struct params &params, int row,
                                                   size_t at)
{
#pragma unroll
    for (int i = 0; i < DV<C> / 4; i++)
        if (float2 *to = answer_at<C>(answer, params, row, at, i / 2, i % 2))
            *to = make_float2(o[2 * i], o[2 * i + 1]);
}

/* o / l, merged with the answer where it `merges`; lse of the answer.  The answer's o is written
 * where it `keeps`: when more parts follow. */
template <class C>
static __device__ __forceinline__ void merge_answer(float (&o)[DV<C> / 2], const struct rows &r,
                                                    const struct answer &answer,
                                                    const struct params &params, int row,
                                                    size_t head)
{
    size_t at = head * answer.rows + row;
    float old[2], part[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        bool inside = row + 8 * i < params.seqlen_q;
        float l = quad_sum(r.l[i]);
        float before = answer.merges && inside ? params.lse[at + 8 * i] : -INFINITY;
        struct merge_weights w = merge_weights_of(before, natural_log(r.mc[i], l));
        old[i] = w.old;
        part[i] = l == 0.0f ? 0.0f : w.part * reciprocal_fast(l);
        __syncwarp(); /* every lane has read lse */
        if (threadIdx.x % 4 == 0 && inside) params.lse[at + 8 * i] = w.lse;
    }
    scale_rows(o, part);
    if (answer.merges) add_answer<C>(o, answer, params, row, at, old);
    if (answer.keeps) keep_answer<C>(o, answer, params, row, at);
}
