/* hopper_tiles.h: what the Hopper rungs of the backward ladder share in exactly the same
 * form: their tiles, the five products, p and ds, dq's buffer.
 *
 * Two consumer warpgroups share a tile of Bc = 128 keys, 64 each.  Both see all Br
 * queries of a tile:
 *
 *     S^T, dP^T   64 keys x Br queries, in registers      A = its rows of K or V, B = Q or dO
 *     dV, dK      64 keys x D columns, in registers       A = P^T or dS^T in registers
 *     dQ          64 queries x 64 columns, in registers   A = dS in shared memory, B = K
 *
 * dQ is a sum over all 128 keys, so that each consumer needs the other's dS: it passes
 * through shared memory, transposed on the way by stmatrix.  A consumer computes half of
 * dQ: at D = 64 that of 64 queries of 128, at D = 128 64 columns of 128. */
#pragma once

#include "backward/hopper_work.h"
#include "hopper/store.h"

/* Writes y as a sum of three terms of 16 bits, with the weights below.  A tensor core adds them to a
 * score.  Each term takes up the rest that the one before left: 8 bits of y in bfloat16, so 24, and
 * 11 in float16, so 33.  The weights are 2^11 apart for float16, and the first is the largest power of
 * two there: |y| may be 65504 * 2^15, and what 11 bits leave of it, at most 2^19, is 2^15 times the
 * second.  Any powers of two would do for bfloat16. */
#define TERM_0 0x1p15f
#define TERM_1 0x1p4f
#define TERM_2 0x1p-7f
template <enum dtype T> static __device__ void set_terms(uint16_t *to, float y)
{
    typedef std::conditional_t<T == BF16, __nv_bfloat16, __half> type;
    const float limit = T == BF16 ? 0x1p125f : 65504.0f * TERM_0;
    if (fabsf(y) > limit) y = copysignf(limit, y); /* NaN stays */
    uint32_t term[3];
    for (int i = 0; i < 3; i++) {
        const float weight = i == 0 ? TERM_0 : i == 1 ? TERM_1 : TERM_2;
        term[i] = pack<type>(y / weight, 0.0f) & 0xffff;
        y -= weight * as_float<T>((uint16_t)term[i]);
    }
    *(uint4 *)to = make_uint4(term[0] | term[1] << 16, term[2], 0, 0);
}

/* ---- a consumer's products ---- */

/* The 16 columns that all keys have more for the terms, as an A operand. */
template <class C> static __device__ __forceinline__ void set_weights(uint32_t (&weights)[4])
{
    const int pair = threadIdx.x % 4;
    const uint32_t first = pack<typename C::T>(TERM_0, TERM_1);
    const uint32_t second = pack<typename C::T>(TERM_2, 0.0f);
    weights[0] = weights[1] = pair == 0 ? first : pair == 1 ? second : 0;
    weights[2] = weights[3] = 0;
}

/* The same in shared memory, where all rows of A are the same: 8 of them, in two halves of 8
 * columns, 128 bytes each.  The first threads of the block write them. */
template <class C> static __device__ __forceinline__ void set_weights(uint32_t (&to)[64])
{
    if (threadIdx.x >= 64) return;
    const int pair = threadIdx.x % 32 % 4;
    const uint32_t first = pack<typename C::T>(TERM_0, TERM_1);
    const uint32_t second = pack<typename C::T>(TERM_2, 0.0f);
    to[threadIdx.x] = threadIdx.x >= 32 || pair > 1 ? 0 : pair == 0 ? first : second;
    fence_proxy_async();
}

/* Both offsets of 8 rows are wanted as 0: all groups of 8 rows are the same one.  The second 8 columns
 * are 128 bytes further; no swizzle. */
static __device__ __forceinline__ uint64_t descriptor_of_weights(const uint32_t (&from)[64])
{
    return (uint64_t)(128 >> 4) << 16 | (shared_address(from) & 0x3ffff) >> 4;
}

/* Issues S^T - lse / scale = (K, 1) (Q, -lse / scale)^T or dP^T - D = (V, 1) (dO, -D)^T: 64 rows of
 * a tile of keys, all of a tile of queries.  The terms first: 16 columns more, of which 8 lie in
 * shared memory and count twice, the second time with the weight 0. */
