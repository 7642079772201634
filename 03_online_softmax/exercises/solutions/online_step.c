/* online_step.c: exercise of stage 3, 10 points: one step of the online softmax.
 *
#if TASK == 0
 *     m_new = max(m, x, z)
 *     l     = l * exp(m - m_new) + exp(x - m_new) + exp(z - m_new)
 *
 * Task: fill online_step(), which takes two scores into the state (m, l) of a row, with one
 * correction of l.
 * May be assumed: nothing about the scores.  The empty state is m = -INFINITY, l = 0; a
 * masked score (-INFINITY) changes nothing, also when nothing came before it: one of the two
 * may be masked, or both; a NaN makes l NaN for good.
#else
 *     l = sum exp(x + shift),      shift = -max x
 *
 * Task: fill online_step(), which takes one score into the state (shift, l) of a row.
 * May be assumed: nothing about the scores.  The empty state is shift = INFINITY, l = 0; a
 * masked score (-INFINITY) changes nothing, also when it is the first; a NaN makes l NaN
 * for good.
#endif
 *
 * Half of the points: cases wide, shift_200, shift_up, low, mask_first, mask_row.
 * Time: 30 minutes.
 * Hint: how is l corrected when the maximum does not change?
 * Hint: infinity - infinity arises when everything so far is masked: return early.
 * Hint: test with != and ==, not with <, where a NaN has to get through.
 * Right or wrong:  make exercise 3 EX=online_step */
#include "course/exercise.h"

#if TASK == 0
/* The running state of a row: m = max of the scores so far, l = sum of exp(x - m). */
struct state { float m, l; };
#else
/* The running state of a row: shift = -(max of the scores so far), l = sum of exp(x + shift). */
struct state { float shift, l; };
#endif

/* >>> your part: functions, #include and #define may be added here */
#if TASK == 0
/* The state after two more scores. */
static struct state online_step(struct state s, float x, float z)
#else
/* The state after one more score. */
static struct state online_step(struct state s, float x)
#endif
{
    /* solution begin */
#if TASK == 0
    if (x == -INFINITY && z == -INFINITY) return s;
    float m_new = x > s.m ? x : s.m;
    m_new = z > m_new ? z : m_new;
    s.l *= expf(s.m - m_new);
    if (x != -INFINITY) s.l += expf(x - m_new);
    if (z != -INFINITY) s.l += expf(z - m_new);
    s.m = m_new;
#else
    if (x == -INFINITY) return s;
    float shift_new = -x < s.shift ? -x : s.shift;
    s.l = s.l * expf(shift_new - s.shift) + expf(x + shift_new);
    s.shift = shift_new;
#endif
    return s;
    /* skeleton
    // Your code.
    return s;
    solution end */
}
/* <<< end of your part */

static float row(const float *x, float *y, size_t n)
{
#if TASK == 0
    struct state s = {-INFINITY, 0};
    for (size_t j = 0; j < n; j += 2) s = online_step(s, x[j], j + 1 < n ? x[j + 1] : -INFINITY);
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? 0 : expf(x[j] - s.m) / s.l;
    return s.m + logf(s.l);
#else
    struct state s = {INFINITY, 0};
    for (size_t j = 0; j < n; j++) s = online_step(s, x[j]);
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? 0 : expf(x[j] + s.shift) / s.l;
    return logf(s.l) - s.shift;
#endif
}

PROGRAM(3, online_step, "maximum and denominator in one loop",
        .max_score = INFINITY, .masked_rows = 1, .by_row = {{OP_SOFTMAX, row}})
