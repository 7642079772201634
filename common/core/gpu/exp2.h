/* exp2.h: the exponential instruction of the GPU. */
#ifndef EXP2_H
#define EXP2_H

#include "harness.h"
#include "gpu/cuda_check.h"

#include <math.h>

/* 2^x.  On the GPU one instruction, relative error about 2^-22, denormal results are 0;
 * 2^-inf = 0 exactly, 2^0 = 1 exactly. */
static HOST_DEVICE __forceinline__ float exp2_fast(float x)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

#endif
