/* barrier.cc: the barriers of a block, and what the lanes of a warp do together. */
#include "cuda_on_cpu/executor.h"

namespace cuda_on_cpu
{

/* Counts the current thread; true when it was the last, who lets the others go on. */
UNSEEN static bool barrier_count(int id, int threads, int vote, const struct caller &where)
{
    if (id < 0 || id >= N_BARRIERS) fail(where, "barrier %d: there are 0 to 15", id);
    int whole = self->n_fibres;
    if (threads < 0 || threads > whole || (threads && threads % 32 && threads != whole))
        fail(where, "barrier %d for %d threads: want a multiple of 32 up to %d", id,
             threads, whole);
    struct barrier *bar = &self->block.barriers[id];
    int expected = threads ? threads : whole;
    if (!bar->arrived) {
        bar->expected = expected;
        bar->file = where.file;
        bar->line = where.line;
    }
    if (bar->expected != expected)
        fail(where, "barrier %d for %d threads, but others wait there for %d (line %u)",
             id, expected, bar->expected, bar->line);
    if (!threads && (bar->line != where.line ||
                     (bar->file != where.file && strcmp(bar->file, where.file))))
        fail(where, "divergent barrier: others of its block wait at the one in line %u",
             bar->line);
    order_in_block(self->current);
    TSAN(__tsan_release(bar));
    bar->votes += vote != 0;
    if (++bar->arrived < bar->expected) return false;
    TSAN(__tsan_acquire(bar));
    bar->result = bar->votes;
    bar->arrived = bar->votes = 0;
    wake_waiters(bar);
    return true;
}

UNSEEN int barrier_sync(int id, int threads, int vote, const struct caller &where)
{
    bool last = barrier_count(id, threads, vote, where);
    struct barrier *bar = &self->block.barriers[id];
    if (!last) wait_for(bar, NULL, "a barrier", where);
    return bar->result;
}

UNSEEN void barrier_arrive(int id, int threads, const struct caller &where)
{
    barrier_count(id, threads, 0, where);
}

/* ---- a warp ---- */

UNSEEN unsigned lane(void) { return self->current->rank % 32; }

/* All lanes of f's mask are here: does it and lets the others go on.  False, and nothing
 * done, if some of them wait with another mask. */
UNSEEN static bool warp_meet(struct fibre *f, bool orders, const char *name,
                             const struct caller &where)
{
    struct fibre *warp = f - f->rank % 32;
    void *operands[32] = {};
    for (unsigned left = f->mask; left; left &= left - 1) {
        unsigned i = __builtin_ctz(left);
        if (warp[i].mask != f->mask) return false;
        if (warp[i].compute != f->compute)
            fail(where, "%s, while lane %u of the same mask is in %s, line %u", name, i,
                 warp[i].waits_in, warp[i].where.line);
        operands[i] = warp[i].operand;
        if (orders) TSAN(__tsan_acquire((char *)&warp[i] + 1));
    }
    f->compute(operands, where);
    self->block.warps[f->rank / 32].waiting &= ~f->mask;
    for (unsigned left = f->mask & ~(1u << f->rank % 32); left; left &= left - 1) {
        struct fibre *other = &warp[__builtin_ctz(left)];
        if (orders)
            wake(other);
        else
            other->state = READY;
    }
    return true;
}

UNSEEN void warp_collective(unsigned mask, warp_function *compute, void *operand,
                            bool orders, const char *name, const struct caller &where)
{
    struct fibre *f = self->current;
    unsigned mine = f->rank % 32, width = self->n_fibres - (f->rank - mine);
    unsigned *waiting = &self->block.warps[f->rank / 32].waiting;
    unsigned gone = self->block.warps[f->rank / 32].gone;
    if (width < 32) mask &= (1u << width) - 1; /* lanes that do not exist */
    if (!(mask >> mine & 1))
        fail(where, "%s: its own lane %u is not in the mask 0x%08x", name, mine, mask);
    if (mask & gone)
        fail(where, "%s: lane %d of the mask 0x%08x has left the kernel", name,
             __builtin_ctz(mask & gone), mask);
    f->mask = mask;
    f->compute = compute;
    f->operand = operand;
    if (orders) {
        order_in_warp(f);
        TSAN(__tsan_release((char *)f + 1));
    }
    *waiting |= 1u << mine;
    if ((*waiting & mask) == mask && warp_meet(f, orders, name, where)) return;
    wait_as(AT_WARP, NULL, NULL, name, where);
}

} // namespace cuda_on_cpu

void __syncwarp(unsigned mask, const struct cuda_on_cpu::caller &where)
{
    cuda_on_cpu::warp_function *nothing = [](void *const[32], const struct cuda_on_cpu::caller &) {};
    cuda_on_cpu::warp_collective(mask, nothing, &mask, true, "__syncwarp", where);
}
