/* 5_simd.c: the dot product in vectors.
 *
 * The compiler already computes o in vectors, because its columns do not depend on each other.  A dot
 * product is one sum, each addition waits for the one before, and float additions may not be
 * reordered unless the program says so.  Here it says so.  Nothing else changes. */
#define EIGHT_SUMS
#define BESIDE_RUNG_4
#include "4_threads.c"

const struct variant simd = {
    .name = "simd", .idea = "8 sums for each dot product",
    .all_cores = 1, RUNG, .workspace = workspace,
    .does = {{OP_ATTENTION, attention}},
};
