/* operation.c: the operations, and what follows from their entries. */
#include "problem/operation.h"

#include <string.h>

#include "problem/host_memory.h"

static size_t as_x(const struct problem *p) { return p->cols; }

static size_t single(const struct problem *p)
{
    (void)p;
    return 1;
}

static size_t fused(const struct problem *p)
{
    (void)p;
    return N_FUSED;
}

const struct operation operations[] = {
    [OP_SOFTMAX] = {.name = "softmax", .family = ON_ROWS, .unit = "element",
                    .is_benched = 1, .y_cols = as_x, .y_rank = 2},
    [OP_LOGSOFTMAX] = {.name = "logsoftmax", .family = ON_ROWS, .unit = "element",
                       .is_benched = 1, .y_cols = as_x, .y_rank = 2},
    [OP_ATTENTION] = {.name = "attention", .family = ON_HEADS, .unit = "score",
                      .is_benched = 1},
    [OP_LOGSOFTMAX_ATTENTION] = {.name = "logsoftmax_attention", .family = ON_HEADS,
                                 .unit = "score"},
    [OP_MEAN] = {.name = "mean", .family = ON_ROWS, .unit = "element", .y_cols = single,
                 .y_rank = 1},
    [OP_SCAN] = {.name = "scan", .family = ON_HEADS, .unit = "key", .one_query = 1,
                 .per_prefix = 1},
    [OP_UPDATE] = {.name = "update", .family = ON_HEADS, .unit = "key", .one_query = 1,
                   .updates = 1},
    [OP_FUSED_REDUCTION] = {.name = "fused_reduction", .family = ON_ROWS,
                            .unit = "element", .y_cols = fused, .y_rank = 2,
                            .takes_w = 1},
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

double problem_pairs(const struct problem *p)
{
    double all = (double)p->seqlen_q * (double)p->seqlen_k;
    if (!p->causal) return all;
    if (p->seqlen_q == p->seqlen_k) return all / 2;
    double pairs = 0;
    for (size_t i = 0; i < p->seqlen_q; i++) {
        struct key_range keys = visible_keys(p, i);
        pairs += (double)(keys.end - keys.first);
    }
    return pairs;
}

double problem_flops(const struct problem *p)
{
    if (!on_heads(p)) return 0;
    return 2.0 * ((double)p->head_dim + (double)p->head_dim_v) * (double)p->batch *
           (double)p->heads_q * problem_pairs(p);
}

/* a b c d, or SIZE_MAX when that overflows. */
static size_t product(size_t a, size_t b, size_t c, size_t d)
{
    return size_times(size_times(a, b), size_times(c, d));
}

struct sizes problem_sizes(const struct problem *p)
{
    const struct operation *op = &operations[p->op];
    struct sizes n = {0};
    if (op->family == ON_ROWS) {
        n.x = size_times(p->rows, p->cols);
        n.w = op->takes_w ? n.x : 0;
        n.y = size_times(p->rows, op->y_cols(p));
        return n;
    }
    size_t answers = rows_per_head(p);
    n.q = product(p->batch, p->heads_q, p->seqlen_q, p->head_dim);
    n.k = product(p->batch, p->heads_kv, p->seqlen_k, p->head_dim);
    n.v = product(p->batch, p->heads_kv, p->seqlen_k, p->head_dim_v);
    n.bias = p->has_bias ? size_times(p->seqlen_q, p->seqlen_k) : 0;
    n.o = product(p->batch, p->heads_q, answers, p->head_dim_v);
    n.lse = product(p->batch, p->heads_q, answers, 1);
    if (op->updates) {
        n.index = p->n_updates;
        n.k_new = product(p->batch, p->heads_kv, p->n_updates, p->head_dim);
        n.v_new = product(p->batch, p->heads_kv, p->n_updates, p->head_dim_v);
    }
    return n;
}

size_t problem_bytes(const struct problem *p)
{
    struct sizes n = problem_sizes(p);
    size_t typed[] = {n.x, n.w, n.y, n.q, n.k, n.v, n.o, n.k_new, n.v_new}, all = 0;
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++) all = size_plus(all, typed[i]);
    all = size_times(all, dtype_size(p->dtype));
    all = size_plus(all, size_times(n.index, sizeof(size_t)));
    return size_plus(all, size_times(size_plus(n.bias, n.lse), sizeof(float)));
}
