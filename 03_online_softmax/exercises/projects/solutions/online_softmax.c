/* online_softmax.c: project of stage 3, 40 points: softmax at the speed of memory.
 *
 * One way to do it: 16 lanes, each an online softmax of its own, merged at the end of the row; a
 * correction for each block of 64 vectors only; an exponential that the compiler can vectorise. */
#include "course/exercise.h"

enum { WIDTH = 16, BLOCK = 64 * WIDTH };

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

/* The running state of a row, in WIDTH lanes: lane k has seen x[k], x[k + WIDTH], ... */
struct lanes { float m[WIDTH], l[WIDTH]; };

/* Takes n elements, a multiple of WIDTH, into the state: the step of stage 3 in each lane, with one
 * maximum and one correction for all of them. */
static inline void push(struct lanes *s, const float *x, size_t n)
{
    float m[WIDTH], l[WIDTH], shift[WIDTH];
    for (int k = 0; k < WIDTH; k++) m[k] = s->m[k];
    for (size_t j = 0; j < n; j += WIDTH)
        for (int k = 0; k < WIDTH; k++) m[k] = x[j + k] > m[k] ? x[j + k] : m[k];
    for (int k = 0; k < WIDTH; k++) {
        shift[k] = m[k] == -INFINITY ? 0 : m[k];
        l[k] = s->l[k] * exp_of(s->m[k] - shift[k]);
    }
    for (size_t j = 0; j < n; j += WIDTH)
        for (int k = 0; k < WIDTH; k++) l[k] += exp_of(x[j + k] - shift[k]);
    for (int k = 0; k < WIDTH; k++) s->m[k] = m[k], s->l[k] = l[k];
}

/* Softmax of one row: one loop for maximum and sum, one for the quotients.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    struct lanes s;
    float rest[WIDTH], m = -INFINITY, l = 0;
    size_t whole = n / WIDTH * WIDTH;
    for (size_t k = 0; k < WIDTH; k++) {
        s.m[k] = -INFINITY, s.l[k] = 0;
        rest[k] = whole + k < n ? x[whole + k] : -INFINITY;
    }
    for (size_t j = 0; j < whole; j += BLOCK) push(&s, x + j, whole - j < BLOCK ? whole - j : BLOCK);
    push(&s, rest, WIDTH);

    for (int k = 0; k < WIDTH; k++) m = s.m[k] > m ? s.m[k] : m;
    if (m == -INFINITY) m = 0;
    for (int k = 0; k < WIDTH; k++) l += s.l[k] * exp_of(s.m[k] - m);
    float factor = l == 0 ? 0 : 1 / l;
    for (size_t j = 0; j < n; j++) y[j] = exp_of(x[j] - m) * factor;
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

PROGRAM(3, online_softmax, "softmax at the speed of memory",
        .max_score = INFINITY, .masked_rows = 1, .does = {{OP_SOFTMAX, softmax}})
