/* speed.h: how fast a worker is. */
#ifndef SPEED_H
#define SPEED_H

#include "worker_process.h"

enum { TIMED_BYTES = 1 << 28 }; /* of the shared file; more work than fits in is refused */

struct timed_work {
    const char *words;  /* softmax:ROWSxCOLS or attention:HEADSxSEQLENxDIM */
    enum dtype dtype;
    int runs, gpu;      /* gpu: the worker computes there */
    const char *copier; /* on a GPU: the program of copier.cu */
};

/* Times the worker, in turn with the solution (NULL: there is none; none on a GPU).  Prints a
 * line `timed` or `untimed` (judge.c).  Returns 2 when the words mean nothing, or too much. */
int time_worker(struct worker *w, struct worker *solution, const struct timed_work *work);

#endif
