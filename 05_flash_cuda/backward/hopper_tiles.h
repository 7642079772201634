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
#ifndef HOPPER_TILES_H
#define HOPPER_TILES_H

#include "backward/gradient.h"
#include "hopper/pipeline.h"
#include "hopper/store.h"

/* A kernel's parameters. */
template <enum dtype T> struct backward_params {
    CUtensorMap q, k, v, d_o;
    struct gradient<T> x;
    float c;      /* scale log2(e) */
    int window;   /* heads whose tiles of keys begin in turn */
    int *counter; /* rung 8: blocks begun, and then additions to each block of dq */
};

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

/* A tile of queries: their Q and dO, and the terms of lse and of D (gradient.h). */
template <class C> struct queries {
    alignas(1024) typename C::T q[C::Br * C::D];
    alignas(1024) typename C::T d_o[C::Br * C::D];
    alignas(128) typename C::T lse[C::Br * 8], D_i[C::Br * 8];
};

/* The same at D = 256: there is room for one dO, which lies apart (rung 6). */
template <class C>
    requires(C::D == 256)
struct queries<C> {
    alignas(1024) typename C::T q[C::Br * C::D];
    alignas(128) typename C::T lse[C::Br * 8], D_i[C::Br * 8];
};

/* The work of a block: a tile of keys of key head head_kv (of all batches), and the n tiles
 * of queries that see some of them, head after head of the group: first, first + step, ... */
struct key_work { int head_kv, j_0, first, n, step; };

/* A row of a map (hopper_launch.h). */
struct box_row { int row, batch; };

/* Work in packed arrays: with the problem that its sequence is on its own, and the place of its
 * row 0 in the maps. */
template <enum dtype T> struct packed_work : key_work {
    struct gradient<T> x;
    struct box_row q, k;
};
template <class C>
using any_work = std::conditional_t<C::PACKED, struct packed_work<C::TYPE_OF_T>, struct key_work>;

/* The problem that some work belongs to. */
template <class C, enum dtype T>
static __device__ __forceinline__ const struct gradient<T> &
problem_of(const struct backward_params<T> &params, const any_work<C> &w)
{
    if constexpr (C::PACKED) return w.x;
    else return params.x;
}

/* Rows of dk and dv before those of a key head. */
template <class C, enum dtype T>
static __device__ __forceinline__ ptrdiff_t keys_before(const struct gradient<T> &x, int head_kv)
{
    return (ptrdiff_t)head_kv * (C::PACKED ? x.rows_k : x.seqlen_k);
}

/* The tile of queries after i_0, and around to the first. */
template <class C>
static __device__ __forceinline__ int next_queries(const struct key_work &work, int i_0)
{
    const int step = C::STEP ? C::STEP : work.step;
    i_0 += step * C::Br;
    return i_0 == (work.first + work.n * step) * C::Br ? work.first * C::Br : i_0;
}

template <class C> struct backward_memory {
    alignas(1024) typename C::T k[C::Bc * C::D];
    alignas(1024) typename C::T v[C::Bc * C::D];
    struct queries<C> tile[C::STAGES];
    alignas(1024) typename C::T ds[2][C::Br * C::Bc]; /* dS, panels of 64 keys; used in turn */
    uint64_t kv_full, q_full[C::STAGES], q_empty[C::STAGES], do_full[C::STAGES],
        do_empty[C::STAGES], ds_full[2], dq_full[2], dq_empty[2];
    alignas(128) float dq[2][C::STAGED ? 64 * 64 : 4]; /* STAGED: of each consumer */
    any_work<C> work; /* here, not in registers: consumers have none left */
};

