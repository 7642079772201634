/* strategies.h: how several GPUs share one problem. */
#pragma once

#include "ranks/world.h"

static const struct strategy gpu_strategies[] = {
    {"tree", "keys are cut; all parts on every GPU, merged by rank", 0, 0, 0},
    {"ring", "keys and queries are cut; keys travel; zigzag chunks balance a causal mask", 1, 1, 0},
    {"ring-unbalanced", "the same with contiguous chunks, for comparison", 1, 0, 0},
    {NULL, NULL, 0, 0, 0},
};
