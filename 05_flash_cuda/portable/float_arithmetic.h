/* float_arithmetic.h: what rungs 1 and 2 compute in float32: multiply-adds of four floats,
 * and the maximum and the sum of a row that neighbouring lanes share. */
#pragma once

#include "harness.h"
#include "gpu/cuda_check.h"

/* sum + x . y, one column after the other. */
static __device__ __forceinline__ float add_dot(float sum, float4 x, float4 y)
{
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    return fmaf(x.w, y.w, sum);
}

/* o = o + p v */
static __device__ __forceinline__ void add_scaled(float4 *o, float p, float4 v)
{
    o->x = fmaf(p, v.x, o->x);
    o->y = fmaf(p, v.y, o->y);
    o->z = fmaf(p, v.z, o->z);
    o->w = fmaf(p, v.w, o->w);
}

/* o = factor o */
static __device__ __forceinline__ void rescale(float4 *o, float factor)
{
    o->x *= factor;
    o->y *= factor;
    o->z *= factor;
    o->w *= factor;
}

/* The maximum of x among LANES neighbouring lanes, a power of two.  In each step a lane
 * reads the x of the lane whose number differs in one bit.  After the last step all of them
 * have the result. */
template <int LANES> static __device__ __forceinline__ float lanes_max(float x)
{
#pragma unroll
    for (int flip = LANES / 2; flip; flip /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, flip));
    return x;
}

/* The sum in the same way.  (gpu/gpu_rows.h has both for stages 1 to 3.) */
template <int LANES> static __device__ __forceinline__ float lanes_sum(float x)
{
#pragma unroll
    for (int flip = LANES / 2; flip; flip /= 2) x += __shfl_xor_sync(~0u, x, flip);
    return x;
}

/* c tanh(s / c), with a relative error however large c is: below 2^-12 tanh x is x to 2^-25. */
static __forceinline__ __device__ float capped(float s, float c)
{
    const float x = s / c;
    return fabsf(x) < 0x1p-12f ? s : c * tanhf(x);
}
