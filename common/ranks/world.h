/* world.h: the processes that work on one problem.
 *
 *     build/05_flash_cuda --gpus 2                one process with two GPUs (one_process.c)
 *     mpirun -n 2 build/05_flash_cuda_mpi         two processes with one GPU each (mpi/)
 *
 * A rank is a GPU.  Everything else in this folder asks here and is the same for both. */
#ifndef WORLD_H
#define WORLD_H

#include <stddef.h>

#include "program/options.h"
#include "harness.h"

#ifdef __cplusplus
extern "C" {
#endif

struct world {
    const struct stage *stage;
    int ranks; /* GPUs in all */
    int first; /* rank of this process's first GPU */
    int local; /* GPUs of this process */
    int device;/* number of the first one on this machine */
};

/* Bytes of process 0 to all. */
void world_share(void *bytes, size_t n);

/* The largest x of all processes. */
double world_max(double x);

/* n floats from process `from` to process 0, where `from` is not 0.  Both call it. */
void world_send(float *x, size_t n, int from);

/* A complaint of this process or NULL.  Where some process complains, process 0 prints one
 * line and every process gets `status`; else 0. */
int world_agree(const struct world *w, const char *why, int status);

/* Ends every process at once after one line on stderr: another GPU may wait for ever. */
void world_abort(const struct world *w, const char *why) __attribute__((noreturn));

/* The verbs check, bench and run on several GPUs; the exit status. */
int verb_on_gpus(const struct world *w, unsigned verb, const struct options *opt);

#ifdef __cplusplus
}
#endif
#endif
