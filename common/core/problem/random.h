/* random.h: numbers that look random and are the same on every machine.
 *
 * The generator is splitmix64 (Steele, Lea, Flood 2014): a counter, scrambled.
 * Everything below is integer arithmetic or exact, so a printed seed repeats an input bit
 * for bit. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct random { uint64_t state; }; /* set state to the seed */

static inline uint64_t random_bits(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In [0, 1), a multiple of 2^-24. */
static inline float random_uniform(struct random *r)
{
    return (float)(random_bits(r) >> 40) * 0x1p-24f;
}

/* In 0 .. n - 1. */
static inline size_t random_below(struct random *r, size_t n)
{
    return (size_t)(random_bits(r) >> 11) % n;
}

/* Mean 0, variance 1, nearly normal: the sum of twelve 16-bit uniforms less its mean.  A
 * transcendental function would differ from one C library to the next. */
static inline float random_normal(struct random *r)
{
    long sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t bits = random_bits(r);
        for (int k = 0; k < 64; k += 16) sum += (long)(bits >> k & 0xffff);
    }
    return (float)(sum - 393210) * 0x1p-16f; /* 12 * 32767.5 = 393210 */
}

/* A seed from a name (FNV-1a), so that each case has its own and keeps it. */
static inline uint64_t random_seed(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    while (*name) h = (h ^ (unsigned char)*name++) * 0x100000001b3u;
    return h;
}
