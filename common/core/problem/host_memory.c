/* host_memory.c: host memory that fails early with a reason instead of late with a signal. */
#include "problem/host_memory.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static _Atomic size_t live, peak; /* bytes in use now; most since memory_peak_reset() */

enum { ALIGNMENT = 1024 };
#define LARGE ((size_t)4 << 20)      /* arrays of so many bytes get ... */
#define LARGE_PAGE ((size_t)2 << 20) /* ... pages of this size, where the system has them */

/* The first number after `name` in a file of the system's; -1 when there is none. */
static double number_in(const char *path, const char *name)
{
    FILE *f = fopen(path, "r");
    char line[256];
    double x = -1;
    size_t n = strlen(name);
    while (f && x < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, name, n) && sscanf(line + n, "%lf", &x) != 1) break;
    if (f) fclose(f);
    return x;
}

/* What a control group (a container, a batch job) still allows, -1 without one. */
static double control_group_left(void)
{
    double limit = number_in("/sys/fs/cgroup/memory.max", "");
    double used = number_in("/sys/fs/cgroup/memory.current", "");
    return limit < 0 || used < 0 ? -1 : limit > used ? limit - used : 0;
}

size_t memory_available(void)
{
    double bytes = 1024 * number_in("/proc/meminfo", "MemAvailable:");
    double group = control_group_left();
    struct rlimit limit;
    if (bytes <= 0)
        bytes = 0.9 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (group >= 0 && group < bytes) bytes = group;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY &&
        (double)limit.rlim_cur < bytes)
        bytes = (double)limit.rlim_cur;
    return (size_t)bytes;
}

/* The number of bytes asked for stands at the very end of the block, which is larger. */
static size_t *size_at_end(void *memory)
{
    return (size_t *)((char *)memory + malloc_usable_size(memory)) - 1;
}

static void count(size_t bytes)
{
    size_t now = atomic_fetch_add(&live, bytes) + bytes, most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) {}
}

/* Linux grants far more than it has and kills later, so large requests are compared with
 * what is available; small ones are not worth the look.  Large pages: with 4 KiB each, a
 * pass over a long row waits for page tables. */
void *memory_new(size_t bytes)
{
    if (bytes > (size_t)64 << 20 && bytes > memory_available()) return NULL;
    size_t alignment = bytes >= LARGE ? LARGE_PAGE : ALIGNMENT;
    if (bytes > SIZE_MAX - sizeof(size_t) - alignment) return NULL;
    size_t rounded = (bytes + sizeof(size_t) + alignment - 1) / alignment * alignment;
    void *memory = aligned_alloc(alignment, rounded);
    if (!memory) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= LARGE) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    *size_at_end(memory) = bytes;
    count(bytes);
    return memory;
}

void memory_free(void *memory)
{
    if (!memory) return;
    atomic_fetch_sub(&live, *size_at_end(memory));
    free(memory);
}

void memory_peak_reset(void) { atomic_store(&peak, atomic_load(&live)); }

size_t memory_peak(void) { return atomic_load(&peak); }

void *xcalloc(size_t count, size_t size)
{
    void *m = calloc(count ? count : 1, size);
    if (!m) {
        fprintf(stderr, "%zu x %zu bytes of memory are needed, more than this machine has\n",
                count, size);
        exit(1);
    }
    return m;
}
