/* float_tiles.h: the tiles of the two float32 rungs: how they lie in shared memory, the
 * scores and their gradients, and the three kinds of product.
 *
 *     scores       a thread has R x C of the Br x Bc: queries ty, ty + 8, ..., keys tx, tx + 16, ...
 *     dk, dv       4 neighbouring keys and 8 columns
 *     dq           2 queries and 8 columns
 *
 * Where a tile holds NaN or inf, a weight of 0 must not be multiplied with it: SKIP
 * leaves such terms out.  It is slower, so that it is compiled apart and chosen by tile. */
#pragma once

#include "backward/gradient.h"

/* Tiles for head dims up to D: the four tiles and the weights fit the 64 KB of sm_75. */
template <int D_> struct float_shape {
    enum {
        D = D_,
        THREADS = 128,
        Bc = 4096 / D,
        Br = Bc / 2,
        TX = 16, R = Br / 8, C = Bc / TX,  /* scores of a thread */
        CX = D / 8,                        /* threads that share the columns of a row */
        KEYS = 4, ROWS = Br * CX / THREADS /* dk, dv: neighbouring keys; dq: queries of a thread */
    };
    static_assert(Bc / KEYS * CX == THREADS && ROWS * THREADS == Br * CX, "shared evenly");
    struct tiles {
        alignas(16) float q[Br][D + 4], d_o[Br][D + 4], k[Bc][D + 4], v[Bc][D + 4];
        float w[Br][Bc + 4]; /* p, then ds */
        float lse[Br], D_i[Br];
    };
    typedef float scores[R][C];
    typedef float4 key_rows[KEYS][2];  /* of dk or dv */
    typedef float4 query_rows[ROWS][2]; /* of dq */
};

/* Copies n rows of `cols` floats into a tile of n_rows; what lies beyond becomes 0.
 * Returns 1 if this thread copied NaN or inf. */
template <class S>
static __device__ int load_rows(float (*to)[S::D + 4], int n_rows, const float *from, int n,
                                int cols)
{
    int nonfinite = 0;
    for (int i = threadIdx.x; i < n_rows * S::D; i += S::THREADS) {
        int r = i / S::D, c = i % S::D;
        float x = r < n && c < cols ? from[(ptrdiff_t)r * cols + c] : 0.0f;
        nonfinite |= !(fabsf(x) < INFINITY);
        to[r][c] = x;
    }
    return nonfinite;
}

/* s (R, C) = x y^T.  x: the thread's first query, 8 rows apart; y: its first key, TX apart. */
template <class S>
static __device__ __forceinline__ void multiply_rows(typename S::scores &s,
                                                     const float (*x)[S::D + 4],
                                                     const float (*y)[S::D + 4])
{
#pragma unroll
    for (int a = 0; a < S::R; a++)
#pragma unroll
        for (int b = 0; b < S::C; b++) s[a][b] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < S::D; d += 4) {
        float4 y_b[S::C];
#pragma unroll
        for (int b = 0; b < S::C; b++) y_b[b] = *(const float4 *)&y[S::TX * b][d];
#pragma unroll
        for (int a = 0; a < S::R; a++) {
            float4 x_a = *(const float4 *)&x[8 * a][d];
#pragma unroll
            for (int b = 0; b < S::C; b++) s[a][b] = add_dot(s[a][b], x_a, y_b[b]);
        }
    }
}

/* o += w x, but not 0 x where SKIP. */
template <bool SKIP>
static __device__ __forceinline__ void add_weighted(float4 (&o)[2], float w, const float4 (&x)[2])
{
    if (SKIP && w == 0.0f) return;
    add_scaled(&o[0], w, x[0]);
    add_scaled(&o[1], w, x[1]);
}

template <class S>
static __device__ __forceinline__ void columns_of(float4 (&x)[2], const float *row)
{
    x[0] = *(const float4 *)row;
    x[1] = *(const float4 *)(row + 4 * S::CX);
}

