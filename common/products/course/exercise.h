/* exercise.h: how an exercise is judged.  Its file ends with answer(): the judge, another process, sends
 * the arguments of one call, answer() hands them to the student's function, and what that wrote goes
 * back.  Where the student asks for something, for the next key say, ask() asks the judge. */
#ifndef EXERCISE_H
#define EXERCISE_H

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { MOST_NUMBERS = 16, MOST_ARRAYS = 12 };

/* n: numbers; x: inputs; y: outputs, which hold large numbers on entry. */
struct call {
    long n[MOST_NUMBERS];
    const float *x[MOST_ARRAYS];
    float *y[MOST_ARRAYS];
};

#ifdef __cplusplus
extern "C" {
#endif

void answer(const struct call *c);

/* A question to the judge: what (a letter), two numbers, some floats.  Its answer has n_to floats.
 * Returns 0 where the judge has nothing more to give. */
int ask(int what, long a, long b, const float *send, size_t n_send, float *to, size_t n_to);

#ifdef __cplusplus
}
#endif

/* One head as a struct head of stage.h:  n: seqlen_q, seqlen_k, head_dim, head_dim_v, causal, has_bias;
 * x: q, k, v, bias, scale (1).  Unused arrays have length 0. */
#ifdef STAGE_H
static inline struct head head_of(const struct call *c)
{
    struct head h = {.q = c->x[0], .k = c->x[1], .v = c->x[2]};
    h.bias = c->n[5] ? c->x[3] : NULL;
    h.seqlen_q = (size_t)c->n[0], h.seqlen_k = (size_t)c->n[1];
    h.head_dim = (size_t)c->n[2], h.head_dim_v = (size_t)c->n[3];
    h.scale = c->x[4][0];
    h.last = (ptrdiff_t)c->n[1] - (c->n[4] ? (ptrdiff_t)c->n[0] : 1);
    return h;
}
#endif

#endif
