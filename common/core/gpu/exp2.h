/* exp2.h: the GPU's instructions for exponentials and logarithms, and sums over the lanes of a row. */
#pragma once

#include "harness.h"
#include "gpu/cuda_check.h"

#include <math.h>

#define LOG2E 1.44269504f

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

/* log2(x) for x in [1, 2], error 2^-22; 1 / x for normal x, one unit in the last place. */
static __device__ __forceinline__ float log2_fast(float x)
{
#ifdef __CUDACC__
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return log2f(x);
#endif
}

static __device__ __forceinline__ float reciprocal_fast(float x)
{
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

/* The four lanes that share a row: their maximum, their sum. */
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* log(2^mc l).  The exponent of l goes to mc, with which it nearly cancels.  What is left
 * is in [1, 2), where the fast logarithm is right to 2^-22.  NaN stays NaN. */
static __device__ __forceinline__ float natural_log(float mc, float l)
{
    int bits = __float_as_int(l);
    float exponent = (float)((bits >> 23) - 127);
    float fraction = log2_fast(__int_as_float((bits & 0x7fffff) | 0x3f800000));
    return l == 0.0f ? -INFINITY : (mc + exponent + fraction) * 0.69314718f + (l - l);
}
