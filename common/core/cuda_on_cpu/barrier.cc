/* barrier.cc: the barriers of a block. */
#include "cuda_on_cpu/executor.h"

namespace cuda_on_cpu
{

/* Lets those go on who wait at the barrier, and resets it. */
UNSEEN static void barrier_open(int id)
{
    struct barrier *bar = &self->block.barriers[id];
    TSAN(__tsan_acquire(bar));
    self->current->count = bar->votes;
    for (unsigned i = 0; i < self->n_fibres; i++) {
        struct fibre *f = &self->fibres[i];
        if (f->state != AT_BARRIER || f->barrier != id) continue;
        f->count = bar->votes;
        wake(f);
    }
    bar->arrived = bar->votes = 0;
}

/* Counts the current thread; true when it was the last. */
UNSEEN static bool barrier_count(int id, int threads, int vote, const struct caller &where)
{
    struct fibre *f = self->current;
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
    order_in_block(f);
    TSAN(__tsan_release(bar));
    bar->votes += vote != 0;
    return ++bar->arrived == bar->expected;
}

UNSEEN int barrier_sync(int id, int threads, int vote, const struct caller &where)
{
    struct fibre *f = self->current;
    f->barrier = id;
    if (barrier_count(id, threads, vote, where)) {
        barrier_open(id);
        TSAN(__tsan_acquire(&self->block.barriers[id]));
        return f->count;
    }
    wait_as(AT_BARRIER, "a barrier", where);
    return f->count;
}

UNSEEN void barrier_arrive(int id, int threads, const struct caller &where)
{
    if (barrier_count(id, threads, 0, where)) barrier_open(id);
}

} // namespace cuda_on_cpu
