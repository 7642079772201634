/* peak.c: multiply-adds as fast as this machine does them, by n[0] threads, n[1] rounds each.  Linked with child.c
 * it is what the judge compares a student's speed with, in the same minute. */
#include <pthread.h>

#include "course/exercise.h"

enum { SUMS = 112 }; /* independent: 14 vectors of 8 floats, 7 of 16 */
static long rounds;

static void *multiply(void *sum)
{
    float a[SUMS], x = 0.999f;
    for (int i = 0; i < SUMS; i++) a[i] = (float)i;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++) a[i] = fmaf(a[i], x, 0.001f);
    for (int i = 0; i < SUMS; i++) *(float *)sum += a[i];
    return NULL;
}

void answer(const struct call *c)
{
    pthread_t thread[64];
    rounds = c->n[1];
    for (long t = 0; t < c->n[0]; t++) {
        c->y[0][t] = 0;
        if (t) pthread_create(&thread[t], NULL, multiply, &c->y[0][t]);
    }
    multiply(&c->y[0][0]);
    for (long t = 1; t < c->n[0]; t++) pthread_join(thread[t], NULL);
}
