/* merge_weights.h: one element of the merge of two partial results, for the CPU and for a GPU's lane:
 * o = old o1 + part o2, with the weights of merge_weights_of(lse1, lse2). */
#ifndef LIBRARY_MERGE_H
#define LIBRARY_MERGE_H

#include "../../../05_flash_cuda/hopper/merge_weights.h"

/* A part of weight 0 is left out: what stands there does not matter. */
static inline HOST_DEVICE float merge_element(struct merge_weights w, float o1, float o2)
{
    if (w.old == 0.0f) return w.part == 0.0f ? 0.0f : w.part * o2;
    return w.part == 0.0f ? w.old * o1 : w.old * o1 + w.part * o2;
}

#endif
