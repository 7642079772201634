/* products.h: the two matrix products of a panel of queries and a tile of keys.
 *
 *     s [keys, PANEL]  = k [keys, head_dim] . qt [head_dim, PANEL]        scores, transposed
 *     o [PANEL, cols]  = correction [PANEL] * o + p [keys, PANEL]^T . v [keys, cols]
 * Scores are kept transposed, one query per lane: then keys and values are used as they lie
 * in memory, and maximum, sum and exponential of a tile need no step across lanes. */
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "vector/vector.h"

#define PANEL 48 /* queries side by side: whole blocks of each kind (microkernel.c) */

struct products {
    /* Rows of s for n_keys keys, the columns of the first n_rows queries.
     *   k (n_keys, head_dim), rows k_stride apart   qt (head_dim, PANEL)   s (n_keys, PANEL) */
    void (*scores)(const float *k, size_t k_stride, size_t n_keys, size_t head_dim,
                   const float *qt, size_t n_rows, float *s);
    /* The first n_rows rows of o.
     *   p (n_keys, PANEL)   v (n_keys, cols), rows v_stride apart   correction (PANEL)
     *   o (PANEL, cols)
     * cols is a multiple of LANES. */
    void (*values)(const float *p, size_t n_keys, const float *v, size_t v_stride,
                   size_t cols, const float *correction, size_t n_rows, float *o);
};

/* microkernel.c: in blocks that stay in registers. */
extern const struct products block_products;

#endif
