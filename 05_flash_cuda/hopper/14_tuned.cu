/* arch: sm_90a */
/* Rung 14: tuned.  Several small changes; notes/hopper.md has the gain of each.  The kernel is in
 * tuned_kernel.h, to be read beside rung 13; here is which instance a shape takes.
 *
 *   turns   of more than two consumers: the turn passes when the scores are ready (section 4)
 *   tiles   64 keys for short sequences; else three stages of K, two of V, one of Q, released early
 *   memory  up to 128 keys main memory is the limit: a kernel of its own (few_keys.h)
 *   waves   full mask, long sequences: the last wave and a half is cut along the keys
 *   order   a consumer that sees fewer blocks passes its turns on, ends its tile, then releases
 *           the blocks that it does not need */
#include "few_keys.h"
#include "tuned_kernel.h"

/* Head dimensions up to 64: three consumers and 128 keys, not four and 64? */
static bool takes_three(const struct problem *p)
{
    return p->dtype == F16 && !p->causal && p->seqlen_k >= 8192;
}

/* Head dimensions above 64, bfloat16: 64 keys and not 128? */
static bool is_short(const struct problem *p)
{
    return p->dtype == BF16 && p->seqlen_k < (p->causal ? 2048 : 1024);
}

template <class C> static void launch_as(const struct problem *p, const struct arrays *a)
{
    const struct params params = params_of(p, a, C::Br, C::Bc);
    const struct scheduler s = scheduler_of(params, p, a);
    int blocks = persistent_blocks(s.n_tiles);
    const struct last_waves cut = last_waves_of<C>(s.n_tiles, blocks, p, a);
    start<C, memory<C>>(tuned_kernel<C>, blocks, a->stream, params, s, cut);
    merge_last_waves<C>(params, s, cut, blocks, a->stream);
}

/* The instance for a shape, each chosen by measurement (notes/hopper.md). */
template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    if constexpr (D == 256) return launch_as<config<T, 256, 2, 64, 2>>(p, a);
    else if (p->seqlen_k <= 128) return few_keys<T, D>(p, a);
    if constexpr (D == 128 && std::is_same_v<T, __half>)
        launch_as<config<T, 128, 2, 128, 2>>(p, a);
    else if constexpr (D == 128) {
        if (is_short(p)) launch_as<config<T, 128, 2, 64, 4>>(p, a);
        else launch_as<config<T, 128, 2, 128, 3, 2>>(p, a);
    } else if constexpr (std::is_same_v<T, __half>) {
        if (takes_three(p)) launch_as<config<T, 64, 3, 128, 3>>(p, a);
        else launch_as<config<T, 64, 4, 64, 4>>(p, a);
    } else launch_as<config<T, 64, 4, 64, 4>>(p, a);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}

/* The instance for a shape in words. */
static const char *picks(const struct problem *p)
{
    if (p->head_dim > 128 || p->head_dim_v > 128) return "tiles of 128 queries, 64 keys";
    if (p->seqlen_k <= 128) return "tiles of 128 queries, all keys at once";
    if (p->head_dim > 64 || p->head_dim_v > 64)
        return is_short(p) ? "tiles of 128 queries, 64 keys: a short sequence"
                           : "tiles of 128 queries, 128 keys; queries in registers";
    return takes_three(p) ? "tiles of 192 queries, 128 keys: no mask, 8192 keys or more"
                          : "tiles of 256 queries, 64 keys: four consumers take turns";
}

/* The counter that gives out work tiles, or the parts of cut tiles. */
static size_t workspace(const struct problem *p)
{
    size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    if (p->causal || p->seqlen_k < WORTH_A_CUT * 64) return sizeof(int);
    size_t blocks = (size_t)persistent_blocks(1 << 30);
    if (d <= 64) return bytes_of_parts(blocks, 256, 64);
    return bytes_of_parts(blocks, 128, d <= 128 ? 128 : 256);
}

static struct cost cost(const struct problem *p)
{
    bool large = p->head_dim <= 64 && p->head_dim_v <= 64 && p->seqlen_k > 128;
    return attention_cost(p, large ? 256 : 128);
}

GPU_VARIANT(tuned) = {
    .name = "tuned",
    .idea = "many small gains",
    HOPPER_VARIANT,
    .picks = picks,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
    .on_gpu = GPU_TWIN(tuned),
};
