/* world.h: the processes that work on one problem, and what they tell one another.
 *
 *     build/05_flash_cuda --gpus 2                    one process with two GPUs (world_one.c)
 *     mpirun -n 2 build/05_flash_cuda_mpi             two processes, a GPU each (world_mpi.c)
 *     mpirun -n 2 build/04_monoid_tiled_cpu_mpi       two processes, the cores of each
 *
 * A rank is a process or a GPU.  Everything else in this folder asks here and is the same for
 * all three. */
#pragma once

#include "harness.h"

#ifdef __cplusplus
extern "C" {
#endif

struct world {
    int ranks;       /* in all */
    int first;       /* this process's first rank; process 0 prints and writes files */
    int local;       /* ranks of this process: each process has as many */
    int place;       /* number of the first one on this machine: of its GPU */
    double patience; /* seconds until a process that does not answer ends all; 0: for ever */
};
extern struct world world;

/* Bytes of process 0 to all. */
void world_share(void *bytes, size_t n);

/* The largest x, or the sum of the x, of all processes. */
double world_max(double x);
double world_sum(double x);

/* Bytes from process `from` to process 0, where `from` is not 0.  Both call it. */
void world_send(void *bytes, size_t n, int from);

/* A complaint of this process or NULL.  Where some process complains, process 0 prints one
 * line and every process gets `status`; else 0. */
int world_agree(const char *why, int status);

/* Ends every process at once after one line on stderr: another rank may wait for ever. */
void world_abort(const char *why) __attribute__((noreturn));

/* In world_one.c: check, bench or run (a bit of program/options.h) on opt->gpus GPUs.  In
 * world_mpi.c: the same on the processes of mpirun.  In none.c: why it cannot be. */
int on_ranks(const struct stage *stage, unsigned verb, const struct options *opt);

/* The program that mpirun starts. */
int main_on_mpi(int argc, char **argv, const struct stage *stage);

#ifdef __cplusplus
}
#endif
