/* backend.h: the GPU as the library sees it.
 *
 * backend_gpu.cu, compiled by nvcc, is the real one; backend_none.c stands in where the
 * library is built without CUDA.  The tests use backend_gpu.cu compiled for the CPU, whose
 * kernels are executed there. */
#pragma once

#include "five_steps.h"
#include "harness.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "problem/arrays.h"

/* Compute capability x 10 of the current device.  0 with *why: there is none. */
int backend_arch(const char **why);

/* work(context), whose code it returns.  A CUDA error in it does not return there but ends the
 * call: FIVE_STEPS_CUDA, and the message is in *error. */
int backend_guard(int (*work)(void *context), void *context, struct five_steps_error *error);

const char *backend_built_with(void);

/* The others are 0 in a library without CUDA, where no problem is a GPU's. */
#pragma GCC visibility push(hidden)
#define OF_A_GPU __attribute__((weak))

/* The kernels; of those that support a problem the last is taken.  NULL: not compiled. */
extern OF_A_GPU const struct variant *const backend_attention[], *const backend_softmax[];
extern OF_A_GPU const size_t n_backend_attention, n_backend_softmax;

/* Attention without keys: o = 0 and lse = -INFINITY, or the sink. */
OF_A_GPU void backend_no_keys(const struct problem *p, const struct arrays *a);
OF_A_GPU void backend_clear(void *array, size_t bytes, void *stream); /* 0 in every byte */
OF_A_GPU void backend_merge(enum dtype type, const struct five_steps_merge_problem *p);

/* q, k or v of 8 bits (i) of p as numbers of another type, one row after another; those of k times
 * the scales of q too.  Rows beyond a sequence's length are 0. */
OF_A_GPU void backend_widen(const struct problem *p, const struct arrays *a, enum array i, void *to,
                            enum dtype type);
OF_A_GPU void backend_quantise(enum dtype type, const struct five_steps_quantise_problem *p);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
