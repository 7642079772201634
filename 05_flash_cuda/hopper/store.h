/* store.h: the end of a work tile: o / l and lse, and the two ways out for o. */
#pragma once

#include "work_tile.h"

/* inverse = 1 / l, and lse = m scale + log l.  A row that saw no key has l = 0: inverse = 0 and lse
 * = -inf.
 *   lse   of the thread's first row       n_rows  rows there from it on, or fewer than 1 */
static __device__ __forceinline__ void inverse_sums(const struct rows &r, float *lse, int n_rows,
                                                    float (&inverse)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float l = quad_sum(r.l[i]);
        inverse[i] = l == 0.0f ? 0.0f : reciprocal_fast(l);
        if (threadIdx.x % 4 == 0 && 8 * i < n_rows) lse[8 * i] = natural_log(r.mc[i], l);
    }
}

/* o = o / l, and lse. */
template <int N>
static __device__ __forceinline__ void normalize(float (&o)[N], const struct rows &r,
                                                 float *lse, int n_rows)
{
    float inverse[2];
    inverse_sums(r, lse, n_rows, inverse);
    scale_rows(o, inverse);
}

/* The same in arrays where each head has seqlen_q rows.  `row` is the thread's first row,
 * `head` counts the heads of all batches. */
template <int N>
static __device__ __forceinline__ void normalize(float (&o)[N], const struct rows &r,
                                                 const struct params &params, int row,
                                                 size_t head)
{
    normalize(o, r, params.lse + head * params.seqlen_q + row, params.seqlen_q - row);
}

/* Lane i of four gets word i of each: a 4 x 4 transposition in two exchanges. */
static __device__ __forceinline__ void quad_transpose(uint32_t (&w)[4])
{
    bool high = threadIdx.x & 2, odd = threadIdx.x & 1;
    uint32_t a = __shfl_xor_sync(0xffffffffu, high ? w[0] : w[2], 2);
    uint32_t b = __shfl_xor_sync(0xffffffffu, high ? w[1] : w[3], 2);
    if (high)
        w[0] = a, w[1] = b;
    else
        w[2] = a, w[3] = b;
    a = __shfl_xor_sync(0xffffffffu, odd ? w[0] : w[1], 1);
    b = __shfl_xor_sync(0xffffffffu, odd ? w[2] : w[3], 1);
    if (odd)
        w[0] = a, w[2] = b;
    else
        w[1] = a, w[3] = b;
}

/* Writes o from registers, 16 bytes a lane, 64 a row: where no shared memory is free, or where
 * another sequence begins behind the last row.
 *   row   the thread's first row in the array      n_rows  rows there from it on */
template <class C>
static __device__ __forceinline__ void
store_from_registers(const float (&o)[DV<C> / 2], const struct params &params, int row,
                     int n_rows, int head, int batch)
{
    const struct strides &s = params.o_strides;
    typename C::T *out =
        (typename C::T *)params.o_rows + batch * s.batch + head * s.head + row * s.row;
#pragma unroll
    for (int i = 0; i < DV<C> / 16; i++) {
        int below = i % 2 * 8, column = i / 2 * 32 + 8 * (threadIdx.x % 4);
        uint32_t w[4];
#pragma unroll
        for (int x = 0; x < 4; x++) {
            int at = 16 * (i / 2) + 4 * x + 2 * (i % 2);
            w[x] = pack<typename C::T>(o[at], o[at + 1]);
        }
        quad_transpose(w);
        if (below < n_rows && column < params.head_dim_v)
            *(uint4 *)(out + below * s.row + column) =
                make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* The same in arrays where each head has seqlen_q rows; `head` counts all heads. */
template <class C>
static __device__ __forceinline__ void
store_from_registers(const float (&o)[DV<C> / 2], const struct params &params, int row,
                     size_t head)
{
    int batch = (int)head / params.heads_q;
    store_from_registers<C>(o, params, row, params.seqlen_q - row,
                            (int)head - batch * params.heads_q, batch);
}

/* Writes the warpgroup's 64 rows of o, from query `first` on, through shared memory
 * `staged`, swizzled, and TMA: 64 rows of panels that are PANEL_ROWS high.  Thread 0 of the
 * warpgroup must know that an earlier store has read `staged`; barrier `id` is the
 * warpgroup's own. */
template <class C, int PANEL_ROWS = 64>
static __device__ __forceinline__ void
store_through_tma(const float (&o)[DV<C> / 2], typename C::T *staged,
                  const struct params &params, int first, const struct work_tile &t, int id,
                  int column = 0)
{
    int lane = threadIdx.x % 32, r = threadIdx.x % 128 / 32 * 16 + lane % 16;
    uint32_t base = shared_address(staged) + r * 128;
#pragma unroll
    for (int i = 0; i < DV<C> / 16; i++) {
        uint32_t chunk = (2 * (i % 4) + lane / 16) ^ (r & 7);
        const float *x = o + 8 * i;
        stmatrix(base + i / 4 * PANEL_ROWS * 128 + chunk * 16, pack<typename C::T>(x[0], x[1]),
                 pack<typename C::T>(x[2], x[3]), pack<typename C::T>(x[4], x[5]),
                 pack<typename C::T>(x[6], x[7]));
    }
    fence_proxy_async();
    named_barrier_sync(id, 128);
    if (threadIdx.x % 128 == 0) {
#pragma unroll
        for (int i = 0; i < IN_PANELS<DV<C>> / 64; i++)
            tma_store_box(&params.o, staged + i * PANEL_ROWS * 64, column + 64 * i, first,
                          t.head, t.batch);
        tma_store_commit();
    }
}

/* Writes consumer w's 64 rows of o, through its part of `staged` or from registers.
 *   finish(row, head)  makes them the result: of the thread's first row, of that head of all */
template <class C, class FINISH>
static __device__ __forceinline__ void store_tile(float (&o)[DV<C> / 2], typename C::T *staged,
                                                  const struct params &params,
                                                  const struct work_tile &t, int w, FINISH finish)
{
    int first = t.tile * C::Br + 64 * w, row = first + first_row();
    size_t head = (size_t)t.batch * params.heads_q + t.head;
    finish(row, head);
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait_read(); /* the tile before */
    named_barrier_sync(8 + w, 128);
    if (C::TMA_STORE)
        store_through_tma<C>(o, staged + w * 64 * IN_PANELS<DV<C>>, params, first, t, 8 + w);
    else
        store_from_registers<C>(o, params, row, head);
}
