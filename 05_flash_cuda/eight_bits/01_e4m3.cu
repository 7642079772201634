/* arch: sm_90a */
/* Eight bits, rung 1: both products in e4m3 (FlashAttention-3 has the same idea).
 *
 * wgmma multiplies twice as many numbers of 8 bits per cycle as of 16.  What changes is in
 * attention8.h: where the scales go, V transposed (values.h), weights up to 448 with 3 bits of
 * fraction.  The rounding of the weights is most of the error on random values.  With values of one
 * sign it is the sum: the tensor cores keep 13 bits of fraction of it (rung 2). */
#include "attention8.h"

EIGHT_BITS_RUNG(eight_bits_e4m3, "both products in e4m3", E4M3, e4m3, e4m3, 0);
