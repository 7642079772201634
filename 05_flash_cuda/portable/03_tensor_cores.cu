/* 03_tensor_cores.cu: rung 3, the two matrix products run on tensor cores.
 *
 *     P = 2^(c S - c m),  c = scale log2(e);    m, l, O = fold over key blocks;    O / l
 *
 * In rung 2 each thread did one fused multiply-add in an instruction.  Here a warp multiplies
 * 16 x 16 by 16 x 8 in one instruction (mma_sync.h).  A block has four warps of 16 queries
 * each.  Q stays in registers all the time, as A fragments (heads above 128 leave no room: their Q
 * is loaded again for every key block).  S comes out as C fragments, and P goes in as A fragments,
 * which hold the same elements in the same lanes: P never leaves the registers.  Tiles of Q, K and
 * V lie in shared memory as ldmatrix reads them without conflicts (swizzled_tile.h).
 *
 * A lane sums its own columns of P, and the four lanes of a row add up their sums once, at the
 * end.  The maximum is taken of products that are not scaled yet: the scale is part of c, and
 * c S - c m is one multiply-add.  A masked key takes part with p = 0, so V must not hold NaN or
 * inf there.
 *
 * float16 from sm_75 on, bfloat16 from sm_80 on; any head_dim and head_dim_v up to 256, padded with
 * zeros to the next of HEADS. */
#include "gpu/device.h"
#include "portable/mma_variant.h"
#include "portable/softmax_step.h"

/* Tiles for heads of up to D columns.  Shared memory: 2 D (Br + 2 Bc) bytes, 64 KB at most: all
 * that sm_75 has. */
template <int HEAD_DIM, int WITH_BIAS> struct tiling {
    static constexpr int D = HEAD_DIM, BIAS = WITH_BIAS;
    static constexpr int WARPS = 4, THREADS = 32 * WARPS;
    static constexpr int BLOCKS = D <= 64 && !BIAS ? 3 : 2; /* on a multiprocessor */
    static constexpr int MT = 1;               /* 16-query tiles of a warp */
    static constexpr int Br = 16 * MT * WARPS; /* queries of a block */
    static constexpr int Bc = D <= 128 ? 64 : BIAS ? 16 : 32; /* keys of it */
    static constexpr int Q_IN_REGISTERS = D <= 128; /* or loaded for each key block */
    static constexpr int BUFFERS = 1; /* tiles of K and V in shared memory */
    using shared = struct tile_memory<tiling>;
    using state = struct warp_state<tiling>;
    typedef float scores[MT][Bc / 8][4]; /* of a warp and a key block, as C fragments */
};

/* Copies a tile of ROWS rows to shared memory, through registers.
 *   to (ROWS, D) swizzled   from (n_rows, n_columns); what lies beyond it becomes zero
 * Rows of a multiple of 8 columns move 16 bytes at a time, others element by element. */
template <class W, int ROWS>
static __forceinline__ __device__ void load_tile(uint16_t *to, const uint16_t *from, int n_rows,
                                                 int n_columns)
{
    const bool pieces = n_columns % 8 == 0 && (size_t)from % 16 == 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * W::D / 8; i += W::THREADS) {
        int row = i / (W::D / 8), piece = i % (W::D / 8);
        int n = row < n_rows ? n_columns - 8 * piece : 0; /* columns from here on */
        const uint16_t *x = from + (ptrdiff_t)row * n_columns + 8 * piece;
        uint16_t *at = to + swizzled<ROWS>(row, piece);
        if (pieces) *(uint4 *)at = n > 0 ? *(const uint4 *)x : make_uint4(0, 0, 0, 0);
        else
            for (int c = 0; c < 8; c++) at[c] = c < n ? x[c] : 0;
    }
}

/* A block computes Br queries of a head (attention.h).  Causal: the blocks with most keys come
 * first, so that short ones end the run. */
template <enum dtype T, class W>
static __forceinline__ __device__ void attend(const struct attention &x)
{
    typename W::shared &shared = dynamic_shared<typename W::shared>();
    int i = blockIdx.x % x.q_blocks;
    const struct head_block h =
        head_block_of(x, blockIdx.x + (x.causal ? x.q_blocks - 1 - 2 * i : 0), W::Br);
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT; /* of this warp */
    int n_blocks = (h.keys + W::Bc - 1) / W::Bc, first = h.q0 + row0;
    /* key blocks that all queries see, and keys that a query of this warp sees */
    int n_open = all_rows_see(x.mask, h.q0, h.q0 + W::Br).end / W::Bc;
    int end = some_row_sees(x.mask, first, first + 16 * W::MT).end;

    typename W::state f = {};
#pragma unroll
    for (int i = 0; i < W::MT; i++) f.m[i][0] = f.m[i][1] = -INFINITY;

    load_tile<W, W::Br>(shared.q, q_row(x, h, h.q0), x.seqlen_q - h.q0, x.head_dim);
    shared_address q0 =
        address_of(shared.q + swizzled<W::Br>(row0 + lane % 16, lane / 16));
    if (W::Q_IN_REGISTERS) {
        __syncthreads();
#pragma unroll
        for (int d = 0; d < W::D / 16; d++) load_q<W>(f, q0, d);
    }
    for (int t = 0; t < n_blocks; t++) {
        int j0 = t * W::Bc, row = first + lane / 4;
        __syncthreads(); /* all have read block t - 1 */
        load_tile<W, W::Bc>(shared.k[0], h.k + (size_t)j0 * x.head_dim, x.seqlen_k - j0, x.head_dim);
        load_tile<W, W::Bc>(shared.v[0], h.v + (size_t)j0 * x.head_dim_v, x.seqlen_k - j0,
                            x.head_dim_v);
        __syncthreads(); /* block t is here */
        if (j0 >= end) continue; /* masked for this warp */
        typename W::scores s;
        multiply_qk<T, W>(s, f, q0, shared.k[0]);
        if (W::BIAS) add_bias<W>(s, x, row, j0);
        if (t >= n_open) mask_block<W>(s, x, row, j0);
        softmax_step<W>(f, s, unit_of<W>(x) * 1.44269504f);
        add_pv<T, W>(f, s, shared.v[0]);
    }
    __syncthreads(); /* Q, should there be no key block */
    store<T, W>(f, shared, h, x, unit_of<W>(x));
}

/* Calls use(tiles, why) with those for the problem. */
template <class F> static void with_tiling(const struct problem *p, F use)
{
    with_head_dim<HEADS>(p, [&](auto d) {
        if (p->has_bias) use(tiling<d, 1>(), "");
        else use(tiling<d, 0>(), "");
    });
}

static struct cost cost(const struct problem *p) { return attention_cost(p, 64); }

static const char *refuses(const struct problem *p)
{
#ifdef __CUDACC__
    if (p->dtype == BF16 && device_attribute<cudaDevAttrComputeCapabilityMajor>() < 8)
        return "bfloat16 on this GPU (its tensor cores, of sm_75, multiply float16 only)";
#endif
    return mma_refuses(p);
}

MMA_RUNG(tensor_cores, "mma.sync; P in registers", 75, refuses);