template <class C> static __device__ __forceinline__ void memory_init(backward_memory<C> &sm)
{
    mbarrier_init(&sm.kv_full, 1);
    for (int i = 0; i < C::STAGES; i++) {
        mbarrier_init(&sm.q_full[i], 1);
        mbarrier_init(&sm.do_full[i], 1);
        mbarrier_init(&sm.q_empty[i], C::RELEASES);
        mbarrier_init(&sm.do_empty[i], C::RELEASES);
    }
    for (int i = 0; i < 2; i++) {
        mbarrier_init(&sm.ds_full[i], C::DS_WARPS);
        mbarrier_init(&sm.dq_full[i], 4);
        mbarrier_init(&sm.dq_empty[i], 1);
    }
    fence_mbarrier_init();
}

/* Are some keys hidden behind a query, so that the first keys have most queries? */
template <enum dtype T> static inline HOST_DEVICE bool is_causal(const struct gradient<T> &x)
{
    return x.mask.last < x.seqlen_k;
}

/* The tile of keys, of all heads, that is the n-th to begin: the first tile of `window` heads, then
 * their second, and so on; then those of the next heads. */
template <enum dtype T>
static __device__ __forceinline__ int nth_tile(const struct backward_params<T> &params, int n,
                                               int head = 0)
{
    const struct gradient<T> &x = params.x;
    head += (n / x.key_tiles - head) / params.window * params.window;
    const int heads = min(params.window, x.batch * x.heads_kv - head), r = n - head * x.key_tiles;
    return (head + r % heads) * x.key_tiles + r / heads;
}

template <class C, enum dtype T>
static __device__ __forceinline__ struct key_work key_work_of(const struct gradient<T> &x,
                                                              int head_kv, int tile)
{
    struct key_work w = {head_kv, tile * C::Bc, 0, 0, 1};
    struct key_range32 seen = queries_of(x.mask, x.seqlen_q, w.j_0, min(w.j_0 + C::Bc, x.seqlen_k));
    w.first = seen.first / C::Br;
    w.n = seen.first < seen.end ? (seen.end + C::Br - 1) / C::Br - w.first : 0;
    return w;
}

/* x as the problem of sequence s alone.  Its tiles of queries are those after the others'. */
template <class C, enum dtype T>
static __device__ __forceinline__ void set_sequence(struct gradient<T> &x,
                                                    const struct rows_of_sequence &s, int number)
{
    const ptrdiff_t first = s.q / C::Br + number;
    x.seqlen_q = s.seqlen_q, x.seqlen_k = s.mask.seqlen_k, x.mask = s.mask;
    x.dq += (ptrdiff_t)s.q * x.head_dim;
    x.dk += (ptrdiff_t)s.k * x.head_dim, x.dv += (ptrdiff_t)s.k * x.head_dim_v;
    x.terms += first * C::Br * 8, x.dq_sum += first * C::Br * C::D;
}

/* The work of a block of threads: tile block % key_tiles of a head. */
template <class C, enum dtype T>
static __device__ __forceinline__ void set_work(any_work<C> &w,
                                                const struct backward_params<T> &params, int block)
{
    const struct gradient<T> &x = params.x;
    const int head = block / x.key_tiles, tile = block % x.key_tiles;
    if constexpr (C::PACKED) {
        const int *first = x.all.cu_seqlens_k, s = sequence_of_tile<C::Bc>(first, x.all.n, tile);
        const struct rows_of_sequence rows = find_sequence(x.all, s);
        w.x = x;
        set_sequence<C>(w.x, rows, s);
        w.q = {x.rows_q - rows.seqlen_q, rows.q + rows.seqlen_q};
        w.k = {x.rows_k - w.x.seqlen_k, rows.k + w.x.seqlen_k};
        (struct key_work &)w = key_work_of<C>(w.x, head, tile - rows.k / C::Bc - s);
        if (w.j_0 >= w.x.seqlen_k) w.n = 0;
    } else {
        w = key_work_of<C>(x, head, tile);
    }
}

/* ---- the producer, one thread: K and V, then tile after tile of queries ---- */

