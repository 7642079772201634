/* values.h: V in the form in which P V wants it, made by a kernel of its own before attention.
 *
 *   e4m3      transposed: wgmma reads 8-bit operands along the reduction, and that is keys.  A tile
 *             is Bc keys of a head: D rows of Bc bytes, every 16 keys in the order of the weights
 *   float16   widened, which is exact: Bc rows of D columns
 *
 * Tiles lie one after another in the workspace, what the problem does not have is 0.  FlashAttention-3
 * transposes each tile in shared memory, once for every 128 queries that read it.  Here each tile is
 * transposed once: 2 bytes per value are moved, little against 4 d flops per score from a few
 * thousand keys on. */
#pragma once

#include "hopper/params.h"
#include "wgmma8.h"

/* V as it is given. */
struct given_values {
    const uint8_t *v;
    struct strides strides;
    int seqlen_k, heads_kv, head_dim_v, tiles; /* of a head */
};

/* The key of 16 that stands in place p of a row of V^T: thread p / 4 of a quad has its weight. */
static __device__ __forceinline__ constexpr int key_of_place(int p)
{
    return p % 4 / 2 * 8 + p / 4 * 2 + p % 2;
}

/* 16 values of key `key` of the block's tile, from column `column` on. */
static __device__ __forceinline__ uint4 load_values(const struct given_values &x, int bc, int key,
                                                    int column)
{
    const int head = (int)blockIdx.x / x.tiles, j = (int)blockIdx.x % x.tiles * bc + key;
    const struct strides &s = x.strides;
    if (j >= x.seqlen_k || column >= x.head_dim_v) return make_uint4(0, 0, 0, 0);
    return *(const uint4 *)(x.v + head / x.heads_kv * s.batch + head % x.heads_kv * s.head +
                            j * s.row + column);
}

enum { VALUE_THREADS = 256 };

/* 16 keys and a gap, with which eight threads that read a column meet no bank twice. */
template <class C> struct value_tile { uint8_t keys[C::Bc / 16][16 * C::DV + 16]; };

/* One block of threads a tile. */
template <class C>
static __global__ void __launch_bounds__(VALUE_THREADS)
    transpose_values_kernel(const struct given_values x, uint4 *out)
{
    value_tile<C> &sm = dynamic_shared<value_tile<C>>();
    for (int i = (int)threadIdx.x; i < C::Bc * C::DV / 16; i += VALUE_THREADS) {
        const int key = i / (C::DV / 16), column = i % (C::DV / 16) * 16;
        *(uint4 *)&sm.keys[key / 16][key % 16 * C::DV + column] = load_values(x, C::Bc, key, column);
    }
    __syncthreads();
    out += (size_t)blockIdx.x * (C::DV * C::Bc / 16);
    for (int i = (int)threadIdx.x; i < C::DV * C::Bc / 16; i += VALUE_THREADS) {
        const uint8_t *column = sm.keys[i % (C::Bc / 16)] + i / (C::Bc / 16);
        uint32_t w[4] = {};
#pragma unroll
        for (int p = 0; p < 16; p++)
            w[p / 4] |= (uint32_t)column[key_of_place(p) * C::DV] << p % 4 * 8;
        out[i] = make_uint4(w[0], w[1], w[2], w[3]);
    }
    dependents_may_start();
}

/* The same for float16, of values of type T. */
template <class C, class T>
static __global__ void __launch_bounds__(VALUE_THREADS)
    widen_values_kernel(const struct given_values x, uint4 *out)
{
    out += (size_t)blockIdx.x * (C::DV * C::Bc / 8);
    for (int i = (int)threadIdx.x; i < C::Bc * C::DV / 16; i += VALUE_THREADS) {
        const uint4 from = load_values(x, C::Bc, i / (C::DV / 16), i % (C::DV / 16) * 16);
        const uint32_t w[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
        for (int k = 0; k < 4; k += 2)
            out[2 * i + k / 2] =
                make_uint4(widen_to_f16<T>(w[k]), widen_to_f16<T>(w[k] >> 16),
                           widen_to_f16<T>(w[k + 1]), widen_to_f16<T>(w[k + 1] >> 16));
    }
    dependents_may_start();
}

/* ---- the host's side ---- */

template <class C> static size_t n_value_tiles(const struct problem *p)
{
    return p->batch * p->heads_kv * ((p->seqlen_k + C::Bc - 1) / C::Bc);
}

template <class C> static size_t value_bytes(const struct problem *p)
{
    return n_value_tiles<C>(p) * C::Bc * C::DV * (C::WIDE ? 2 : 1);
}

/* Fills the workspace, and gives the map of its tiles. */
template <class C>
static CUtensorMap prepare_values(const struct problem *p, const struct arrays *a)
{
    const int n = (int)n_value_tiles<C>(p);
    const size_t tiles = (p->seqlen_k + C::Bc - 1) / C::Bc;
    const struct given_values x = {(const uint8_t *)a->v, strides_of_v(p), (int)p->seqlen_k,
                                   (int)p->heads_kv, (int)p->head_dim_v, (int)tiles};
    uint4 *out = (uint4 *)a->workspace;
    if constexpr (!C::WIDE)
        start(transpose_values_kernel<C>, n, VALUE_THREADS, sizeof(value_tile<C>), a->stream, x, out);
    else if (v_dtype(p) == INT8)
        start(widen_values_kernel<C, int8>, n, VALUE_THREADS, 0, a->stream, x, out);
    else start(widen_values_kernel<C, e4m3>, n, VALUE_THREADS, 0, a->stream, x, out);
    const struct shape4 shape = {p->batch, p->heads_kv, tiles * C::V_ROWS, C::V_COLUMNS};
    return tensor_map(out, BF16, shape, strides_or({}, p->heads_kv, shape.rows, shape.columns),
                      C::V_ROWS);
}
