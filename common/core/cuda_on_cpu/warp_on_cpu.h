/* warp_on_cpu.h: what the lanes of a warp do together: barrier, votes, shuffles.
 * cuda_on_cpu.h includes it. */
#pragma once

namespace cuda_on_cpu
{

/* compute(lanes, where) for operands of type T; returns what it left in the caller's. */
template <auto compute, class T>
static inline T together(unsigned mask, T operand, const char *name, const struct caller &where)
{
    warp_function *f = [](void *const lanes[32], const struct caller &where) {
        compute((T *const *)lanes, where);
    };
    warp_collective(mask, f, &operand, false, name, where);
    return operand;
}

template <class T> struct shuffle { T value; int source; };

template <class T>
CUDA_ON_CPU_UNSEEN void shuffle_lanes(struct shuffle<T> *const lane[32], const struct caller &where)
{
    T result[32];
    for (int i = 0; i < 32; i++) {
        if (!lane[i]) continue;
        const int source = lane[i]->source;
        if (!lane[source]) fail(where, "lane %d reads lane %d, which takes no part", i, source);
        result[i] = lane[source]->value;
    }
    for (int i = 0; i < 32; i++)
        if (lane[i]) lane[i]->value = result[i];
}

template <class T>
static inline T shuffle_from(unsigned mask, T x, int source, const char *name,
                             const struct caller &where)
{
    return together<shuffle_lanes<T>>(mask, shuffle<T>{x, source}, name, where).value;
}

/* Of each lane its vote, then those of all. */
CUDA_ON_CPU_UNSEEN static inline void collect_votes(unsigned *const lane[32], const struct caller &)
{
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        if (lane[i] && *lane[i]) all |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (lane[i]) *lane[i] = all;
}

static inline unsigned ballot(unsigned mask, int vote, const char *name, const struct caller &where)
{
    return together<collect_votes>(mask, (unsigned)(vote != 0), name, where);
}

} // namespace cuda_on_cpu

void __syncwarp(unsigned mask = ~0u, CALLER);
static inline unsigned __ballot_sync(unsigned mask, int vote, CALLER)
{
    return cuda_on_cpu::ballot(mask, vote, "__ballot_sync", where);
}
static inline int __any_sync(unsigned mask, int vote, CALLER)
{
    return cuda_on_cpu::ballot(mask, vote, "__any_sync", where) != 0;
}

/* Lanes are grouped by `width`, a power of two; a source outside the group is oneself
 * (xor), or taken modulo width. */
template <class T>
static inline T __shfl_sync(unsigned mask, T x, int source, int width = 32, CALLER)
{
    int i = cuda_on_cpu::lane();
    source = (i & ~(width - 1)) | (source & (width - 1));
    return cuda_on_cpu::shuffle_from(mask, x, source, "__shfl_sync", where);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T x, int flip, int width = 32, CALLER)
{
    int i = cuda_on_cpu::lane(), source = i ^ flip;
    if (source >= (i & ~(width - 1)) + width) source = i;
    return cuda_on_cpu::shuffle_from(mask, x, source, "__shfl_xor_sync", where);
}
