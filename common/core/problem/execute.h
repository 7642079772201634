/* execute.h: run a variant on arrays that lie in host memory, wherever the variant lives: outputs that
 * betray what was not written or was written outside, copies to and from the GPU, the workspace. */
#pragma once

#include "harness.h"
#include "problem/arrays.h"

enum { GUARD_BYTE = 0xa5 };

/* An output array before a call: every element a NaN that no arithmetic produces, GUARD
 * bytes of a pattern before and after.  The NaNs are quiet; their payloads:
 *     f32 0x7fc0dead   f16 0x7ead   bf16 0x7fed */
struct output {
    void *data;      /* element 0 */
    size_t n;
    enum dtype dtype;
    unsigned char *frame;
};

/* All outputs of a problem; data NULL for arrays that are none. */
struct outputs { struct output array[N_ARRAYS]; };

/* The outputs of p, filled.  Exits 1 without memory. */
struct outputs outputs_new(const struct problem *p);
void outputs_bind(const struct outputs *out, struct arrays *a); /* points a at them */
void outputs_free(struct outputs *out);
/* Same bits in every element? */
int outputs_equal(const struct outputs *a, const struct outputs *b);

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
const char *execution_once(const struct variant *v, const struct problem *p,
                           const struct arrays *host);
