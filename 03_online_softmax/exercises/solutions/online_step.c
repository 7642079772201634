/* online_step.c: exercise of stage 3, 10 points: one step of the online softmax.
 *
#if TASK == 0
 *     m_new = max(m, x)
 *     l     = l * exp(m - m_new) + exp(x - m_new)
 *
 * Task: fill online_step(), which takes one score into the state (m, l) of a row.
 * May be assumed: nothing about the scores.  The empty state is m = -INFINITY, l = 0; a
 * masked score (-INFINITY) changes nothing, also when it is the first; a NaN makes l NaN
 * for good.
#elif TASK == 1
 *     l = sum exp(x + shift),      shift = -max x
 *
 * Task: fill online_step(), which takes one score into the state (shift, l) of a row.
 * May be assumed: nothing about the scores.  The empty state is shift = INFINITY, l = 0; a
 * masked score (-INFINITY) changes nothing, also when it is the first; a NaN makes l NaN
 * for good.
#elif TASK == 2
 *     m_new = max(m, x, z)
 *     l     = l * exp(m - m_new) + exp(x - m_new) + exp(z - m_new)
 *
 * Task: fill online_step(), which takes two scores into the state (m, l) of a row, with one
 * correction of l.
 * May be assumed: nothing about the scores.  The empty state is m = -INFINITY, l = 0; a
 * masked score (-INFINITY) changes nothing, also when nothing came before it: one of the two
 * may be masked, or both; a NaN makes l NaN for good.
#endif
 *
 * Half of the points: cases wide, shift_200, shift_up, low, large, mask_first, mask_row.
 * Right or wrong:  make exercise 3 EX=online_step */
#include "harness.h"

#if TASK == 1
/* The running state of a row: shift = -(max of the scores so far), l = sum of exp(x + shift). */
struct state { float shift, l; };
#else
/* The running state of a row: m = max of the scores so far, l = sum of exp(x - m). */
struct state { float m, l; };
#endif

/* >>> your part: functions, #include and #define may be added here */
#if TASK == 2
/* The state after two more scores. */
static struct state online_step(struct state s, float x, float z)
#else
/* The state after one more score. */
static struct state online_step(struct state s, float x)
#endif
{
    /* solution begin */
#if TASK == 0
    if (x == -INFINITY) return s;
    float m_new = x > s.m ? x : s.m;
    s.l = s.l * expf(s.m - m_new) + expf(x - m_new);
    s.m = m_new;
    return s;
#elif TASK == 1
    if (x == -INFINITY) return s;
    float shift_new = -x < s.shift ? -x : s.shift;
    s.l = s.l * expf(shift_new - s.shift) + expf(x + shift_new);
    s.shift = shift_new;
    return s;
#else
    if (x == -INFINITY && z == -INFINITY) return s;
    float m_new = x > s.m ? x : s.m;
    m_new = z > m_new ? z : m_new;
    s.l *= expf(s.m - m_new);
    if (x != -INFINITY) s.l += expf(x - m_new);
    if (z != -INFINITY) s.l += expf(z - m_new);
    s.m = m_new;
    return s;
#endif
    /* skeleton
    // Your code.
#if TASK == 2
    (void)x, (void)z;
#else
    (void)x;
#endif
    return s;
    solution end */
}
/* <<< end of your part */

/* Softmax of one row, two loops.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
#if TASK == 0
    struct state s = {-INFINITY, 0};
    for (size_t j = 0; j < n; j++) s = online_step(s, x[j]);
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? 0 : expf(x[j] - s.m) / s.l;
#elif TASK == 1
    struct state s = {INFINITY, 0};
    for (size_t j = 0; j < n; j++) s = online_step(s, x[j]);
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? 0 : expf(x[j] + s.shift) / s.l;
#else
    struct state s = {-INFINITY, 0};
    for (size_t j = 0; j < n; j += 2) s = online_step(s, x[j], j + 1 < n ? x[j + 1] : -INFINITY);
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? 0 : expf(x[j] - s.m) / s.l;
#endif
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static const struct variant exercise = {
    .name = "online_step",
    .idea = "maximum and denominator in one loop",
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .does = {{OP_SOFTMAX, softmax}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 3,
    .name = "exercises/online_step",
    .idea = "maximum and denominator in one loop",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
