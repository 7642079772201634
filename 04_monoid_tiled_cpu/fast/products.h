/* products.h: the two matrix products of a tile of attention.
 *
 *     s [keys, Br]  = k [keys, head_dim] . qt [head_dim, Br]              scores, transposed
 *     o [Br, cols]  = correction [Br] * o + p [keys, Br]^T . v [keys, cols]
 * Scores are kept transposed, one query a lane: then keys and values are used as they lie
 * in memory, and maximum, sum and exponential of a tile need no step across lanes. */
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "vector/vector.h"

#define Br 96 /* query rows of a tile: whole blocks of each kind (microkernel.c) */

struct products {
    /* Rows of s for n_keys keys, the columns of the first n_rows queries.
     *   k (n_keys, head_dim), rows k_stride apart   qt (head_dim, Br)   s (n_keys, Br) */
    void (*scores)(const float *k, size_t k_stride, size_t n_keys, size_t head_dim,
                   const float *qt, size_t n_rows, float *s);
    /* The first n_rows rows of o.
     *   p (n_keys, Br)   v (n_keys, cols), rows v_stride apart   correction (Br)
     *   o (Br, cols)
     * cols is a multiple of LANES. */
    void (*values)(const float *p, size_t n_keys, const float *v, size_t v_stride,
                   size_t cols, const float *correction, size_t n_rows, float *o);
};

/* microkernel.c: in blocks that stay in registers. */
extern const struct products block_products;

#endif
