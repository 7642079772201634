/* gradient.c: the gradient of one row for the figures, by stage 4's pair_of(). */
#include "figures.h"

#include "../../../../04_monoid_tiled_cpu/monoid.h"
#include "../../../../04_monoid_tiled_cpu/variants/gradient_pair.h"

/* Where the row's arrays lie in the arena, in floats. */
enum { VALUES = 0, P_ROW = 64, DS_ROW = 128, D_OUT = 192 };

/* One query that is 1, keys that are the scores, values of one column, and do = 1: P and dS of every
 * key, then D and o.  Without D: as if o, and with it D = do . o, were 0. */
void EXPORT(gradient_row)(int n, int without_D)
{
    struct problem p = {.op = OP_BACKWARD, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = 1, .seqlen_k = (size_t)n, .head_dim = 1, .head_dim_v = 1,
                        .scale = 1};
    float one = 1, zero = 0, o, lse;
    struct aggregate x = {.o = &o, .d = 1};
    aggregate_unit(&x);
    for (int j = 0; j < n; j++)
        if (scores[j] != -INFINITY) aggregate_push(&x, scores[j], arena + VALUES + j);
    aggregate_finish(&x, &o, &lse);
    struct gradient g = {.q = &one, .k = scores, .v = arena + VALUES, .d_o = &one,
                         .o = without_D ? &zero : &o, .lse = &lse};
    arena[D_OUT] = D_of(&p, &g, 0);
    for (size_t j = 0; j < p.seqlen_k; j++) {
        struct pair pair = pair_of(&p, &g, 0, j, arena[D_OUT]);
        arena[P_ROW + j] = pair.P;
        arena[DS_ROW + j] = pair.dS;
    }
    arena[D_OUT + 1] = o;
}
