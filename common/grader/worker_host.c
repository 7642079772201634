/* worker_host.c: the arrays of a worker in its own memory. */
#include "worker_memory.h"

#include <stdlib.h>
#include <unistd.h>

char *memory_to_device(char *host, size_t n) { return (void)n, host; }

void memory_from_device(char *host, char *device, size_t n) { (void)host, (void)device, (void)n; }

char *memory_of_judge(size_t n, char *file) { return (void)n, file; }

void *memory_for_work(size_t n)
{
    void *p = NULL;
    if (posix_memalign(&p, 1024, n)) _exit(3);
    return p;
}

void memory_free_work(void *p) { free(p); }

void memory_wait(void) {}
