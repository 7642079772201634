/* dropout.h: which weights attention with dropout keeps (Srivastava et al. 2014).
 *
 *     o_i = sum_j w_ij p_ij v_j,   w_ij = 0 with probability p, else 1 / (1 - p);   lse is that of all keys
 * w is a function of the seed, the head and the indices of query and key.  So nothing is stored: the
 * backward pass, and every kernel on every device, finds the same again.
 *
 * Philox4x32-10 (Salmon et al. 2011) scrambles a counter of 128 bits in ten rounds.  Its four numbers
 * belong to the pairs (i, j), (i, j + 8), (i + 8, j) and (i + 8, j + 8): of the fragments of a
 * tensor core's product a thread has all four, whichever way the product was turned. */
#pragma once

#include "problem.h"

struct dropout {
    uint32_t seed[2];
    uint32_t below; /* smaller numbers drop their weight; 0: none is dropped */
    uint32_t first_head;
    float factor;   /* 1 / (1 - p), of what is kept */
};

static inline struct dropout dropout_of(const struct problem *p)
{
    return (struct dropout){{(uint32_t)p->seed, (uint32_t)(p->seed >> 32)},
                            (uint32_t)((double)p->dropout * 0x1p32), (uint32_t)p->first_head,
                            1 / (1 - p->dropout)};
}

struct four { uint32_t x[4]; };

/* The numbers of the four pairs that the pair (i, j) belongs to.   head  b * heads_q + h */
static inline HOST_DEVICE struct four philox(const struct dropout *d, uint32_t head, uint32_t i, uint32_t j)
{
    uint32_t key0 = d->seed[0], key1 = d->seed[1];
    uint32_t x0 = i / 16 * 8 + i % 8, x1 = j / 16 * 8 + j % 8, x2 = d->first_head + head, x3 = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#elif !defined __CUDACC__
#pragma GCC unroll 10 /* else no compiler makes vectors of several counters */
#endif
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * x0, b = (uint64_t)0xcd9e8d57u * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ key0, x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ key1, x3 = (uint32_t)a;
        key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
    }
    return (struct four){{x0, x1, x2, x3}};
}

static inline HOST_DEVICE int is_kept(const struct dropout *d, size_t head, size_t i, size_t j)
{
    const struct four x = philox(d, (uint32_t)head, (uint32_t)i, (uint32_t)j);
    return x.x[i / 8 % 2 * 2 + j / 8 % 2] >= d->below;
}

/* What the weights of n keys from j on count for query i: 0 or d->factor. */
static inline void kept_keys(const struct dropout *d, size_t head, size_t i, size_t j, size_t n, float *counts)
{
    uint32_t of[16]; /* a square's keys: two of each four numbers are this query's */
    for (size_t skip = j % 16, at = 0; at < n; skip = 0) {
#pragma omp simd
        for (uint32_t t = 0; t < 8; t++) {
            const struct four x = philox(d, (uint32_t)head, (uint32_t)i, (uint32_t)(j + at - skip) + t);
            of[t] = i & 8 ? x.x[2] : x.x[0];
            of[t + 8] = i & 8 ? x.x[3] : x.x[1];
        }
        for (; skip < 16 && at < n; skip++) counts[at++] = of[skip] < d->below ? 0 : d->factor;
    }
}
