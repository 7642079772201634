/* 04_async_copies.cu: rung 4, the next tile is copied while this one is computed.
 *
 * In rung 3 a block loads a tile, waits, computes, and loads the next one.  Here shared memory
 * holds two tiles of K and V.  cp.async copies key block t + 1 into one of them while the warps
 * compute block t in the other: it is an instruction that starts a copy of 16 bytes and does not
 * wait for it (async_block.h).
 *
 * sm_80 and later; head_dim and head_dim_v multiples of 8, because a copy has 16 bytes.  Everything
 * else is rung 3's. */
#include "portable/async_block.h"
#include "portable/softmax_step.h"

/* Tiles for heads of up to D columns.  Shared memory: 2 D (Br + 4 Bc) bytes, 96 KB at most,
 * as sm_86 has 99. */
template <int HEAD_DIM, int WITH_BIAS> struct tiling {
    static constexpr int D = HEAD_DIM, BIAS = WITH_BIAS;
    static constexpr int WARPS = 4, THREADS = 32 * WARPS;
    static constexpr int BLOCKS = D <= 64 && !BIAS ? 3 : 2; /* on a multiprocessor */
    static constexpr int MT = 1;               /* 16-query tiles of a warp */
    static constexpr int Br = 16 * MT * WARPS; /* queries of a block */
    static constexpr int Bc = D <= 128 ? 64 : 32; /* keys of it */
    static constexpr int Q_IN_REGISTERS = D <= 128; /* or loaded for each key block */
    static constexpr int BUFFERS = 2; /* tiles of K and V in shared memory */
    using shared = struct tile_memory<tiling>;
    using state = struct warp_state<tiling>;
    typedef float scores[MT][Bc / 8][4]; /* of a warp and a key block, as C fragments */
};

/* Calls use(tiles, why) with those for the problem. */
template <class F> static void with_tiling(const struct problem *p, F use)
{
    with_head_dim<HEADS>(p, [&](auto d) {
        if (p->has_bias) use(tiling<d, 1>(), "");
        else use(tiling<d, 0>(), "");
    });
}

static struct cost cost(const struct problem *p) { return attention_cost(p, 64); }

MMA_RUNG(async_copies, "copies run ahead", 80, async_refuses);