/* o (KEYS, 8 columns) += w^T x, a sum over the tile's queries: dv += p^T do, dk += ds^T
 * q.
 *   w  at the thread's first key      x  at its first column */
template <class S, bool SKIP>
static __device__ __forceinline__ void sum_over_queries(typename S::key_rows &o, const float *w,
                                                        const float *x)
{
#pragma unroll 2
    for (int i = 0; i < S::Br; i++) {
        float4 w_i = *(const float4 *)(w + i * (S::Bc + 4)), x_i[2];
        columns_of<S>(x_i, x + i * (S::D + 4));
        add_weighted<SKIP>(o[0], w_i.x, x_i);
        add_weighted<SKIP>(o[1], w_i.y, x_i);
        add_weighted<SKIP>(o[2], w_i.z, x_i);
        add_weighted<SKIP>(o[3], w_i.w, x_i);
    }
}

/* o (ROWS, 8 columns) += w x, a sum over the tile's keys: dq += ds k.
 *   w  at the thread's first query    x  at its first column */
template <class S, bool SKIP>
static __device__ __forceinline__ void sum_over_keys(typename S::query_rows &o,
                                                     const float (*w)[S::Bc + 4], const float *x)
{
#pragma unroll 4
    for (int j = 0; j < S::Bc; j++) {
        float4 x_j[2];
        columns_of<S>(x_j, x + j * (S::D + 4));
#pragma unroll
        for (int a = 0; a < S::ROWS; a++)
            add_weighted<SKIP>(o[a], w[S::THREADS / S::CX * a][j], x_j);
    }
}

/* Scores s become p, and dp, products do . v, become ds.
 *     head      b * heads_q + h      i_0, j_0  the tile's first query and key in it
 * Hidden keys get 0 after the exponential: before it, lse = -inf would make it NaN. */
template <class S>
static __device__ __forceinline__ void p_and_ds(typename S::scores &s, typename S::scores &dp,
                                                const struct gradient<F32> &x,
                                                const struct model_terms &terms,
                                                const typename S::tiles &shared, int head, int i_0,
                                                int j_0)
{
    const int ty = threadIdx.x / S::TX, tx = threadIdx.x % S::TX;
    const size_t of_head = bias_of_head(x, head);
    unsigned dropped = 0; /* bit a C + b; found in a loop, which needs fewer registers */
#pragma unroll 1
    for (int n = 0; terms.drops.below && n < S::R * S::C; n++)
        if (!is_kept(&terms.drops, head, i_0 + ty + 8 * (n / S::C), j_0 + tx + S::TX * (n % S::C)))
            dropped |= 1u << n;
#pragma unroll
    for (int a = 0; a < S::R; a++) {
        const int row = ty + 8 * a, i = i_0 + row;
        struct key_range32 seen = mask_keys(x.mask, i);
        if (i >= x.seqlen_q) seen.end = 0;
#pragma unroll
        for (int b = 0; b < S::C; b++) {
            const int j = j_0 + tx + S::TX * b;
            const size_t at = of_head + i * x.bias_strides.row + j;
            float slope = 1.0f, z = -INFINITY;
            if (j >= seen.first && j < seen.end) z = exponent_of(x, s[a][b], x.bias ? x.bias[at] : 0.0f, &slope);
            const float counts = dropped >> (a * S::C + b) & 1 ? 0.0f : terms.drops.factor;
            s[a][b] = z == -INFINITY ? 0.0f : expf(z - shared.lse[row]);
            dp[a][b] = z == -INFINITY ? 0.0f : s[a][b] * (dp[a][b] * counts - shared.D_i[row]);
            if (terms.dbias && dp[a][b] != 0.0f) atomicAdd(&terms.dbias[at], dp[a][b]);
            dp[a][b] *= slope;
            s[a][b] *= counts;
        }
    }
}

/* The thread's scores to the shared tile. */
template <class S>
static __device__ __forceinline__ void put_weights(typename S::tiles &shared,
                                                   const typename S::scores &s)
{
#pragma unroll
    for (int a = 0; a < S::R; a++)
#pragma unroll
        for (int b = 0; b < S::C; b++)
            shared.w[threadIdx.x / S::TX + 8 * a][threadIdx.x % S::TX + S::TX * b] = s[a][b];
}

