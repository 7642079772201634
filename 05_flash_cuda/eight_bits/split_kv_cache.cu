/* split_kv_cache.cu: split-KV (split_kv/split_kv.cu) over a cache of keys and values in 8 bits, with
 * queries in 16.
 *
 *     s = scale k_scale (q . k),    o = v_scale sum_j p_j v_j / l      k, v: codes, e4m3 or int8
 *
 * A step of decoding takes as long as reading the cache does, so half the bytes are half the time.
 * The codes stay in 8 bits up to the registers (split_kv/codes.h).  Widening them is exact, and the
 * two scales of a key head are factors of all its scores and of its output.  With queries in float16 and
 * scales that are powers of two a tile has the bits that split_kv gives on the widened codes, but for the
 * order in which 16 products are added (tests/test_eight_bits.c compares them).  A tile has twice as many
 * keys, so a warp folds others together.  With queries in bfloat16 the result is more accurate than
 * split_kv's: the weights are rounded to float16. */
#define PART_OF_A_PROBLEM
#include "split_kv/split_kv.cu"

template <enum dtype T, enum dtype KV>
static void attention_over(const struct problem *p, const struct arrays *a)
{
    if (is_simple(p)) launch_for<T, true, T, KV>(plan(p), p, a);
    else launch_for<T, false, T, KV>(plan(p), p, a);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    const bool is_f16 = p->dtype == F16;
    if (p->cache == E4M3) is_f16 ? attention_over<F16, E4M3>(p, a) : attention_over<BF16, E4M3>(p, a);
    else is_f16 ? attention_over<F16, INT8>(p, a) : attention_over<BF16, INT8>(p, a);
}

static size_t workspace(const struct problem *p) { return workspace_of(p, plan(p)); }

static const char *picks(const struct problem *p) { return split_picks(plan(p)); }

static const char *refuses(const struct problem *p)
{
    return p->cache ? tiles_refuse(p, 1, MOST_ROWS) : "keys and values in 16 bits";
}

static struct cost cost(const struct problem *p) { return split_cost(p, ROWS); }

GPU_VARIANT(split_kv_cache, "the cache has 8 bits",
    SPLIT_VARIANT(80, TYPE(F16) | TYPE(BF16), WITH_EIGHT_BITS));
