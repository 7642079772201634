/* state.h: the running state (m, l) of stage 3 on a GPU: its step, its merge, and what it
 * makes of a score at the end. */
#pragma once

#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

/* m = max of the scores so far, l = sum of exp(x - m).  Empty: m = -INFINITY, l = 0. */
struct state { float m, l; };

static __device__ inline struct state empty_state(void)
{
    struct state s;
    s.m = -INFINITY;
    s.l = 0.0f;
    return s;
}

/* The state of one score.  A masked one is the empty state; NaN goes into l. */
static __device__ inline struct state state_of(float x)
{
    struct state s;
    s.m = x;
    s.l = exp_minus(x, shift_of(x));
    return s;
}

/* The state of two parts. */
static __device__ inline struct state merge(struct state a, struct state b)
{
    struct state all;
    all.m = fmaxf(a.m, b.m);
    const float shift = shift_of(all.m);
    all.l = a.l * exp_minus(a.m, shift) + b.l * exp_minus(b.m, shift);
    return all;
}

/* The merged state of all lanes of a warp, the same bits in each. */
static __device__ inline struct state lanes_merge(struct state s)
{
    struct state all;
    all.m = lanes_max<WARP>(s.m);
    all.l = lanes_sum<WARP>(s.l * exp_minus(s.m, shift_of(all.m)));
    return all;
}

/* From the state of the row to its results: softmax is exp(x - shift) * scale, logsoftmax is
 * x - shift - log_l.  A row that is all -inf has l = 0: 0, or -inf. */
struct normaliser { float shift, scale, log_l; int log; };

static __device__ inline struct normaliser normaliser_of(struct state s, int log)
{
    struct normaliser f;
    f.log = log;
    f.shift = shift_of(s.m);
    f.scale = s.l == 0.0f ? 0.0f : 1.0f / s.l;
    f.log_l = log && s.l != 0.0f ? logf(s.l) : 0.0f;
    return f;
}

static __device__ inline float normalise(struct normaliser f, float x)
{
    return f.log ? x - f.shift - f.log_l : exp_minus(x, f.shift) * f.scale;
}
