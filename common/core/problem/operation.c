/* operation.c: the operations, and what follows from their entries. */
#include "problem/operation.h"

#include <string.h>

#include "problem/layout.h"

/* What every operation on heads reads, as far as the problem's features say so; what scan
 * and update, which have one query, read. */
#define Q_K_V (HAS(ARRAY_Q) | HAS(ARRAY_K) | HAS(ARRAY_V) | HAS(ARRAY_BIAS) | \
               HAS(ARRAY_SINKS) | HAS(ARRAY_CU_SEQLENS_Q) | HAS(ARRAY_CU_SEQLENS_K) | \
               HAS(ARRAY_SEQLENS_K) | HAS(ARRAY_PAGE_TABLE))
#define NEW_ROWS (HAS(ARRAY_INDEX) | HAS(ARRAY_K_NEW) | HAS(ARRAY_V_NEW))
#define Q_K_V_FILES (Q_K_V & ~(HAS(ARRAY_SEQLENS_K) | HAS(ARRAY_PAGE_TABLE)))
#define SCALES (HAS(ARRAY_Q_SCALE) | HAS(ARRAY_K_SCALE) | HAS(ARRAY_V_SCALE))
#define X_Y (HAS(ARRAY_X) | HAS(ARRAY_Y))
#define X_W_Y (X_Y | HAS(ARRAY_W))
#define GRADIENTS (HAS(ARRAY_DQ) | HAS(ARRAY_DK) | HAS(ARRAY_DV) | HAS(ARRAY_DSINKS) | \
                   HAS(ARRAY_DBIAS))
#define O_LSE (HAS(ARRAY_O) | HAS(ARRAY_LSE))

const struct operation operations[] = {
    [OP_SOFTMAX] = {.name = "softmax", .family = ON_ROWS, .unit = "elem", .is_benched = 1,
                    .inputs = HAS(ARRAY_X), .outputs = HAS(ARRAY_Y), .files = X_Y,
                    .results = AS_X},
    [OP_LOGSOFTMAX] = {.name = "logsoftmax", .family = ON_ROWS, .unit = "elem",
                       .is_benched = 1, .inputs = HAS(ARRAY_X), .outputs = HAS(ARRAY_Y),
                       .files = X_Y, .results = AS_X},
    [OP_ATTENTION] = {.name = "attention", .family = ON_HEADS, .unit = "score",
                      .is_benched = 1, .inputs = Q_K_V | SCALES, .outputs = O_LSE,
                      .files = Q_K_V_FILES | O_LSE, .weighed = HAS(ARRAY_V)},
    [OP_LOGSOFTMAX_ATTENTION] = {.name = "logsoftmax_attention", .family = ON_HEADS,
                                 .unit = "score", .inputs = Q_K_V, .outputs = O_LSE,
                                 .files = Q_K_V_FILES | O_LSE, .weighed = HAS(ARRAY_V)},
    [OP_MEAN] = {.name = "mean", .family = ON_ROWS, .unit = "elem", .inputs = HAS(ARRAY_X),
                 .outputs = HAS(ARRAY_Y), .files = X_Y},
    [OP_SCAN] = {.name = "scan", .family = ON_HEADS, .unit = "key", .inputs = Q_K_V,
                 .outputs = O_LSE, .one_query = 1, .per_prefix = 1},
    [OP_UPDATE] = {.name = "update", .family = ON_HEADS, .unit = "key",
                   .inputs = Q_K_V | NEW_ROWS, .outputs = O_LSE, .one_query = 1,
                   .updates = 1},
    [OP_FUSED_REDUCTION] = {.name = "fused_reduction", .family = ON_ROWS, .unit = "elem",
                            .inputs = HAS(ARRAY_X) | HAS(ARRAY_W), .outputs = HAS(ARRAY_Y),
                            .files = X_W_Y, .results = N_FUSED},
    [OP_BACKWARD] = {.name = "backward", .family = ON_HEADS, .unit = "score", .is_benched = 1,
                     .inputs = Q_K_V | O_LSE | HAS(ARRAY_DO), .outputs = GRADIENTS,
                     .files = Q_K_V_FILES | HAS(ARRAY_DO) | GRADIENTS,
                     .weighed = HAS(ARRAY_Q) | HAS(ARRAY_K) | HAS(ARRAY_V) | HAS(ARRAY_DO)},
};
_Static_assert(sizeof operations / sizeof *operations == N_OPS, "each operation's entry");

int op_find(const char *name, enum op *op)
{
    for (int i = 0; i < N_OPS; i++)
        if (!strcmp(name, operations[i].name)) {
            *op = (enum op)i;
            return 1;
        }
    return 0;
}

double keys_of_tiles(const struct problem *p, size_t br, double *pairs)
{
    struct mask m = problem_mask(p);
    double keys = 0;
    *pairs = 0;
    for (size_t i = 0, end; i < p->seqlen_q; i = end) {
        end = p->seqlen_q - i < br ? p->seqlen_q : i + br;
        struct key_range seen = some_row_sees(m, i, end);
        keys += (double)(seen.end - seen.first);
        *pairs += (double)(seen.end - seen.first) * (double)(end - i);
    }
    return keys;
}

double problem_pairs(const struct problem *p)
{
    double all = (double)p->seqlen_q * (double)p->seqlen_k, pairs;
    if (all == 0) return 0;
    struct mask m = problem_mask(p);
    struct key_range first = mask_keys(m, 0), last = mask_keys(m, p->seqlen_q - 1);
    if (p->causal && p->seqlen_q == p->seqlen_k && last.first == 0 && first.end == 1)
        return all / 2;
    if (last.first == 0 && first.end == p->seqlen_k) return all;
    return keys_of_tiles(p, 1, &pairs);
}

double problem_flops(const struct problem *p)
{
    if (!on_heads(p)) return 0;
    struct problem even = *p; /* packed: as if all sequences were equally long */
    if (p->packed && p->batch) {
        even.seqlen_q = p->total_q / p->batch;
        even.seqlen_k = p->total_k / p->batch;
    }
    double d = (double)p->head_dim, dv = (double)p->head_dim_v;
    double of_pair = p->op == OP_BACKWARD ? 3 * d + 2 * dv : d + dv;
    return 2.0 * of_pair * (double)p->batch * (double)p->heads_q * problem_pairs(&even);
}
