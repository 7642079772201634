/* hopper_tile.h: what the Hopper rungs do with a tile, in exactly the same form.
 *
 * C is the rung's `struct config`: C::T the 16-bit type, C::D the padded head dimension,
 * C::Br queries and C::Bc keys in a tile, 64 queries a warpgroup. */
#ifndef HOPPER_TILE_H
#define HOPPER_TILE_H

#include "hopper.h"
#include "launch.h"
#include "softmax.h"
#include "wgmma.h"

/* What a block of rungs 5 to 9 computes: its tile's first query, and of which head. */
struct spot {
    int first, head, batch;
};

static __device__ __forceinline__ struct spot spot_of(const struct job &j, int br)
{
    int head = blockIdx.x / j.tiles;
    struct spot at = {(int)(blockIdx.x - head * j.tiles) * br, head % j.heads_q,
                      head / j.heads_q};
    return at;
}

/* Keys that query i sees: keys 0 ... n - 1. */
static __device__ __forceinline__ int keys_seen(const struct job &j, int i)
{
    int n = j.causal ? min(j.seqlen_k, i + 1 + j.seqlen_k - j.seqlen_q) : j.seqlen_k;
    return max(n, 0);
}

/* Blocks of keys that queries up to `last` see, and those that hide none from `first`. */
template <class C>
static __device__ __forceinline__ int blocks_seen(const struct job &j, int last)
{
    return (keys_seen(j, last) + C::Bc - 1) / C::Bc;
}

template <class C>
static __device__ __forceinline__ int blocks_open(const struct job &j, int first)
{
    return keys_seen(j, first) / C::Bc;
}

/* The first of the two rows (hopper.h) of this thread in its warpgroup's 64. */
static __device__ __forceinline__ int first_row(void)
{
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}

/* Hides what row and row + 8 do not see in key block n. */
template <class C>
static __device__ __forceinline__ void hide_block(float (&s)[C::Bc / 2],
                                                  const struct job &j, int row, int n)
{
    int first = n * C::Bc + 2 * (threadIdx.x % 4);
    const int visible[2] = {keys_seen(j, row) - first, keys_seen(j, row + 8) - first};
    hide(s, visible);
}

/* Copies ROWS rows from `row` on into a tile, panel after panel; bar counts the bytes. */
template <class C, int ROWS>
static __device__ __forceinline__ void load_tile(typename C::T *to,
                                                 const CUtensorMap *map, uint64_t *bar,
                                                 int row, int head, int batch)
{
    barrier_expect(bar, ROWS * C::D * 2);
#pragma unroll
    for (int i = 0; i < C::D / 64; i++)
        tma_load(to + i * ROWS * 64, map, bar, 64 * i, row, head, batch);
}

/* Starts S = Q K^T: 64 rows of Q at descriptor q, a tile of Bc keys.  PART > 0: as two
 * groups, the first PART of the D / 16 products and the others. */
template <class C, int PART = 0>
static __device__ __forceinline__ void start_scores(float (&s)[C::Bc / 2], uint64_t q,
                                                    const typename C::T *k_tile)
{
    uint64_t k = descriptor_qk(k_tile);
    wgmma<typename C::T, C::Bc>::qk_first(s, q, k);
#pragma unroll
    for (int i = 1; i < C::D / 16; i++) {
        if (i == PART) wgmma_commit();
        wgmma<typename C::T, C::Bc>::qk(s, q + i / 4 * (C::Br * 128 >> 4) + i % 4 * 2,
                                        k + i / 4 * (C::Bc * 128 >> 4) + i % 4 * 2);
    }
    wgmma_commit();
}

/* The same with Q held in registers (load_queries). */
template <class C>
static __device__ __forceinline__ void start_scores_held(float (&s)[C::Bc / 2],
                                                         const uint32_t (&q)[C::D / 4],
                                                         const typename C::T *k_tile)
{
    uint64_t k = descriptor_qk(k_tile);
    wgmma<typename C::T, C::Bc>::held_first(s, q, k);
#pragma unroll
    for (int i = 1; i < C::D / 16; i++)
        wgmma<typename C::T, C::Bc>::held(s, q + 4 * i,
                                          k + i / 4 * (C::Bc * 128 >> 4) + i % 4 * 2);
    wgmma_commit();
}

/* Takes the 64 rows at q_rows of a Q tile of Br rows into registers, as A operands. */
template <class C>
static __device__ __forceinline__ void load_queries(uint32_t (&q)[C::D / 4],
                                                    const typename C::T *q_rows)
{
    int lane = threadIdx.x % 32, r = threadIdx.x % 128 / 32 * 16 + lane % 16;
    uint32_t base = shared_address(q_rows) + r * 128;
#pragma unroll
    for (int i = 0; i < C::D / 16; i++) {
        uint32_t chunk = (2 * (i % 4) + lane / 16) ^ (r & 7);
        load_matrices(q + 4 * i, base + i / 4 * C::Br * 128 + chunk * 16);
    }
}

