/* memory.c: host memory that fails early with a reason instead of late with a signal. */
#include "problem/host_memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ALIGNMENT = 1024 };
#define LARGE ((size_t)4 << 20)      /* arrays of so many bytes get ... */
#define LARGE_PAGE ((size_t)2 << 20) /* ... pages of this size, where the system has them */

size_t size_times(size_t a, size_t b)
{
    if (a == 0 || b == 0) return 0;
    return a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

size_t size_plus(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

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

/* Linux grants far more than it has and kills later, so large requests are compared with
 * what is available; small ones are not worth the look.  Large pages: with 4 KiB each, a
 * pass over a long row waits for page tables. */
void *memory_new(size_t bytes)
{
    if (bytes > (size_t)64 << 20 && bytes > memory_available()) return NULL;
    size_t alignment = bytes >= LARGE ? LARGE_PAGE : ALIGNMENT;
    if (bytes > SIZE_MAX - alignment) return NULL;
    size_t rounded = (bytes + alignment) / alignment * alignment;
    void *memory = aligned_alloc(alignment, rounded);
#ifdef MADV_HUGEPAGE
    if (memory && bytes >= LARGE) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    return memory;
}

void memory_free(void *p)
{
    free(p);
}

void memory_peak_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

size_t memory_peak(void)
{
    size_t peak = proc_value("/proc/self/status", "VmHWM");
    if (peak) return peak;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}
