/* eight_bits.h: attention from codes of 8 bits, and what is done to q and k before they are rounded. */
#ifndef STAGE_4_EIGHT_BITS_H
#define STAGE_4_EIGHT_BITS_H

#include "stage.h"

/* What a kernel chooses.  As on a tensor core, products are exact. */
struct way {
    float largest;      /* the weight of the largest score, before weights are rounded: 1, 256 */
    float (*weight)(float); /* rounds a weight */
    int bits_of_s, bits_of_o; /* fraction bits of a sum of products; 0: those of float */
    size_t tiles;       /* whose sum is kept in bits_of_o before it is added to o in float */
};

/* Attention of a head whose q, k and v are codes, as floats: h->scale times q . k is the score.
 * o is a sum of codes of v.   tile (head_dim_v + 1, TILE_KEYS): to work in */
enum { TILE_KEYS = 64 };
void attention_of_codes(const struct head *h, const struct way *way, float *tile);

/* A weight in e4m3. */
float weight_in_e4m3(float x);

/* k_j -= the mean key: every score of query i falls by q_i . mean, and softmax does not change when a
 * constant is added to a row.  lse does.   k (n, d) */
void smooth_keys(float *k, size_t n, size_t d);

/* x_i = H x_i / sqrt(d), H the Hadamard matrix of signs, d a power of two: rotated alike, q and k have
 * the same products.  A large column becomes a part of all.   x (n, d) */
void rotate_rows(float *x, size_t n, size_t d);

#endif
