/* fibre.cc: the threads of a block, each with a stack, and how they wait for one another. */
#include "cuda_on_cpu/executor.h"

#include <sys/mman.h>
#include <unistd.h>

__thread struct uint3 threadIdx, blockIdx;

namespace cuda_on_cpu
{

static const size_t COLOURS = 16 << 10; /* stacks start at different cache lines: */
static const size_t COLOUR = 5 * 64;    /* 256 of one alignment would evict each other */

static const uint64_t UNTOUCHED = 0x5eafa11ade5eafa1; /* the lowest word of a stack */

UNSEEN static void to_scheduler(void)
{
    struct worker *w = self;
    struct fibre *f = w->current;
    ASAN(__sanitizer_start_switch_fiber(&f->asan, w->stack_low, w->stack_size));
    TSAN(__tsan_switch_to_fiber(w->tsan, __tsan_switch_to_fiber_no_sync));
    context_switch(&f->registers, &w->scheduler);
    ASAN(__sanitizer_finish_switch_fiber(f->asan, &w->stack_low, &w->stack_size));
}

UNSEEN void resume(struct worker *w, struct fibre *f)
{
    w->current = f;
    threadIdx = f->index;
    blockIdx = self->block.index;
    ASAN(__sanitizer_start_switch_fiber(&w->asan, f->stack, STACK_BYTES));
    TSAN(__tsan_switch_to_fiber(f->tsan, __tsan_switch_to_fiber_no_sync));
    context_switch(&w->scheduler, &f->registers);
    ASAN(__sanitizer_finish_switch_fiber(w->asan, NULL, NULL));
    if (*(uint64_t *)f->stack != UNTOUCHED) fail_at(f, {}, OVERFLOWS, STACK_BYTES);
    w->current = NULL;
}

/* Sets where the current fibre stands and waits until it is made READY again. */
UNSEEN void wait_as(enum state state, const void *what, describe_function *describe, const char *name,
                    const struct caller &where)
{
    struct fibre *f = self->current;
    f->state = state;
    f->what = what;
    f->describe = describe;
    f->waits_in = name;
    f->where = where;
    to_scheduler(); /* another thread runs now */
    TSAN(__tsan_acquire(f));
}

UNSEEN void wake(struct fibre *f)
{
    TSAN(__tsan_release(f));
    f->state = READY;
}

UNSEEN void wake_waiters(const void *what)
{
    for (unsigned i = 0; i < self->n_fibres; i++)
        if (self->fibres[i].state == AT_ADDRESS && self->fibres[i].what == what)
            wake(&self->fibres[i]);
}

UNSEEN static void leave(struct fibre *f)
{
    f->copies.clear();
    f->groups.clear();
    f->state = DONE;
    self->block.warps[f->rank / 32].gone |= 1u << f->rank % 32;
}

/* A fibre lives as long as its worker and runs one thread after another. */
UNSEEN static void fibre_main(void)
{
    ASAN(__sanitizer_finish_switch_fiber(NULL, &self->stack_low, &self->stack_size));
    for (;;) {
        struct fibre *f = self->current;
        TSAN(__tsan_acquire(&self->sync));
        self->launch->thread(self->launch->arguments);
        TSAN(__tsan_release(&self->sync));
        leave(f);
        to_scheduler();
    }
}

/* Enough fibres for n threads.  A guard page for each would need more mappings than a process
 * may have (vm.max_map_count) where many workers execute large blocks: one lies below all their
 * stacks, and a word at the low end of each stack tells whether it was overrun. */
void grow_fibres(struct worker *w, unsigned n)
{
    /* Fibres that are parked point to themselves, so they must not move: room for the
     * largest block is taken once (and touched when used). */
    enum { MOST = 1024 };
    if (w->fibres.capacity() < MOST) w->fibres.reserve(MOST);
    size_t had = w->fibres.size();
    if (had >= n) return;
    size_t page = sysconf(_SC_PAGESIZE), bytes = page + (n - had) * STACK_BYTES;
    char *stacks = map(bytes, PROT_READ | PROT_WRITE);
    protect(stacks, page, PROT_NONE);
    w->stacks.push_back(stacks);
#ifdef MADV_NOHUGEPAGE
    madvise(stacks, bytes, MADV_NOHUGEPAGE); /* of each stack little is touched */
#endif
    w->fibres.resize(n);
    for (size_t i = had; i < n; i++) {
        struct fibre *f = &w->fibres[i];
        f->stack = stacks + page + (i - had) * STACK_BYTES;
        *(uint64_t *)f->stack = UNTOUCHED;
        context_make(&f->registers, f->stack, STACK_BYTES - i * COLOUR % COLOURS,
                     fibre_main);
        TSAN(f->tsan = __tsan_create_fiber(0));
    }
}

} // namespace cuda_on_cpu
