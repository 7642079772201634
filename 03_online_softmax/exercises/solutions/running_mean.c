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
 * Half of the points: cases near_max, opposite.
 * Time: 30 minutes.
 * Hint: write mu_k as mu_(k-1) plus a correction.
 * Hint: divide before you subtract.
 * Right or wrong:  make exercise 3 EX=running_mean */
/* forms of the task
 *     the mean of k - 1 elements by element k. | the mean of k elements by one more.
 *     k >= 1; | k >= 0;
 *     of k elements, from mu, | of k + 1 elements, from mu,
 *     the first k - 1, and x, the k-th. | the first k, and x, the next.
 *     (float)k | (float)(k + 1)
 *     k = 1; k <= n; | k = 0; k < n;
 *     x[k - 1] | x[k] */
#include "course/exercise.h"

/* >>> your part: functions, #include and #define may be added here */
/* The mean of k elements, from mu, the mean of the first k - 1, and x, the k-th. */
static float mean_step(float mu, float x, size_t k)
{
    /* solution begin */
    return mu + (x / (float)k - mu / (float)k);
    /* skeleton
    // Your code.
    return mu;
    solution end */
}
/* <<< end of your part */

/* *y = the mean of x (n). */
static float row(const float *x, float *y, size_t n)
{
    float mu = 0;
    for (size_t k = 1; k <= n; k++) mu = mean_step(mu, x[k - 1], k);
    return *y = mu;
}

static void mean(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < p->rows; i++)
        row((const float *)a->x + i * p->cols, (float *)a->y + i, p->cols);
}

PROGRAM(3, running_mean, "a running mean that does not overflow",
        .max_score = 3e38f, .does = {{OP_MEAN, mean}})
