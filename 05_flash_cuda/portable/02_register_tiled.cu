/* 02_register_tiled.cu: rung 2, the same fold with a tile of scores in registers.
 *
 * Rung 1 reads two floats from shared memory for each multiplication.  Here a thread
 * holds R x C scores and R x D / LX outputs; of R + C values (as float4, four columns at
 * a time) it makes R * C products, so arithmetic limits it, no longer shared memory.
 * A warp owns R * 32 / LX rows, so row statistics are shuffles among LX lanes.
 *
 *     lane = LX ty + tx has the rows ty, ty + RY, ... of its warp (RY = 32 / LX),
 *                       of the scores the keys tx, tx + LX, ...,
 *                       of the output the columns 4 tx .. 4 tx + 3, then 4 LX further
 *
 * Fold and letters as in 01_tiled.cu.  head_dim and head_dim_v up to the largest of
 * HEAD_DIMS, smaller ones padded with zeros; fp32, causal, bias, grouped heads, ragged
 * sizes.  A masked key is multiplied by p = 0: V must not hold NaN or inf there. */
#include "monoid.h"
#include "portable/float_arithmetic.h"
#include "portable/float_block.h"
#include "portable/padded_floats.h"

#ifndef HEAD_DIMS
#define HEAD_DIMS 64, 128
#endif

/* Tile sizes for head dims up to D. */
template <int D_, int LX_, int R_, int C_, int WARPS_> struct shape {
    enum {
        D = D_,
        LX = LX_,
        R = R_,
        C = C_,
        WARPS = WARPS_,
        RY = 32 / LX,
        THREADS = 32 * WARPS,
        Br = WARPS * RY * R,
        Bc = LX * C,
        GROUPS = D / (4 * LX) /* float4s of an output row that a thread has */
    };
    static_assert(GROUPS * 4 * LX == D, "HEAD_DIMS: multiples of 32, the lanes of a row "
                                        "share its columns evenly");
    /* Shared memory (padded_floats.h).  K and V take turns. */
    struct tiles {
        alignas(16) float q[Br][D + 4];
        float kv[Bc][D + 4];
        float p[Br][Bc + 4];
    };
};
/* Measured to be fast, and small enough for the 64 KB of sm_75. */
template <int D> struct shape_for { using type = shape<D, 8, 4, 4, 4>; };
template <> struct shape_for<64> { using type = shape<64, 16, 8, 4, 4>; };

/* s (R, C) += q k^T.  q: the thread's first row, RY rows apart; k: its first key. */
template <class S>
static __device__ __forceinline__ void
add_scores(float (&s)[S::R][S::C], const float (*q)[S::D + 4], const float (*k)[S::D + 4])
{
#pragma unroll(S::D / 32)
    for (int d = 0; d < S::D; d += 4) {
        float4 y[S::C];
#pragma unroll
        for (int b = 0; b < S::C; b++) y[b] = *(const float4 *)&k[S::LX * b][d];
#pragma unroll
        for (int a = 0; a < S::R; a++) {
            float4 x = *(const float4 *)&q[S::RY * a][d];
#pragma unroll
            for (int b = 0; b < S::C; b++) s[a][b] = add_dot(s[a][b], x, y[b]);
        }
    }
}

/* o (R, GROUPS) += p v.  p: the thread's first row; v: the thread's first column. */
template <class S>
static __device__ __forceinline__ void
add_values(float4 (&o)[S::R][S::GROUPS], const float (*p)[S::Bc + 4], const float *v)
{
#pragma unroll 2
    for (int j = 0; j < S::Bc; j += 4) {
        float4 x[S::R];
#pragma unroll
        for (int a = 0; a < S::R; a++) x[a] = *(const float4 *)&p[S::RY * a][j];
#pragma unroll
        for (int g = 0; g < S::GROUPS; g++) {
            const float *v_j = v + j * (S::D + 4) + 4 * S::LX * g;
            float4 v0 = *(const float4 *)v_j, v1 = *(const float4 *)(v_j + S::D + 4);
            float4 v2 = *(const float4 *)(v_j + 2 * (S::D + 4));
            float4 v3 = *(const float4 *)(v_j + 3 * (S::D + 4));
#pragma unroll
            for (int a = 0; a < S::R; a++) {
                add_scaled(&o[a][g], x[a].x, v0);
                add_scaled(&o[a][g], x[a].y, v1);
                add_scaled(&o[a][g], x[a].z, v2);
                add_scaled(&o[a][g], x[a].w, v3);
            }
        }
    }
}

/* Scores become scale s + bias, -INFINITY where masked.  i: the thread's first query,
 * j: its first key, both in the head. */
template <class S>
static __device__ void mask_block(float (&s)[S::R][S::C], const struct work &x, int i, int j)
{
#pragma unroll
    for (int a = 0; a < S::R; a++) {
        int i_a = i + S::RY * a, end = mask_keys(x.mask, i_a).end;
        if (i_a >= (int)x.p.seqlen_q) end = 0;
        const float *bias = x.p.has_bias ? x.a.bias + i_a * x.p.seqlen_k : NULL;
#pragma unroll
        for (int b = 0; b < S::C; b++) {
            int j_b = j + S::LX * b;
            if (j_b >= end)
                s[a][b] = -INFINITY;
            else if (bias)
                s[a][b] = bias[j_b] == -INFINITY ? -INFINITY : s[a][b] + bias[j_b];
        }
    }
}

/* Takes a tile of scores into the state of the thread's rows; o waits for add_values().
 * state.l is the thread's share of the row's l: the lanes add up at the end.
 *   p  the thread's first row: gets exp(s - m) of the keys tx, tx + LX, ... */
