/* mma_variant.h: the host's side of rungs 3 to 6: which tiles a problem gets, and their launch. */
#pragma once

#include <type_traits>

#include "attention.h"
#include "cost.h"
#include "start.h"

/* The head dimensions that are compiled, ascending up to 256; others are padded to the next.
 * Multiples of 16: add one here for heads that should not be padded. */
#define HEADS 64, 128, 256

/* Calls use(d) with the first of the head dimensions D that holds the problem's, as a constant. */
template <int... D, class F> static void with_head_dim(const struct problem *p, F use)
{
    int least = head_dim_of<D...>(p);
    ((least == D ? use(std::integral_constant<int, D>()) : (void)0), ...);
}

/* The tiles W in words. */
template <class W> static const char *in_words(W, const char *why)
{
    static char text[160];
    snprintf(text, sizeof text, "blocks of %d queries and %d keys; head dims up to %d%s", W::Br,
             W::Bc, W::D, why);
    return text;
}

/* Launches a kernel with the tiles W. */
template <class W>
static void start_tiles(void (*kernel)(const struct attention), const struct problem *p,
                        const struct arrays *a)
{
    struct attention x = attention_of(p, a, W::Br);
    size_t blocks = p->batch * p->heads_q * (size_t)x.q_blocks;
    start(kernel, blocks, W::THREADS, sizeof(typename W::shared), a->stream, x);
}

/* The part of the descriptor that all share. */
#define MMA_VARIANT(arch)                                                                        \
    .group = IN_PORTABLE, .device = GPU_DEVICE, .least_arch = arch,                              \
    .types = TYPE(F16) | TYPE(BF16), .supports = BASIC_FEATURES | WITH_SHIFT,                    \
    .max_score = INFINITY, .masked_rows = 1

/* The end of a rung that has attend(x), what a block does, and with_tiling(p, use), which calls
 * use(tiles, why): the kernel, the tiles in words, the launch, the descriptor. */
#define MMA_RUNG(rung, words, arch, refusal)                                                     \
    template <enum dtype T, class W>                                                             \
    __global__ void __launch_bounds__(W::THREADS, W::BLOCKS)                                     \
        rung##_kernel(const struct attention x)                                                  \
    {                                                                                            \
        attend<T, W>(x);                                                                         \
    }                                                                                            \
    static const char *picks(const struct problem *p)                                            \
    {                                                                                            \
        const char *text = NULL;                                                                 \
        with_tiling(p, [&](auto w, const char *why) { text = in_words(w, why); });               \
        return text;                                                                             \
    }                                                                                            \
    static void attention(const struct problem *p, const struct arrays *a)                       \
    {                                                                                            \
        with_tiling(p, [&](auto w, const char *) {                                               \
            using W = decltype(w);                                                               \
            start_tiles<W>(p->dtype == F16 ? rung##_kernel<F16, W> : rung##_kernel<BF16, W>, p,  \
                           a);                                                                   \
        });                                                                                      \
    }                                                                                            \
    GPU_VARIANT(rung, words, MMA_VARIANT(arch), .refuses = refusal, .picks = picks,              \
                .cost = cost, .does = {{OP_ATTENTION, attention}})