template <class C, class WEIGHTS>
static __device__ __forceinline__ void issue_scores(float (&s)[C::Br / 2],
                                                    const typename C::T *keys,
                                                    const typename C::T *queries,
                                                    const typename C::T *terms,
                                                    const WEIGHTS &weights)
{
    const uint64_t a = descriptor_qk(keys), b = descriptor_qk(queries);
    wgmma_qk<typename C::T, true>(s, weights, descriptor_of_8_columns(terms));
#pragma unroll
    for (int i = 0; i < C::D / 16; i++)
        wgmma_qk<typename C::T, false>(s, a + i / 4 * (C::Bc * 128 >> 4) + i % 4 * 2,
                                       b + i / 4 * (C::Br * 128 >> 4) + i % 4 * 2);
    wgmma_commit();
}

/* Issues dV += P^T dO or dK += dS^T Q: weights in registers, a tile of queries. */
template <class C>
static __device__ __forceinline__ void issue_rows(float (&o)[C::D / 2],
                                                  const uint32_t (&w)[C::Br / 4],
                                                  const typename C::T *queries)
{
    const uint64_t b = descriptor_v(queries, C::Br);
#pragma unroll
    for (int i = 0; i < C::Br / 16; i++) wgmma_pv<typename C::T>(o, w + 4 * i, b + 128 * i);
    wgmma_commit();
}

/* Issues consumer w's half of dQ = dS K. */
template <class C>
static __device__ __forceinline__ void issue_dq(float (&dq)[32], const typename C::T *ds,
                                                const typename C::T *keys, int w)
{
    const uint64_t a = descriptor_qk(ds + (C::D == 64 ? w * 64 * 64 : 0));
    const uint64_t b = descriptor_v(keys + (C::D == 64 ? 0 : w * C::Bc * 64), C::Bc);
    wgmma_dsk<typename C::T, true>(dq, a, b);
#pragma unroll
    for (int i = 1; i < C::Bc / 16; i++)
        wgmma_dsk<typename C::T, false>(dq, a + i / 4 * (C::Br * 128 >> 4) + i % 4 * 2,
                                        b + 128 * i);
    wgmma_commit();
}

/* ---- between the products ---- */

/* p = 2^(s c), where s has lse in it.  A thread's columns are queries, 8 (i / 4) + 2 (lane % 4) +
 * i % 2 (wgmma.h). */
template <class C>
static __device__ __forceinline__ void exponentials(float (&s)[C::Br / 2], float c)
{
#pragma unroll
    for (int i = 0; i < C::Br / 2; i++) s[i] = exp2_fast(s[i] * c);
}

/* p = 0 where a key is hidden: after the exponential, which may be inf there.
 *   j  the consumer's first key      i_0  the first query */
template <class C, enum dtype T>
static __device__ __forceinline__ void hide(float (&p)[C::Br / 2], const struct gradient<T> &x,
                                            int j, int i_0)
{
    struct key_range32 seen[2];
    asm("" : "+r"(j)); /* hides it from the compiler: nothing of it waits in registers */
    j += threadIdx.x / 2 & 48; /* first_row() with one register less */
    j += threadIdx.x / 4 & 7;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        seen[r] = queries_of(x.mask, x.seqlen_q, j + 8 * r, j + 8 * r + 1);
        if (j + 8 * r >= x.seqlen_k) seen[r].end = 0;
        seen[r].first -= i_0 + threadIdx.x % 4 * 2, seen[r].end -= i_0 + threadIdx.x % 4 * 2;
    }
#pragma unroll
    for (int i = 0; i < C::Br / 2; i++) {
        const int query = 8 * (i / 4) + i % 2;
        if (query < seen[i / 2 % 2].first || query >= seen[i / 2 % 2].end) p[i] = 0.0f;
    }
}

/* ds = p (dp - D), in dp, which has D in it.  A step hides what it has hidden in p once more in ds:
 * do . v of finite bfloat16 numbers may be infinite, and 0 times infinity is NaN. */
template <class C>
static __device__ __forceinline__ void gradients_of_scores(float (&dp)[C::Br / 2],
                                                           const float (&p)[C::Br / 2])
{
#pragma unroll
    for (int i = 0; i < C::Br / 2; i++) dp[i] *= p[i];
}

/* Does every query of the tile see all of the keys from j on? */
template <class C, enum dtype T>
static __device__ __forceinline__ bool sees_all(const struct gradient<T> &x, int i_0, int j,
                                                int keys = C::Bc)
{
    struct key_range32 all = all_rows_see(x.mask, i_0, min(i_0 + C::Br, x.seqlen_q));
    return all.first <= j && j + keys <= all.end;
}