template <class S>
static __device__ __forceinline__ void
push_scores(struct se (&state)[S::R], float4 (&o)[S::R][S::GROUPS],
            const float (&s)[S::R][S::C], float (*p)[S::Bc + 4], int tx)
{
#pragma unroll
    for (int a = 0; a < S::R; a++) {
        float max_s = s[a][0], sum = 0.0f;
#pragma unroll
        for (int b = 1; b < S::C; b++) max_s = fmaxf(max_s, s[a][b]);
        float m_new = fmaxf(state[a].m, lanes_max<S::LX>(max_s));
        float correction = se_factor(state[a].m, m_new);
        /* while all keys were masked, m_new is -inf, and s - m_new would be NaN */
        float m_safe = m_new == -INFINITY ? 0.0f : m_new;
#pragma unroll
        for (int b = 0; b < S::C; b++) {
            float p_ij = __expf(s[a][b] - m_safe); /* 2 ulp and |s - m| 2^-24 */
            p[S::RY * a][tx + S::LX * b] = p_ij;
            sum += p_ij;
        }
        state[a].l = state[a].l * correction + sum;
        state[a].m = m_new;
#pragma unroll
        for (int g = 0; g < S::GROUPS; g++) rescale(&o[a][g], correction);
    }
}

template <class S>
static __global__ void __launch_bounds__(S::THREADS) register_tiled_kernel(struct work x)
{
    typename S::tiles &shared = dynamic_shared<typename S::tiles>();
    const struct float_block b = block_of(x, S::Br);
    int warp = threadIdx.x / 32, tx = threadIdx.x % S::LX, ty = threadIdx.x % 32 / S::LX;
    int row = warp * S::RY * S::R + ty; /* the thread's first row in the tile */
    int head_dim = x.p.head_dim, head_dim_v = x.p.head_dim_v;
    int n_open = all_rows_see(x.mask, b.i_0, b.i_0 + b.n_q).end;

    struct se state[S::R];
    float4 o[S::R][S::GROUPS];
#pragma unroll
    for (int a = 0; a < S::R; a++) {
        state[a] = se_unit();
#pragma unroll
        for (int g = 0; g < S::GROUPS; g++) o[a][g] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    load_tile<S::D, S::THREADS>(shared.q, S::Br, b.q, b.n_q, head_dim);
    for (int j_0 = 0; j_0 < b.n_keys; j_0 += S::Bc) {
        int n_k = min(+S::Bc, b.n_keys - j_0);
        load_tile<S::D, S::THREADS>(shared.kv, S::Bc, b.k + (size_t)j_0 * head_dim, n_k,
                                    head_dim);
        __syncthreads(); /* K is complete */
        float s[S::R][S::C] = {};
        add_scores<S>(s, &shared.q[row], &shared.kv[tx]);
#pragma unroll
        for (int a = 0; a < S::R; a++)
#pragma unroll
            for (int b = 0; b < S::C; b++) s[a][b] *= x.p.scale;
        /* the mask is needed on the diagonal and at the ragged edges only */
        if (x.p.has_bias || j_0 + S::Bc > n_open)
            mask_block<S>(s, x, b.i_0 + row, j_0 + tx);
        __syncthreads(); /* nobody reads K any more */
        load_tile<S::D, S::THREADS>(shared.kv, S::Bc, b.v + (size_t)j_0 * head_dim_v, n_k,
                                    head_dim_v);
        push_scores<S>(state, o, s, &shared.p[row], tx);
        __syncthreads(); /* V and P are complete */
        add_values<S>(o, &shared.p[row], &shared.kv[0][4 * tx]);
        __syncthreads(); /* nobody reads V any more */
    }
#pragma unroll
    for (int a = 0; a < S::R; a++) {
        state[a].l = lanes_sum<S::LX>(state[a].l);
        int i = row + S::RY * a;
        if (i >= b.n_q) continue;
#pragma unroll
        for (int g = 0; g < S::GROUPS; g++) {
            float out[4] = {o[a][g].x, o[a][g].y, o[a][g].z, o[a][g].w};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int column = 4 * (tx + S::LX * g) + c;
                if (column < head_dim_v) b.o[i * head_dim_v + column] = se_divide(state[a], out[c]);
            }
        }
        if (tx == 0) b.lse[i] = se_lse(state[a]);
    }
}

/* Calls use(shape) with the shape for the problem's head dims. */
template <int... D, class F> static void with_shape(const struct problem *p, F use)
{
    int head_dim = head_dim_of<D...>(p);
    ((head_dim == D ? use(typename shape_for<D>::type()) : (void)0), ...);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    with_shape<HEAD_DIMS>(p, [&](auto s) {
        using S = decltype(s);
        start_blocks<typename S::tiles>(register_tiled_kernel<S>, S::Br, S::THREADS, p, a);
    });
}

/* The instance for p in words. */
static const char *picks(const struct problem *p)
{
    static char text[120];
    with_shape<HEAD_DIMS>(p, [&](auto s) {
        using S = decltype(s);
        snprintf(text, sizeof text,
                 "tiles of %d queries and %d keys, %d x %d results a thread; head dims up to %d",
                 S::Br, S::Bc, S::R, S::C, S::D);
    });
    return text;
}

static const char *refuses(const struct problem *p)
{
    if (!head_dim_of<HEAD_DIMS>(p)) return "a head_dim beyond those it is compiled for (HEAD_DIMS)";
    return too_large(p, 32); /* no shape has fewer queries */
}

static struct cost cost(const struct problem *p)
{
    return attention_cost(p, shape_for<64>::type::Br);
}

GPU_VARIANT(register_tiled, "tiles in registers",
    FLOAT_VARIANT, .refuses = refuses, .picks = picks, .cost = cost,
    .does = {{OP_ATTENTION, attention}});
