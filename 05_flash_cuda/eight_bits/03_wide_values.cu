/* arch: sm_90a */
/* Eight bits, rung 3: scores in e4m3, weights and values in float16.
 *
 * Rounding the weights to 3 bits of fraction is most of the error that is left.  An e4m3 value is
 * exact in float16, so V is widened, and P V has float16's rounding and sums: half of the products
 * take twice as long, and nothing is transposed. */
#include "attention8.h"

EIGHT_BITS_RUNG(eight_bits_wide_values, "e4m3 scores, float16 weights", E4M3, e4m3, __half, 0);