template <class C, enum dtype T>
static __device__ __forceinline__ void load_keys(typename C::T *k, typename C::T *v, uint64_t *full,
                                                 const struct backward_params<T> &params,
                                                 const any_work<C> &w)
{
    const int head = w.head_kv % params.x.heads_kv;
    struct box_row at = {0, w.head_kv / params.x.heads_kv};
    if constexpr (C::PACKED) at = w.k;
    mbarrier_arrive_expect_tx(full, 2 * C::Bc * C::D * 2);
#pragma unroll
    for (int i = 0; i < C::D / 64; i++) {
        tma_load_box(k + i * C::Bc * 64, &params.k, full, 64 * i, at.row + w.j_0, head, at.batch);
        tma_load_box(v + i * C::Bc * 64, &params.v, full, 64 * i, at.row + w.j_0, head, at.batch);
    }
}

/* Where dO of a tile of queries lies. */
template <class MEMORY>
static __device__ __forceinline__ auto *d_o_of(MEMORY &sm, int stage)
{
    return sm.tile[stage].d_o;
}

/* All tiles of queries of the work, head after head of the group. */
template <class C, class MEMORY, enum dtype T>
static __device__ __forceinline__ void load_queries(MEMORY &sm,
                                                    const struct backward_params<T> &params,
                                                    const any_work<C> &w,
                                                    struct pipeline_state &at)
{
    const struct gradient<T> &x = problem_of<C>(params, w);
    const int batch = w.head_kv / x.heads_kv, h_kv = w.head_kv % x.heads_kv;
    struct box_row box = {0, batch};
    if constexpr (C::PACKED) box = w.q;
    for (int h = 0; h < x.group; h++)
        for (int t = w.first, i = t * C::Br; t < w.first + w.n; t++, i = next_queries<C>(w, i)) {
            /* two forms of one number: with either for all, ptxas gives the products of one of the
             * rungs 5 to 8 other registers */
            const int head = h_kv * x.group + h;
            const int i_0 = C::D == 128 && C::STEP == 1 ? t * C::Br : i;
            const ptrdiff_t row = (ptrdiff_t)(batch * x.heads_q + head) * x.padded + i_0;
            struct queries<C> &to = sm.tile[at.index];
            mbarrier_wait(&sm.q_empty[at.index], at.phase);
            mbarrier_arrive_expect_tx(&sm.q_full[at.index], C::Br * (C::D * 2 + 16));
#pragma unroll
            for (int i = 0; i < C::D / 64; i++)
                tma_load_box(to.q + i * C::Br * 64, &params.q, &sm.q_full[at.index], 64 * i,
                             box.row + i_0, head, box.batch);
            tma_load_bytes(to.lse, x.terms + row * 8, C::Br * 16, &sm.q_full[at.index]);
            /* one place for dO: its phase counts tiles */
            const struct pipeline_state d_o =
                C::DO_STAGES == 1 ? (struct pipeline_state){0, (uint32_t)at.index ^ 1} : at;
            mbarrier_wait(&sm.do_empty[d_o.index], d_o.phase);
            mbarrier_arrive_expect_tx(&sm.do_full[d_o.index], C::Br * (C::D * 2 + 16));
#pragma unroll
            for (int i = 0; i < C::D / 64; i++)
                tma_load_box(d_o_of(sm, at.index) + i * C::Br * 64, &params.d_o,
                             &sm.do_full[d_o.index], 64 * i, box.row + i_0, head, box.batch);
            tma_load_bytes(to.D_i, x.terms + (x.rows + row) * 8, C::Br * 16,
                           &sm.do_full[d_o.index]);
            advance<C::STAGES>(at);
        }
}

template <class C, class MEMORY, enum dtype T>
static __device__ __forceinline__ void produce(MEMORY &sm, const struct backward_params<T> &params)
{
    struct pipeline_state at = {0, 1};
    load_keys<C>(sm.k, sm.v, &sm.kv_full, params, sm.work);
    load_queries<C>(sm, params, sm.work, at);
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

#endif
