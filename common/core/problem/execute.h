/* execute.h: run a variant on arrays that lie in host memory, wherever the variant lives.
 * Copies to and from the GPU, allocates the workspace. */
#ifndef EXECUTE_H
#define EXECUTE_H

#include "harness.h"

struct execution; /* a variant bound to a problem and its memory */

/* Binds v (already variant_here()) to p and the host arrays.  For a GPU variant inputs
 * *and* outputs are uploaded (outputs carry their NaN filling).  NULL and *why set when
 * memory is short. */
struct execution *execution_new(const struct variant *v, const struct problem *p,
                                const struct arrays *host, const char **why);
void execution_run(struct execution *e);   /* one call, waits for its end; CUDA errors exit 1 */
/* The same without waiting, in the form that gpu_time() calls. */
void execution_run_nowait(void *e);
/* Downloads outputs with their guard zones: `guard` bytes before and after each. */
void execution_fetch(struct execution *e);
void execution_free(struct execution *e);

/* The three in one: returns NULL, or why it could not be done. */
const char *execute(const struct variant *v, const struct problem *p,
                    const struct arrays *host);

#endif
