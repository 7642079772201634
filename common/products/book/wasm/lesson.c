/* lesson.c: a lesson for the figures, by its own functions.  It is compiled once for each of the
 * stages 1 to 3, with STAGE the number and LESSON its variants.c. */
#include "figures.h"

#include LESSON
#include "problem/heads.h"

int OF_STAGE(row)(int n) { return traced_row(softmax_row, n); }

double OF_STAGE(bytes)(const struct problem *p) { return cost(p).bytes; }

void OF_STAGE(attention)(const struct problem *p, const struct arrays *a)
{
    struct head h = head_of(p, a, 0);
    h.s = a->workspace;
    h.p = h.s + p->seqlen_q * p->seqlen_k;
    attention_head(&h);
}
