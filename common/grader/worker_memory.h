/* worker_memory.h: where the arrays of a worker lie: in its own memory (worker_host.c), or on
 * the GPU (worker_gpu.cu).  What fails ends the worker. */
#ifndef WORKER_MEMORY_H
#define WORKER_MEMORY_H

#include "protocol.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A copy of n bytes where the function under test can use them; on the host the bytes
 * themselves.  Back, the copy is freed. */
char *memory_to_device(char *host, size_t n);
void memory_from_device(char *host, char *device, size_t n);

/* The memory that the judge shares for timed runs: n bytes of the GPU's, or the file. */
char *memory_of_judge(size_t n, char *file);

/* The variant's workspace, 1024-byte aligned; kept from call to call where that saves time. */
void *memory_for_work(size_t n);
void memory_free_work(void *p);

/* Waits for all that was launched. */
void memory_wait(void);

#ifdef __cplusplus
}
#endif
#endif
