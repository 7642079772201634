/* memory.cc: the shared memory of a block: where it lies, its bounds, what it holds at first. */
#include "cuda_on_cpu/executor.h"
#include "cuda_on_cpu/hopper_on_cpu.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cuda_on_cpu
{

[[noreturn]] static void no_memory(const char *call, size_t bytes)
{
    fprintf(stderr, "no memory to execute CUDA threads on the CPU: %s of %zu bytes: %s "
            "(fewer threads, OMP_NUM_THREADS, need less)\n", call, bytes, strerror(errno));
    fflush(stdout);
    _exit(1); /* other CPU threads are at work */
}

char *map(size_t bytes, int protection)
{
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) no_memory("mmap", bytes);
    return (char *)p;
}

void protect(char *start, size_t bytes, int protection)
{
    if (bytes && mprotect(start, bytes, protection)) no_memory("mprotect", bytes);
}

/* Shared memory of `bytes`, whose end touches a guard page. */
void place_shared(struct worker *w, size_t bytes)
{
    size_t page = sysconf(_SC_PAGESIZE), most = (SHARED_MOST + page - 1) / page * page;
    size_t mapped = (bytes + page - 1) / page * page;
    if (!w->shared_map) w->shared_map = map(page + most + page, PROT_NONE);
    char *end = w->shared_map + page + most;
    if (mapped != w->shared_mapped) protect(w->shared_map + page, most, PROT_NONE);
    protect(end - mapped, mapped, PROT_READ | PROT_WRITE);
    w->block.shared = bytes ? end - (bytes + 15) / 16 * 16 : NULL;
    w->shared_mapped = mapped;
}

/* Fills what lies between the guard page and the shared memory, and that memory. */
void poison(const struct worker *w)
{
    const struct block *b = &w->block;
    if (!b->shared) return;
    size_t page = sysconf(_SC_PAGESIZE);
    char *start = (char *)((uintptr_t)b->shared & ~(page - 1));
    memset(start, 0xff, b->shared - start + w->launch->shared_bytes);
}

/* Whether the bytes before the shared memory are as poison() left them. */
void check_front(const struct worker *w)
{
    const struct block *b = &w->block;
    if (!b->shared) return;
    size_t page = sysconf(_SC_PAGESIZE), n = (uintptr_t)b->shared & (page - 1);
    for (size_t i = 1; i <= n; i++)
        if (b->shared[-(ptrdiff_t)i] != (char)0xff)
            fail_at(w->fibres.data(), {}, "or another of its block: write %zu bytes before the start of "
                    "its shared memory", i);
}

UNSEEN void *shared_memory(size_t bytes, size_t alignment, const struct caller &where)
{
    struct worker *w = self;
    w->function = where.function;
    if (bytes > w->launch->shared_bytes)
        fail(where, "uses %zu bytes of shared memory, the launch gave %zu", bytes,
             w->launch->shared_bytes);
    void *shared = w->block.shared;
    if ((uintptr_t)shared % alignment)
        fail(where,
             "launch with sizeof() of the shared memory, a multiple of %zu, not %zu",
             alignment, w->launch->shared_bytes);
    return shared;
}

UNSEEN void *shared_at(uint32_t address, size_t bytes, const struct caller &where)
{
    if (address + bytes > self->launch->shared_bytes)
        fail(where, "access %zu bytes past the end of its %zu bytes of shared memory",
             address + bytes - self->launch->shared_bytes, self->launch->shared_bytes);
    return self->block.shared + address;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

UNSEEN uint32_t shared_address(const void *p, const struct caller &where)
{
    const char *low = self->block.shared;
    ptrdiff_t offset = (const char *)p - low;
    if (!low || offset < 0 || (size_t)offset >= self->launch->shared_bytes)
        fail(where, "an address that does not lie in shared memory");
    return (uint32_t)offset;
}
