/* running_mean.c: exercise of stage 3, 10 points: a running mean that cannot overflow.
 *
 *     mu_k = (x_1 + ... + x_k) / k
 *
 * Task: fill mean_step(), which corrects the mean of k - 1 elements by element k.  On
 * paper there are several forms; in float some overflow: ten numbers of 1e38 add up to
 * more than a float holds, and so does the difference of 3e38 and -3e38.  mean.c of
 * stage 3 compares four: which would pass here?
 * May be assumed: k >= 1; no element is larger than 3e38 in size, of either sign.  mu = 0
 * before the first element.  A NaN makes the mean NaN.
 *
 * Point: cases near_max, opposite.
 * Time: 30 minutes.
 * Hint: write mu_k as mu_(k-1) plus a correction.
 * Hint: divide before you subtract.
 * Right or wrong:  make exercise 3 EX=running_mean */
#include "course/exercise.h"

/* The mean of k elements, from mu, the mean of the first k - 1, and x, the k-th. */
static float mean_step(float mu, float x, size_t k)
{
    /* solution begin */
    return mu + (x / (float)k - mu / (float)k);
    /* skeleton
    return mu;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    c->y[0][0] = mean_step(c->x[0][0], c->x[0][1], (size_t)c->n[0]);
}
