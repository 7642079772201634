/* arch: sm_90a */
/* Eight bits, rung 4: scores in int8, as SageAttention has them, and values of int8 or e4m3, widened.
 *
 * int8 spreads its 255 numbers evenly: for numbers of about the same size its rounding is a third of
 * e4m3's, and sums of products are exact.  One large channel spoils it.  In keys it is mostly the same
 * for all keys, and softmax does not change when a constant is added to a row: who quantises subtracts
 * the mean key first (notes/eight_bits.md; lse then lacks scale q . mean). */
#include "attention8.h"

EIGHT_BITS_RUNG(eight_bits_int8, "int8 scores, float16 weights", INT8, int8, __half, 0);