/* Starts O += P V: the weights of 64 rows, a tile of Bc values. */
template <class C>
static __device__ __forceinline__ void start_output(float (&o)[C::D / 2],
                                                    const uint32_t (&p)[C::Bc / 4],
                                                    const typename C::T *v_tile)
{
    uint64_t v = descriptor_v(v_tile, C::Bc);
#pragma unroll
    for (int i = 0; i < C::Bc / 16; i++)
        wgmma<typename C::T, C::D>::pv(o, p + 4 * i, v + 128 * i);
    wgmma_commit();
}

/* The empty state: m = -inf, l = 0, o = 0. */
template <int N>
static __device__ __forceinline__ void empty(struct rows &r, float (&o)[N])
{
    r.m[0] = r.m[1] = -INFINITY;
    r.mc[0] = r.mc[1] = r.l[0] = r.l[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) o[i] = 0.0f;
}

/* log(2^mc l).  The exponent of l goes to mc, with which it nearly cancels; what is left
 * is in [1, 2), where the fast logarithm is right to 2^-22.  NaN stays NaN. */
static __device__ __forceinline__ float natural_log(float mc, float l)
{
    int bits = __float_as_int(l);
    float exponent = (float)((bits >> 23) - 127);
    float fraction = log2_fast(__int_as_float((bits & 0x7fffff) | 0x3f800000));
    return l == 0.0f ? -INFINITY : (mc + exponent + fraction) * 0.69314718f + (l - l);
}

/* o = o / l, and lse = m scale + log l.  A row that saw no key has l = 0: o = 0 and lse =
 * -inf.  `row` is the thread's first row, `head` counts the heads of all batches. */
template <int N>
static __device__ __forceinline__ void finish(float (&o)[N], const struct rows &r,
                                              const struct job &j, int row, size_t head)
{
    float inverse[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float l = quad_sum(r.l[i]);
        inverse[i] = l == 0.0f ? 0.0f : reciprocal_fast(l);
        if (threadIdx.x % 4 == 0 && row + 8 * i < j.seqlen_q)
            j.lse[head * j.seqlen_q + row + 8 * i] = natural_log(r.mc[i], l);
    }
    scale_rows(o, inverse);
}

/* Writes o from registers, two columns at a time: 16 bytes a row and instruction. */
template <class C>
static __device__ __forceinline__ void
store_pairs(const float (&o)[C::D / 2], const struct job &j, int row, size_t head)
{
    typename C::T *out =
        (typename C::T *)j.o_rows + (head * j.seqlen_q + row) * j.head_dim_v;
#pragma unroll
    for (int i = 0; i < C::D / 4; i++) {
        int column = i / 2 * 8 + 2 * (threadIdx.x % 4), below = i % 2 * 8;
        if (column < j.head_dim_v && row + below < j.seqlen_q)
            *(uint32_t *)(out + (size_t)below * j.head_dim_v + column) =
                pack<typename C::T>(o[2 * i], o[2 * i + 1]);
    }
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

/* Writes o from registers, 16 bytes a lane, 64 a row: where no shared memory is free. */
template <class C>
static __device__ __forceinline__ void
store_quads(const float (&o)[C::D / 2], const struct job &j, int row, size_t head)
{
    typename C::T *out =
        (typename C::T *)j.o_rows + (head * j.seqlen_q + row) * j.head_dim_v;
#pragma unroll
    for (int i = 0; i < C::D / 16; i++) {
        int below = i % 2 * 8, column = i / 2 * 32 + 8 * (threadIdx.x % 4);
        uint32_t w[4];
#pragma unroll
        for (int x = 0; x < 4; x++) {
            int at = 16 * (i / 2) + 4 * x + 2 * (i % 2);
            w[x] = pack<typename C::T>(o[at], o[at + 1]);
        }
        quad_transpose(w);
        if (row + below < j.seqlen_q && column < j.head_dim_v)
            *(uint4 *)(out + (size_t)below * j.head_dim_v + column) =
                make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* Writes the warpgroup's 64 rows of o, from query `first` on, through shared memory
 * `staged` [64 rows, D], swizzled, and TMA.  Thread 0 of the warpgroup must know that an
 * earlier store has read `staged`; barrier `id` is the warpgroup's own. */
template <class C>
static __device__ __forceinline__ void
store_staged(const float (&o)[C::D / 2], typename C::T *staged, const struct job &j,
             int first, int head, int batch, int id)
{
    int lane = threadIdx.x % 32, r = threadIdx.x % 128 / 32 * 16 + lane % 16;
    uint32_t base = shared_address(staged) + r * 128;
#pragma unroll
    for (int i = 0; i < C::D / 16; i++) {
        uint32_t chunk = (2 * (i % 4) + lane / 16) ^ (r & 7);
        const float *x = o + 8 * i;
        store_matrices(base + i / 4 * 64 * 128 + chunk * 16,
                       pack<typename C::T>(x[0], x[1]), pack<typename C::T>(x[2], x[3]),
                       pack<typename C::T>(x[4], x[5]), pack<typename C::T>(x[6], x[7]));
    }
    async_proxy_fence();
    named_sync(id, 128);
    if (threadIdx.x % 128 == 0) {
#pragma unroll
        for (int i = 0; i < C::D / 64; i++)
            tma_store(&j.o, staged + i * 64 * 64, 64 * i, first, head, batch);
        tma_store_commit();
    }
}

#endif
