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

/* A "Name:  123 kB" line of a /proc file, in bytes; 0 when there is none. */
static size_t proc_value(const char *path, const char *name)
{
    FILE *f = fopen(path, "r");
    char line[256];
    size_t kb = 0, n = strlen(name);
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, name, n) && line[n] == ':') {
            kb = strtoull(line + n + 1, NULL, 10);
            break;
        }
    fclose(f);
    return kb * 1024;
}

/* What a control group (a container, a batch job) still allows, SIZE_MAX without one. */
static size_t control_group_left(void)
{
    unsigned long long limit = 0, used = 0;
    FILE *f = fopen("/sys/fs/cgroup/memory.max", "r");
    int ok = f && fscanf(f, "%llu", &limit) == 1;
    if (f) fclose(f);
    f = fopen("/sys/fs/cgroup/memory.current", "r");
    ok = f && fscanf(f, "%llu", &used) == 1 && ok;
    if (f) fclose(f);
    if (!ok) return SIZE_MAX;
    return limit > used ? (size_t)(limit - used) : 0;
}

size_t memory_available(void)
{
    size_t free_bytes = proc_value("/proc/meminfo", "MemAvailable");
    size_t group = control_group_left();
    struct rlimit limit;
    if (!free_bytes) {
        long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
        free_bytes = pages > 0 && size > 0 ? (size_t)pages * (size_t)size / 10 * 9 : SIZE_MAX;
    }
    if (group < free_bytes) free_bytes = group;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < free_bytes)
        free_bytes = (size_t)limit.rlim_cur;
    return free_bytes;
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

void memory_peak_reset(void)
{
    atomic_store(&peak, atomic_load(&live));
}

size_t memory_peak(void)
{
    return atomic_load(&peak);
}

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
