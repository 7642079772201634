/* 05_larger_tiles.cu: rung 5, every fragment of K and V is used twice.
 *
 *     P = 2^(c S - c m),  c = scale log2(e);    m, l, O = fold over key blocks;    O / l
 *
 * In rung 4 shared memory is the busiest unit: each warp reads all of K and V out of it,
 * and multiplies what it has read with 16 queries only.  Here a warp has 32 queries (MT = 2 tiles
 * of 16), so it multiplies each fragment twice, and a block of 128 queries reads K and V half
 * as often from main memory.  The price is registers: O and S of a warp are twice as large,
 * and Q no longer fits beside them.  That price takes back most of the gain: at head_dim 128 the
 * compiler runs into the limit of 255 registers and spills, and at 64 a multiprocessor holds two
 * blocks instead of three.  Above head_dim 128 O alone leaves no room for 32 queries.
 * There a block takes eight warps instead of four and 64 keys instead of 32, where shared
 * memory is large enough.
 *
 * Everything else is rung 4's.  This is about the form of FlashAttention-2 (Dao 2023). */
#include "portable/async_block.h"

/* Tiles for heads of up to D columns.  They decide registers (o has 4 MT D / 8, s has
 * 4 MT Bc / 8; the addresses of a bias want some too) and shared memory (2 D (Br + 4 Bc)
 * bytes: 96 KB, as sm_86 has 99, or LARGE, 192 KB). */
template <int HEAD_DIM, int WITH_BIAS, int LARGE = 0> struct tiling {
    static constexpr int D = HEAD_DIM, BIAS = WITH_BIAS;
    static constexpr int WARPS = LARGE ? 8 : 4, THREADS = 32 * WARPS;
    static constexpr int BLOCKS = LARGE ? 1 : 2;  /* on a multiprocessor */
    static constexpr int MT = D <= 128 ? 2 : 1;   /* 16-query tiles of a warp */
    static constexpr int Br = 16 * MT * WARPS;    /* queries of a block */
    static constexpr int Bc = (D <= 128 && !BIAS) || LARGE ? 64 : 32; /* keys of it */
    static constexpr int Q_IN_REGISTERS = D <= 64; /* or loaded for each key block */
    static constexpr int BUFFERS = 2; /* tiles of K and V in shared memory */
    using shared = struct tile_memory<tiling>;
    using state = struct warp_state<tiling>;
    typedef float scores[MT][Bc / 8][4]; /* of a warp and a key block, as C fragments */
};

/* Calls use(tiles, why) with those for the problem; above 128 the large ones where they fit. */
template <class F> static void with_tiling(const struct problem *p, F use)
{
    with_head_dim<HEADS>(p, [&](auto d) {
        using large = tiling<d, 0, (d > 128)>;
        if (p->has_bias) use(tiling<d, 1>(), ", with a bias");
        else if (sizeof(typename large::shared) <= shared_memory_limit())
            use(large(), d > 128 ? ", shared memory has room for large tiles" : ", no bias");
        else use(tiling<d, 0>(), ", shared memory has no room for large tiles");
    });
}

static struct cost cost(const struct problem *p)
{
    return attention_cost(p, p->head_dim <= 128 && p->head_dim_v <= 128 ? 128 : 64);
}

#ifndef BESIDE_RUNG_5 /* 06_lazy_rescaling.cu takes what stands above */
#include "portable/softmax_step.h"
MMA_RUNG(larger_tiles, "32 queries per warp", 80, async_refuses);
#endif
