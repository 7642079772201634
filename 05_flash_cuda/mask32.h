/* mask32.h: the mask of harness.h in 32 bits, for the kernels.  The functions have the same names
 * and the same meaning.  In 64 bits they take registers that the loops need: 8 % of the time of
 * rung 6 at head_dim 128. */
#pragma once

#include "harness.h"
#include "gpu/cuda_check.h"

/* No sequence is longer than this, so a query's number plus a limit fits into an int. */
constexpr int LONGEST = 1 << 29;

/* Keys first .. end - 1; none when first >= end. */
struct key_range32 { int first, end; };

/* Query i sees key j when i + first <= j <= i + last, and no key below 0 or from seqlen_k on
 * exists. */
struct mask32 { int seqlen_k, first, last; };

/* A limit in 32 bits.  Beyond LONGEST it hides or shows all keys, like LONGEST. */
static inline HOST_DEVICE int limit32(ptrdiff_t x)
{
    return (int)(x > LONGEST ? LONGEST : x < -LONGEST ? -LONGEST : x);
}

static inline HOST_DEVICE struct mask32 mask_in_32_bits(struct mask m)
{
    return {(int)m.seqlen_k, limit32(m.first), limit32(m.last)};
}

static inline struct mask32 problem_mask32(const struct problem *p)
{
    return mask_in_32_bits(problem_mask(p));
}

/* The keys that query i sees. */
static __forceinline__ __device__ struct key_range32 mask_keys(struct mask32 m, int i)
{
    return {max(0, min(m.seqlen_k, i + m.first)), max(0, min(m.seqlen_k, i + 1 + m.last))};
}

/* The mask with keys counted from key j on.  For a tile of keys, so that what its rows see is
 * computed tile by tile: the compiler would keep the ends of all rows in registers. */
static __forceinline__ __device__ struct mask32 keys_from(struct mask32 m, int j)
{
    return {m.seqlen_k - j, m.first - j, m.last - j};
}

/* The keys that at least one of the queries first .. end - 1 sees. */
static __forceinline__ __device__ struct key_range32 some_row_sees(struct mask32 m, int first,
                                                                   int end)
{
    return {mask_keys(m, first).first, mask_keys(m, end - 1).end};
}

/* The keys that all of the queries first .. end - 1 see.  May be empty with first > end. */
static __forceinline__ __device__ struct key_range32 all_rows_see(struct mask32 m, int first,
                                                                  int end)
{
    return {mask_keys(m, end - 1).first, mask_keys(m, first).end};
}
