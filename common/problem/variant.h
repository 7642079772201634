/* variant.h: what the harness asks of a variant before and while running it. */
#ifndef VARIANT_H
#define VARIANT_H

#include "stage.h"

const char *op_name(enum op op);          /* "softmax", ... as in the CSV */
const char *dtype_name(enum dtype dtype); /* "f32", "f16", "bf16" */
size_t dtype_size(enum dtype dtype);      /* bytes */
const char *device_name(enum device device); /* "cpu", "gpu", "cpu-executed" */

/* The form of v that this machine runs: its GPU twin where a GPU is present and allowed,
 * else v itself. */
const struct variant *variant_here(const struct variant *v);

/* NULL if v can run on this machine, else why not. */
const char *variant_unavailable(const struct variant *v);

/* NULL if v supports p, else what is not supported, to complete
 * "variant NAME does not support ...".  The text lives until the next call. */
const char *variant_refuses(const struct variant *v, const struct problem *p);

/* Query-key pairs that the flop count of p credits: all, exactly half when causal and
 * square, the visible ones otherwise (design: results). */
double problem_pairs(const struct problem *p);
double problem_flops(const struct problem *p); /* 0 for softmax */

/* Element counts of each array of p (0 when the operation does not use it, SIZE_MAX when
 * the count is no size_t: no array can be that large). */
struct sizes { size_t x, w, y, q, k, v, bias, o, lse, k_new, v_new, index; };
struct sizes problem_sizes(const struct problem *p);

#endif