/* Does some query of the tile see some of the 64 keys from j on? */
template <class C, enum dtype T>
static __device__ __forceinline__ bool sees_some(const struct gradient<T> &x, int i_0, int j)
{
    const struct key_range32 seen = queries_of(x.mask, x.seqlen_q, j, j + 64);
    return seen.first < i_0 + C::Br && i_0 < seen.end;
}

/* dS^T of consumer w to shared memory, as dS: a row for each query. */
template <class C>
static __device__ __forceinline__ void put_ds(typename C::T *ds, const uint32_t (&packed)[C::Br / 4],
                                              int w)
{
    const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
    const uint32_t chunk = threadIdx.x % 128 / 32 * 2 + lane / 8 % 2;
    const uint32_t to =
        shared_address(ds + w * C::Br * 64) + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll
    for (int i = 0; i < C::Br / 16; i++) stmatrix_transposed(to + i * 16 * 128, packed + 4 * i);
}

/* ---- results ---- */

/* A warpgroup's 64 rows of N accumulators a thread times `scale`, rounded, 16 bytes a
 * lane.
 *   to   the head's first row      row  the thread's first (wgmma.h), of n_rows
 *   column  that the 2 N columns begin at, of cols */
template <class T, int N>
static __device__ __forceinline__ void store_gradient(uint16_t *to, const float (&o)[N],
                                                      float scale, int row, int n_rows,
                                                      int column, int cols)
{
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        const int r = row + i % 2 * 8, c = column + i / 2 * 32 + 8 * (threadIdx.x % 4);
        uint32_t w[4];
#pragma unroll
        for (int x = 0; x < 4; x++) {
            const int at = 16 * (i / 2) + 4 * x + 2 * (i % 2);
            w[x] = pack<T>(o[at] * scale, o[at + 1] * scale);
        }
        quad_transpose(w);
        if (r < n_rows && c < cols)
            *(uint4 *)(to + (ptrdiff_t)r * cols + c) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* ---- dq's buffer ---- dq is summed in float32, in the order of the registers, 64 x 64
 * numbers (a block) at a time: four numbers of each
 * thread, eight times.  So a warp adds whole lines. */

template <class C, enum dtype T>
static __device__ __forceinline__ int dq_block(const struct gradient<T> &x, int head, int i_0, int w)
{
    return (head * x.query_tiles + i_0 / C::Br) * (C::Br * C::D / 4096) + w;
}

/* dq = scale dq_sum, rounded, row by row: a warpgroup for each block. */
template <class C, enum dtype T>
static __global__ void __launch_bounds__(128) store_dq_kernel(const struct gradient<T> whole)
{
    constexpr int WIDE = C::D / 64;
    const float *from = whole.dq_sum + (ptrdiff_t)blockIdx.x * 64 * 64 + threadIdx.x * 4;
    const int block = blockIdx.x / WIDE, of_head = whole.padded / 64, head = block / of_head;
    const int column = blockIdx.x % WIDE * 64;
    int first = block % of_head * 64;
    struct gradient<T> x = whole;
    if constexpr (C::PACKED) {
        const int *starts = x.all.cu_seqlens_q;
        const int s = sequence_of_tile<C::Br>(starts, x.all.n, first / C::Br);
        set_sequence<C>(x, find_sequence(x.all, s), s);
        first -= (starts[s] / C::Br + s) * C::Br;
    }
    const int row = first + first_row(), i_0 = first / C::Br * C::Br;
    if (i_0 >= x.seqlen_q) return;
    const struct key_range32 seen = some_row_sees(x.mask, i_0, min(i_0 + C::Br, x.seqlen_q));
    const bool summed = seen.first < seen.end; /* else nobody wrote a sum */
    float dq[32];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 four = summed ? *(const float4 *)(from + i * 128 * 4) : make_float4(0, 0, 0, 0);
        dq[4 * i] = four.x, dq[4 * i + 1] = four.y, dq[4 * i + 2] = four.z, dq[4 * i + 3] = four.w;
    }
    store_gradient<typename C::T>(x.dq + (ptrdiff_t)head * x.rows_q * x.head_dim, dq, x.scale,
                                  row, x.seqlen_q, column, x.head_dim);
}
