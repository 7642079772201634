/* speed.h: how fast a worker is. */
#ifndef SPEED_H
#define SPEED_H

#include "worker_process.h"

enum { TIMED_BYTES = 1 << 28 }; /* of the shared file; more work than fits in is refused */

/* Times the worker, in turn with the solution (NULL: there is none).  `work` is
 * softmax:ROWSxCOLS or attention:HEADSxSEQLENxDIM.  Prints a line `timed` or `untimed`
 * (judge.c).  Returns 2 when `work` means nothing. */
int time_worker(struct worker *w, struct worker *solution, const char *work, int runs);

#endif
