/* leaves.h: the rules of a fold whose bits depend on a query and its keys alone, for the kernels that
 * compute it: split_kv/invariant.cu, and of many queries on Hopper hopper/general.cu.
 *
 *     state = ((leaf 0 . leaf 1) . leaf 2) . ...      leaf i: keys i LEAF ... (i + 1) LEAF - 1
 *
 * A sum of floats depends on its order, so all kernels must add in the same one.  Leaves and their
 * blocks of keys count from the sequence's first key.  Products take 16 columns, or 16 keys, after
 * another: mma.sync and wgmma round alike on one GPU (notes/serving.md).  What a query does not see
 * changes nothing: a hidden key weighs 0, a hidden leaf is the unit.  No rule looks at another row. */
#pragma once

#include "gpu/exp2.h"

constexpr int LEAF = 512, LEAF_BLOCK = 64; /* keys; of a block: its maximum comes before its weights */

/* Few queries for a key head: leaves are folded side by side, then merged. */
static inline bool has_few_rows(const struct problem *p)
{
    return p->heads_q * p->seqlen_q <= 64 * p->heads_kv;
}

/* m after a block with this maximum: it stays while no weight exceeds 2^8 (rung 6).
 *   c  log2(weight) = c (s - m) */
static __device__ __forceinline__ float grown_maximum(float m, float top, float c)
{
    return (top - m) * c > 8.0f ? top : m;
}

/* What l and o that refer to m are multiplied by when they refer to m_new. */
static __device__ __forceinline__ float factor_of(float m, float m_new, float c)
{
    return m == m_new ? 1.0f : exp2_fast((m - m_new) * c);
}

/* What is subtracted from c s: c m, but no inf - inf where no key was seen. */
static __device__ __forceinline__ float reference_of(float m, float c)
{
    return m == -INFINITY ? 0.0f : m * c;
}

/* The state a . b: its m, and what the l and o of a and of b are multiplied by. */
struct join { float m, of_a, of_b; };

static __device__ __forceinline__ struct join join_of(float m_a, float m_b, float c)
{
    const float m = fmaxf(m_a, m_b);
    return {m, factor_of(m_a, m, c), factor_of(m_b, m, c)};
}

/* An l, or an element of o, of a . b. */
static __device__ __forceinline__ float joined(const struct join &j, float a, float b)
{
    return fmaf(j.of_b, b, __fmul_rn(j.of_a, a)); /* never fused in another way */
}
