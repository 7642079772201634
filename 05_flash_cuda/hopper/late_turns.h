/* late_turns.h: when a consumer passes its turn at the tensor cores on (hopper.md, section 4). */
#pragma once

#include "work_tile.h"

enum turn_passes { WHEN_ISSUED, BEFORE_LAST_PRODUCT, WITH_SCORES };

/* WITH_SCORES waits for K a second time.  That needs the maximum of the first block, where each
 * warp releases K for itself: a release for all four would let K be loaded twice before a late
 * warp has waited. */
constexpr turn_passes turn_of_consumers(int consumers, bool first_block_max)
{
    if (consumers <= (first_block_max ? 3 : 2)) return WHEN_ISSUED;
    return first_block_max ? WITH_SCORES : BEFORE_LAST_PRODUCT;
}

/* Issues S = Q K^T of 64 columns as two groups: the last product is one of its own. */
template <class C>
static __device__ __forceinline__ void issue_qk_last_apart(float (&s)[C::Bc / 2], uint64_t q,
                                                           const typename C::T *k_tile)
{
    uint64_t k = descriptor_qk(k_tile);
    wgmma_qk<typename C::T, true>(s, q, k);
    for (int i = 1; i < 4; i++) {
        if (i == 3) wgmma_commit();
        wgmma_qk<typename C::T, false>(s, q + 2 * i, k + 2 * i);
    }
    wgmma_commit();
}
