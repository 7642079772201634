/* tiles8.h: what the kernels of 8 bits take of shared memory and registers, and their tiles. */
#pragma once

#include "hopper/q_fragments.h"
#include "hopper/scheduler.h"
#include "values.h"

/* SCORES: e4m3 or int8.  VALUES: e4m3, or __half: V is widened.  SUM_TILES: tiles of keys after
 * which o is added to sums in float, 0: never.  CONSUMERS and KEYS: chosen by measurement (tiles8). */
template <int HEAD_DIM, class SCORES, class VALUES, int SUM_TILES, int CONSUMERS, int KEYS,
          int STAGES, bool Q_REGISTERS, bool LATE>
struct config8 {
    using T = __nv_bfloat16; /* o, and a unit of 16 bits */
    using Scores = SCORES;
    static constexpr int D = HEAD_DIM / 2, DV = HEAD_DIM;
    static constexpr bool WIDE = std::is_same_v<VALUES, __half>;
    static constexpr bool IS_INT8 = std::is_same_v<SCORES, int8>;
    static constexpr int SUMS = SUM_TILES;
    static constexpr int WARPGROUPS = CONSUMERS, Br = 64 * WARPGROUPS, Bc = KEYS;
    static constexpr int K_STAGES = STAGES, V_STAGES = STAGES;
    static constexpr int Q_STAGES = HEAD_DIM == 256 ? 1 : 2;
    static constexpr int V_ROWS = WIDE ? Bc : DV, V_COLUMNS = WIDE ? DV : Bc / 2;
    static constexpr int V_TILE = V_ROWS * IN_PANELS<V_COLUMNS>;
    static constexpr bool TMA_STORE = true;
    static constexpr bool Q_IN_REGISTERS = Q_REGISTERS;
    static constexpr bool LATE_TURN = LATE; /* it passes when the scores are ready (rung 14) */
    static constexpr int WEIGHTS = WIDE ? Bc / 4 : Bc / 8; /* registers */
    /* The exponent of the largest weight: of the first block; of a block weighed again, so that small
     * weights survive beside a large one; and where that one is not alone, because the row's weights
     * add up to more, so that Bc / 4 equal weights do not pass the limit, or a row is weighed twice
     * for ever.  Alone: the others of the row together leave their like in later blocks room. */
    static constexpr int FIRST_LARGEST = WIDE ? 0 : 6, ALONE = WIDE ? 0 : 8;
    static constexpr int LARGEST = WIDE ? 0 : Bc > 96 ? 3 : 4;
    static constexpr float LIMIT_OF_SUM = WIDE ? 64.0f : 448.0f, SUM_ALONE = 320.0f;
    static_assert((Bc / 4 << LARGEST) <= LIMIT_OF_SUM, "see LARGEST");
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 40 : 32;
    static constexpr int REGISTERS = WARPGROUPS == 2 ? 232 : 160;
};

/* The tiles of a head dimension: consumers, keys, stages, Q in registers, late turns. */
template <int HEAD_DIM, class SCORES, class VALUES, int SUMS> struct tiles8 {
    static constexpr bool WIDE = std::is_same_v<VALUES, __half>;
    using config =
        std::conditional_t<HEAD_DIM == 64,
                           config8<64, SCORES, VALUES, SUMS, SUMS ? 2 : 3, WIDE ? 96 : 128, 3, true,
                                   false>,
        std::conditional_t<HEAD_DIM == 256,
                           config8<256, SCORES, VALUES, SUMS, 2, 64, 2, false, false>,
        std::conditional_t<WIDE || SUMS != 0,
                           config8<128, SCORES, VALUES, SUMS, 2, 128, 2, false, WIDE>,
                           config8<128, SCORES, VALUES, SUMS, 3, 96, 3, false, true>>>>;
};

/* The scales: [batch, heads_kv], NULL: 1. */
struct scales { const float *q, *k, *v; int heads_kv; };

template <class C> struct memory8 {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::Br * C::DV * (C::SUMS ? 2 : 1)]; /* or sums, in float */
};

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer8 {
    float s[C::Bc / 2], o[C::DV / 2], c; /* log2(weight) = c s - mc */
    uint32_t p[C::WEIGHTS];
    q_operand<C> q;
    struct rows rows;
    struct pipeline_state k_at, v_at;
};
