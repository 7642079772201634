/* built_for.c: which instructions the compiler was told it may use, by the macros that it
 * defines.  Data only: this file is compiled with the flags of all others, so its code might
 * need what it is to be asked about. */
#include "program/processor.h"

const unsigned built_for = 0
#ifdef __SSE4_2__
    | 1 << 0
#endif
#ifdef __POPCNT__
    | 1 << 1
#endif
#ifdef __AVX__
    | 1 << 2
#endif
#ifdef __AVX2__
    | 1 << 3
#endif
#ifdef __FMA__
    | 1 << 4
#endif
#ifdef __BMI2__
    | 1 << 5
#endif
#ifdef __AVX512F__
    | 1 << 6
#endif
#ifdef __AVX512BW__
    | 1 << 7
#endif
#ifdef __AVX512DQ__
    | 1 << 8
#endif
#ifdef __AVX512VL__
    | 1 << 9
#endif
#ifdef __AVX512VBMI__
    | 1 << 10
#endif
    ;
