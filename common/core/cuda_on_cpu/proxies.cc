/* proxies.cc: ordinary (generic) accesses to tiles of shared memory beside those of the copy
 * engine and of wgmma, which go to memory by a way of their own, the async proxy.
 *
 * What a thread has read by ldmatrix or written by stmatrix or store_four() is remembered
 * until it is ordered before what the copy engine or wgmma may do there next:
 *
 *     the thread's fence_proxy_async(), then a barrier, or its own arrival at an mbarrier, or a
 *     __syncwarp() and the arrival of any lane of its warp
 *
 * A copy to or from a tile, or a product with one, is reported beside an access that is not
 * ordered.  Which arrival the producer has waited for is not looked at: a wrong one shows in
 * the numbers. */
#include "cuda_on_cpu/executor.h"
#include "cuda_on_cpu/hopper_on_cpu.h"

using namespace cuda_on_cpu;

static const uint32_t ROW = 128; /* bytes: of a row of a tile */

UNSEEN void *cuda_on_cpu::tile_row(uint32_t address, bool is_write, const struct caller &where)
{
    std::vector<struct access> &mine = self->current->accesses;
    if (mine.empty() || mine.back().row != address / ROW || mine.back().order != NOT_FENCED)
        mine.push_back({address / ROW, where.line, is_write, NOT_FENCED});
    return shared_at(address, 16, where);
}

UNSEEN static void raise(struct fibre *f, enum access_order from, enum access_order to)
{
    for (struct access &a : f->accesses)
        if (a.order == from) a.order = to;
}

UNSEEN static void forget(struct fibre *f, enum access_order from)
{
    std::erase_if(f->accesses, [=](const struct access &a) { return a.order >= from; });
}

UNSEEN void fence_proxy_async(void) { raise(self->current, NOT_FENCED, FENCED); }

UNSEEN void cuda_on_cpu::order_in_warp(struct fibre *f) { raise(f, FENCED, IN_WARP); }

UNSEEN void cuda_on_cpu::order_in_block(struct fibre *f) { forget(f, FENCED); }

UNSEEN void cuda_on_cpu::order_by_arrival(struct fibre *f)
{
    struct fibre *warp = f - f->rank % 32;
    forget(f, FENCED);
    for (unsigned i = 0; i < 32 && warp->rank + i < self->n_fibres; i++)
        forget(&warp[i], IN_WARP);
}

UNSEEN void cuda_on_cpu::check_accesses(const char *who, uint32_t address, size_t bytes,
                                        bool reads, const struct caller &where)
{
    const struct fibre *first = self->fibres.data();
    for (unsigned i = 0; i < self->n_fibres; i++)
        for (const struct access &a : first[i].accesses)
            if (a.row >= address / ROW && a.row < (address + bytes) / ROW &&
                !(reads && !a.is_write))
                fail(where, "%s: thread (%u,%u,%u) has %s this tile, line %u, %s", who,
                     first[i].index.x, first[i].index.y, first[i].index.z,
                     a.is_write ? "written to" : "read", a.line,
                     a.order == NOT_FENCED ? "without fence_proxy_async()"
                                           : "and no barrier or arrival orders it before");
}
