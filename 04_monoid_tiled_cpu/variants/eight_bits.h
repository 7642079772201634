/* eight_bits.h: attention from codes of 8 bits. */
#pragma once

#include "stage.h"

/* What a kernel chooses.  As on a tensor core, products are exact. */
struct way {
    float largest;      /* the weight of the largest score, before weights are rounded: 1, 256 */
    float (*weight)(float); /* rounds a weight */
    int bits_of_s, bits_of_o; /* fraction bits of a sum of products; 0: those of float */
    size_t tiles;       /* whose sum is kept in bits_of_o before it is added to o in float */
};

/* Attention of a head whose q, k and v are codes, as floats, on all cores: h->scale times q . k is the
 * score.  o is a sum of codes of v. */
enum { TILE_KEYS = 64 };
void attention_of_codes(const struct head *h, const struct way *way);

/* A weight in e4m3. */
float weight_in_e4m3(float x);
