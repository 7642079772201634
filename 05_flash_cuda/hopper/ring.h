/* hopper_ring.h: a ring of tiles in shared memory between a producer and consumers.
 *
 * Each slot has two barriers: `full` (the tile has arrived) and `empty` (all consumers
 * have read it).  Both sides walk the slots in the same order and remember slot and
 * parity:
 *
 *     producer: wait(empty), order the copy        consumer: wait(full), use,
 *     arrive(empty)
 *
 * The parity flips when the walk comes round.  A consumer starts with parity 0, and waits
 * for the first arrival; the producer with parity 1, which a fresh barrier lets through.
 * */
#ifndef HOPPER_RING_H
#define HOPPER_RING_H

#include "tile.h"

struct place {
    int slot;
    uint32_t parity;
};

/* The next place in a ring of N slots. */
template <int N> static __device__ __forceinline__ void advance(struct place &at)
{
    if (++at.slot == N) at.slot = 0, at.parity ^= 1;
}

/* Slots of V, and how often a warpgroup releases a slot of K: as many as of K, and once,
 * where the rung says nothing else. */
template <class C> static constexpr int v_stages = C::STAGES;
template <class C>
    requires requires { C::V_STAGES; }
static constexpr int v_stages<C> = C::V_STAGES;

template <class C> static constexpr int k_releases = 1;
template <class C>
    requires requires { C::K_RELEASES; }
static constexpr int k_releases<C> = C::K_RELEASES;

/* The ring of K and V tiles. */
template <class C> struct ring {
    alignas(1024) typename C::T k[C::STAGES][C::Bc * C::D];
    alignas(1024) typename C::T v[v_stages<C>][C::Bc * C::D];
    uint64_t k_full[C::STAGES], k_empty[C::STAGES];
    uint64_t v_full[v_stages<C>], v_empty[v_stages<C>];
};

template <class C> static __device__ __forceinline__ void ring_init(ring<C> &ring)
{
    for (int i = 0; i < C::STAGES; i++) {
        barrier_init(&ring.k_full[i], 1);
        barrier_init(&ring.k_empty[i], k_releases<C> * C::WARPGROUPS);
    }
    for (int i = 0; i < v_stages<C>; i++) {
        barrier_init(&ring.v_full[i], 1);
        barrier_init(&ring.v_empty[i], C::WARPGROUPS);
    }
}

/* The producer's part for key block n: K into one slot, V into another. */
template <class C>
static __device__ __forceinline__ void ring_load_k(ring<C> &ring, struct place &at,
                                                   const struct job &j, int n,
                                                   int head_kv, int batch)
{
    barrier_wait(&ring.k_empty[at.slot], at.parity);
    load_tile<C, C::Bc>(ring.k[at.slot], &j.k, &ring.k_full[at.slot], n * C::Bc, head_kv,
                        batch);
    advance<C::STAGES>(at);
}

template <class C>
static __device__ __forceinline__ void ring_load_v(ring<C> &ring, struct place &at,
                                                   const struct job &j, int n,
                                                   int head_kv, int batch)
{
    barrier_wait(&ring.v_empty[at.slot], at.parity);
    load_tile<C, C::Bc>(ring.v[at.slot], &j.v, &ring.v_full[at.slot], n * C::Bc, head_kv,
                        batch);
    advance<v_stages<C>>(at);
}

/* A consumer's release: one thread speaks for its warpgroup, whose products have ended.
 * */
template <int STAGES>
static __device__ __forceinline__ void release(uint64_t (&empty)[STAGES],
                                               struct place &at)
{
    barrier_arrive_if(&empty[at.slot], threadIdx.x % 128 == 0);
    advance<STAGES>(at);
}

/* A warpgroup that does not need a block gives it back.  All its threads must have seen
 * it full first: a late one could otherwise miss two rounds and wait for ever. */
template <class C>
static __device__ __forceinline__ void skip_block(ring<C> &ring, struct place &k_at,
                                                  struct place &v_at, int id)
{
    barrier_wait(&ring.k_full[k_at.slot], k_at.parity);
    barrier_wait(&ring.v_full[v_at.slot], v_at.parity);
    named_sync(id, 128);
    barrier_arrive_if(&ring.k_empty[k_at.slot],
                      threadIdx.x % (128 / k_releases<C>) == 0);
    advance<C::STAGES>(k_at);
    release(ring.v_empty, v_at);
}

#endif
