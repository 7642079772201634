/* warp_on_cpu.h: what the lanes of a warp do together: barrier, votes, shuffles.
 * cuda_on_cpu.h includes it. */
#ifndef WARP_ON_CPU_H
#define WARP_ON_CPU_H

namespace cuda_on_cpu
{

template <class T> struct shuffle {
    T value, result;
    int source;
};

template <class T>
CUDA_ON_CPU_UNSEEN void shuffle_compute(void *const operand[32], unsigned mask,
                                        const struct caller &where)
{
    for (int i = 0; i < 32; i++) {
        struct shuffle<T> *mine = (struct shuffle<T> *)operand[i];
        if (!mine) continue;
        if (!(mask >> mine->source & 1) || !operand[mine->source])
            fail(where, "lane %d reads lane %d, which takes no part (mask 0x%08x)", i,
                 mine->source, mask);
        mine->result = ((struct shuffle<T> *)operand[mine->source])->value;
    }
}

template <class T>
static inline T shuffle_from(unsigned mask, T value, int source, const char *name,
                             const struct caller &where)
{
    struct shuffle<T> s = {value, value, source};
    warp_collective(mask, shuffle_compute<T>, &s, false, name, where);
    return s.result;
}

unsigned ballot(unsigned mask, int vote, const char *name, const struct caller &where);

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

#endif
