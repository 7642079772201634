/* reference_keys.h: the keys and values of a problem in double, ready for the reference. */
#ifndef REFERENCE_KEYS_H
#define REFERENCE_KEYS_H

#include "verification/reference.h"

#define LANES 64 /* keys whose scores are computed together */

/* All keys and values in double. */
struct keys {
    size_t stride;  /* seqlen_k rounded up to LANES */
    double *kt;     /* [batch, heads_kv, head_dim, stride]: keys are contiguous */
    double *v;      /* [batch, heads_kv, seqlen_k, head_dim_v] */
    double *v_max;  /* [batch, heads_kv, seqlen_k] largest finite |v_jc| */
};

/* Those of p after its updates; clears *v_is_finite when v holds NaN or infinity. */
struct keys keys_new(const struct problem *p, const struct arrays *a, int *v_is_finite);
void keys_free(struct keys *keys);

/* dot_j = q.k_j and mass_j = sum_t |q_t k_jt| for LANES keys.
 *   q (d)   kt (d, stride), its first LANES columns */
void dot_block(const double *q, size_t d, const double *kt, size_t stride, double *dot,
               double *mass);

#endif
