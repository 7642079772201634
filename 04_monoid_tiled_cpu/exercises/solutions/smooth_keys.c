/* smooth_keys.c: exercise of stage 4, 15 points: keys without their mean.
 *
 *     k'_j = k_j - mean,  mean = sum_j k_j / n
 *     s'_ij = scale q_i . k'_j = s_ij - shift_i,  shift_i = scale q_i . mean
 *
 * Softmax does not change when a constant is added to a row, so o stays; lse_i falls by shift_i.  8 bits
 * hold k' with smaller steps than k where the keys have something in common (notes/eight_bits.md).
 * Task: fill smooth_keys(): write k' and, for each query, the shift.
 * May be assumed: at least one key.  Add the mean up in double: some keys are far from 0.
 *
 * Point: cases one_key, random, offset.
 * Time: 30 minutes.
 * Hint: one column of k at a time: its mean first, then the differences.
 * Hint: the mean of a column adds scale q_i[d] mean to the shift of each query i.
 * Right or wrong:  make exercise 4 EX=smooth_keys */
#include "stage.h"
#include "course/exercise.h"

/* k_smooth (seqlen_k, head_dim) = k'.  shift (seqlen_q): what each query's scores lose. */
static void smooth_keys(const struct head *h, float *k_smooth, float *shift)
{
    /* solution begin */
    for (size_t i = 0; i < h->seqlen_q; i++) shift[i] = 0;
    for (size_t d = 0; d < h->head_dim; d++) {
        double sum = 0;
        for (size_t j = 0; j < h->seqlen_k; j++) sum += k_row(h, j)[d];
        float mean = (float)(sum / (double)h->seqlen_k);
        for (size_t j = 0; j < h->seqlen_k; j++) k_smooth[j * h->head_dim + d] = k_row(h, j)[d] - mean;
        for (size_t i = 0; i < h->seqlen_q; i++) shift[i] += h->scale * q_row(h, i)[d] * mean;
    }
    /* skeleton
    (void)h, (void)k_smooth, (void)shift;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = head_of(c);
    smooth_keys(&h, c->y[0], c->y[1]);
}
