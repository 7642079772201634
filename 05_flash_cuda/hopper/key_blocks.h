/* key_blocks.h: which blocks of keys the queries of a sequence see, and the mask of a block that
 * may be cut at both ends. */
#pragma once

#include "sequences.h"
#include "work_tile.h"

/* Blocks of Bc keys: first ... end - 1. */
struct blocks { int first, end; };

/* The blocks that some of the n queries from `query` on see. */
template <class C>
static __device__ __forceinline__ struct blocks blocks_some_see(const rows_of_sequence &s,
                                                                int query, int n)
{
    int end = min(query + n, s.seqlen_q);
    struct key_range32 keys = some_row_sees(s.mask, query, end);
    if (query >= end || keys.first >= keys.end) return {0, 0};
    return {keys.first / C::Bc, (keys.end + C::Bc - 1) / C::Bc};
}

/* The blocks of which they all see every key. */
template <class C>
static __device__ __forceinline__ struct blocks blocks_all_see(const rows_of_sequence &s,
                                                               int query, int n)
{
    struct key_range32 keys = all_rows_see(s.mask, query, query + n);
    return {(keys.first + C::Bc - 1) / C::Bc, keys.end / C::Bc};
}

/* Masks in key block n what query `row` and row + 8 do not see. */
template <class C>
static __device__ __forceinline__ void mask_both_ends(float (&s)[C::Bc / 2],
                                                      const struct mask32 &mask, int row, int n)
{
    asm("" : "+r"(row)); /* hides it from the compiler: nothing of it waits in registers */
    const struct mask32 keys = keys_from(mask, n * C::Bc + 2 * (threadIdx.x % 4));
    const struct key_range32 a = mask_keys(keys, row), b = mask_keys(keys, row + 8);
    const int first[2] = {a.first, b.first}, end[2] = {a.end, b.end};
#pragma unroll
    for (int i = 0; i < C::Bc / 2; i++) {
        int column = 8 * (i / 4) + i % 2, r = i / 2 % 2;
        if (column < first[r] || column >= end[r]) s[i] = MASKED;
    }
}
