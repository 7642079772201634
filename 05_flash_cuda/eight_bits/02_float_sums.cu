/* arch: sm_90a */
/* Eight bits, rung 2: true sums in float every 8 tiles of keys.
 *
 * The tensor cores add e4m3 products to o with 13 bits of fraction, and drop the rest: what a long
 * row adds at its end is lost.  Partial results merge (stage 4), so o starts from 0 every 8 tiles
 * and is added to sums in float.  No registers are left for these: they lie in shared memory, where
 * o waits to be stored later.  notes/eight_bits.md has price and error for 1, 2, 4 and 8 tiles. */
#include "attention8.h"

#ifndef TILES_OF_A_SUM
#define TILES_OF_A_SUM 8
#endif
EIGHT_BITS_RUNG(eight_bits_sums, "sums in float every 8 tiles", E4M3, e4m3, e4m3, TILES_OF_A_SUM);
