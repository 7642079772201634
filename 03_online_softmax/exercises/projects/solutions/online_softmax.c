/* online_softmax.c: project of stage 3, 40 points: softmax at the speed of memory.
 *
 * One way to do it: three loops over a row that stays in the cache, 16 lanes, and an
 * exponential that the compiler can vectorise.
 *
 * Speed: softmax:1024x4096, half of the points at 10 % of copy, all at 25 %.
 * Judged like: safe_row
 * Right, and how fast:  make project EX=online_softmax */
#include "harness.h"

enum { WIDTH = 16 };

/* e^x for x <= 0 in plain C that a compiler turns into vector instructions: x = n log 2 + r,
 * a polynomial in r, and n added to the exponent.  Below -87 it gives 0; a NaN stays. */
static inline float exp_of(float x)
{
    float t = x * 1.44269504f + 12582912.0f, n = t - 12582912.0f;
    float r = fmaf(n, -0.693145752f, x);
    r = fmaf(n, -1.42860677e-6f, r);
    float e = 1.3888889e-3f;
    e = fmaf(e, r, 8.3333333e-3f);
    e = fmaf(e, r, 4.1666667e-2f);
    e = fmaf(e, r, 1.6666667e-1f);
    e = fmaf(e, r, 0.5f);
    e = fmaf(e, r, 1.0f);
    e = fmaf(e, r, 1.0f);
    union { float f; int i; } bits = {.f = t}, power;
    power.i = (bits.i - 0x4b400000 + 127) << 23;
    e *= power.f;
    return x < -87.0f ? 0.0f : e;
}

/* Softmax of one row: maximum, then terms and their sum in y, then the quotients.  The row
 * stays in the first-level cache between the loops.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    float ms[WIDTH], ls[WIDTH] = {0}, m = -INFINITY, l = 0;
    size_t j = 0, whole = n / WIDTH * WIDTH;
    for (int k = 0; k < WIDTH; k++) ms[k] = -INFINITY;
    for (j = 0; j < whole; j += WIDTH)
        for (int k = 0; k < WIDTH; k++) ms[k] = x[j + k] > ms[k] ? x[j + k] : ms[k];
    for (; j < n; j++) m = x[j] > m ? x[j] : m;
    for (int k = 0; k < WIDTH; k++) m = ms[k] > m ? ms[k] : m;
    float shift = m == -INFINITY ? 0 : m;
    for (j = 0; j < whole; j += WIDTH)
        for (int k = 0; k < WIDTH; k++) ls[k] += y[j + k] = exp_of(x[j + k] - shift);
    for (; j < n; j++) l += y[j] = exp_of(x[j] - shift);
    for (int k = 0; k < WIDTH; k++) l += ls[k];
    float factor = l == 0 ? 0 : 1 / l;
    for (j = 0; j < n; j++) y[j] *= factor;
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static const struct variant project = {
    .name = "online_softmax",
    .idea = "softmax at the speed of memory",
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .does = {{OP_SOFTMAX, softmax}},
};

static const struct variant *const variants[] = {&project, NULL};

static const struct stage stage = {
    .number = 3,
    .name = "projects/online_softmax",
    .idea = "softmax at the speed of memory",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
