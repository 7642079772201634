/* Stage 4: attention of some keys is a partial result, and partial results can be merged.
 *
 *     (o1, l1, m1) . (o2, l2, m2) = (f1 o1 + f2 o2, f1 l1 + f2 l2, m)
 *     m = max(m1, m2),   f1 = e^(m1 - m),   f2 = e^(m2 - m)
 *
 * This file is the rung `fold`: stage 3's loops, whose step now has a name.  monoid.h has it:
 * aggregate_push takes one more key into (o, l, m), aggregate_merge takes many (the formula
 * above).  The files in rungs/ change one thing each: make diff RUNG=chunk */
#include "monoid.h"
#include "score.h"
#include "stage.h"

/* Softmax of one row, two loops.
 *     all = (1, x_0) . (1, x_1) . ...     the monoid's pair (l, m) alone, without o
 *     y_j = exp(x_j - m) / l
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * Returns lse = m + log(l).  A row that is all -INFINITY gives l = 0, y = 0, lse = -INFINITY.
 * Reads 2n floats, writes n. */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum and denominator */
    struct se all = se_unit();
    for (size_t j = 0; j < n; j++) {
        all = se_merge(all, se_lift(x[j]));
        watch("m", j, all.m);
        watch("l", j, all.l);
    }

    /* loop 2: divide */
    watch_loop();
    for (size_t j = 0; j < n; j++) {
        y[j] = all.l == 0 ? 0 : expf(x[j] - all.m) / all.l;
        watch("y", j, y[j]);
    }
    return se_lse(all);
}

/* Attention of one query: a fold over its keys; no score is stored.
 * Returns lse = m + log(l).  A masked key is left out; if there is no other, o (head_dim_v) = 0
 * and lse = -INFINITY.  Reads K and V once, writes o once. */
static float attention_row(const struct head *h, size_t i, float *o)
{
    struct aggregate x = {.o = o, .d = h->head_dim_v};
    float lse;
    aggregate_unit(&x);
    for (size_t j = 0; j < visible(h, i); j++) {
        float correction = aggregate_push(&x, score(h, i, j), v_row(h, j));
        watch("m", j, x.m);
        watch("correction", j, correction);
        watch("l", j, x.l);
        watch_row("o", j, x.o, x.d);
    }
    aggregate_finish(&x, o, &lse); /* o / l, and m + log l */
    return lse;
}

/* Attention of one head: query by query. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, o_row(h, i));
}