/* The thread's 8 columns of a row of dq, dk or dv, times `scale`.
 *   put(to, x)  what becomes of a number: stored, or added */
template <class S, class F>
static __device__ __forceinline__ void put_columns(float *row, int cols, const float4 (&o)[2],
                                                   float scale, F put)
{
    const int first = 4 * (threadIdx.x % S::CX);
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const float x[4] = {o[g].x, o[g].y, o[g].z, o[g].w};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int column = first + 4 * S::CX * g + c;
            if (column < cols) put(row + column, x[c] * scale);
        }
    }
}

/* The thread's rows of dk and dv, of the keys j_0 ... of key head head_kv. */
template <class S>
static __device__ void store_keys(const struct gradient<F32> &x, const typename S::key_rows &dk,
                                  const typename S::key_rows &dv, int head_kv, int j_0)
{
    const int first = j_0 + threadIdx.x / S::CX * S::KEYS;
#pragma unroll
    for (int b = 0; b < S::KEYS; b++) {
        if (first + b >= x.seqlen_k) continue;
        const ptrdiff_t row = (ptrdiff_t)head_kv * x.seqlen_k + first + b;
        auto store = [](float *to, float y) { *to = y; };
        put_columns<S>(x.dk + row * x.head_dim, x.head_dim, dk[b], x.scale, store);
        put_columns<S>(x.dv + row * x.head_dim_v, x.head_dim_v, dv[b], 1.0f, store);
    }
}

/* Loads the queries i_0 ... of a head, and what belongs to them.  Returns as load_rows(). */
template <class S>
static __device__ int load_queries(typename S::tiles &shared, const struct gradient<F32> &x,
                                   int head, int i_0)
{
    const int n = min(+S::Br, x.seqlen_q - i_0);
    const ptrdiff_t row = (ptrdiff_t)head * x.seqlen_q + i_0;
    for (int i = threadIdx.x; i < n; i += S::THREADS) {
        shared.lse[i] = x.lse[row + i];
        shared.D_i[i] = x.D[(ptrdiff_t)head * x.padded + i_0 + i];
    }
    return load_rows<S>(shared.q, S::Br, x.q + row * x.head_dim, n, x.head_dim) |
           load_rows<S>(shared.d_o, S::Br, x.d_o + row * x.head_dim_v, n, x.head_dim_v);
}

/* The same for the keys j_0 ... of key head number `head`. */
template <class S>
static __device__ int load_keys(typename S::tiles &shared, const struct gradient<F32> &x,
                                int head, int j_0)
{
    const int n = min(+S::Bc, x.seqlen_k - j_0);
    const ptrdiff_t row = (ptrdiff_t)head * x.seqlen_k + j_0;
    return load_rows<S>(shared.k, S::Bc, x.k + row * x.head_dim, n, x.head_dim) |
           load_rows<S>(shared.v, S::Bc, x.v + row * x.head_dim_v, n, x.head_dim_v);
}

/* Calls use(shape) with the shape for the problem's head dims. */
template <class F> static void with_float_shape(const struct problem *p, F use)
{
    const size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    if (d <= 64) use(float_shape<64>());
    else if (d <= 128) use(float_shape<128>());
    else use(float_shape<256>());
}

static size_t float_workspace(const struct problem *p)
{
    size_t bytes = 0;
    with_float_shape(p, [&](auto s) { bytes = gradient_workspace(p, decltype(s)::Br); });
    return bytes;
}

static const char *float_refuses(const struct problem *p)
{
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    return gradient_too_large(p);
}

#define FLOAT_GRADIENT                                                                       \
    .group = IN_BACKWARD, .device = GPU_DEVICE, .least_arch = 75, .types = TYPE(F32),        \
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |      \
                 WITH_BIAS_STRIDES | WITH_DROPOUT | WITH_BIAS_GRADIENT,                      \
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1
