/* operation.c: the operations, and what follows from their entries. */
#include "problem/operation.h"

#include <string.h>

#include "problem/layout.h"

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
    [OP_SOFTMAX] = {.name = "softmax", .family = ON_ROWS, .unit = "elem",
                    .is_benched = 1, .y_cols = as_x, .y_rank = 2},
    [OP_LOGSOFTMAX] = {.name = "logsoftmax", .family = ON_ROWS, .unit = "elem",
                       .is_benched = 1, .y_cols = as_x, .y_rank = 2},
    [OP_ATTENTION] = {.name = "attention", .family = ON_HEADS, .unit = "score",
                      .is_benched = 1},
    [OP_LOGSOFTMAX_ATTENTION] = {.name = "logsoftmax_attention", .family = ON_HEADS,
                                 .unit = "score"},
    [OP_MEAN] = {.name = "mean", .family = ON_ROWS, .unit = "elem", .y_cols = single,
                 .y_rank = 1},
    [OP_SCAN] = {.name = "scan", .family = ON_HEADS, .unit = "key", .one_query = 1,
                 .per_prefix = 1},
    [OP_UPDATE] = {.name = "update", .family = ON_HEADS, .unit = "key", .one_query = 1,
                   .updates = 1},
    [OP_FUSED_REDUCTION] = {.name = "fused_reduction", .family = ON_ROWS,
                            .unit = "elem", .y_cols = fused, .y_rank = 2,
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
    double all = (double)p->seqlen_q * (double)p->seqlen_k, pairs = 0;
    if (all == 0) return 0;
    struct mask m = problem_mask(p);
    struct key_range first = mask_keys(m, 0), last = mask_keys(m, p->seqlen_q - 1);
    if (p->causal && p->seqlen_q == p->seqlen_k && last.first == 0 && first.end == 1)
        return all / 2;
    if (last.first == 0 && first.end == p->seqlen_k) return all;
    for (size_t i = 0; i < p->seqlen_q; i++) {
        struct key_range keys = visible_keys(p, i);
        pairs += (double)(keys.end - keys.first);
    }
    return pairs;
}

double problem_flops(const struct problem *p)
{
    if (!on_heads(p)) return 0;
    struct problem even = *p; /* packed: as if all sequences were equally long */
    if (p->packed && p->batch) {
        even.seqlen_q = p->total_q / p->batch;
        even.seqlen_k = p->total_k / p->batch;
    }
    return 2.0 * ((double)p->head_dim + (double)p->head_dim_v) * (double)p->batch *
           (double)p->heads_q * problem_pairs(&even);
}

/* a b c d, or SIZE_MAX when that overflows. */
static size_t product(size_t a, size_t b, size_t c, size_t d)
{
    return size_times(size_times(a, b), size_times(c, d));
}

/* Elements from the first to the last of an array of so many batches, heads and rows: with
 * strides there may be others in between. */
static size_t extent(struct strides s, size_t batches, size_t heads, size_t rows,
                     size_t width)
{
    if (!s.batch && !s.head && !s.row) return product(batches, heads, rows, width);
    if (!batches || !heads || !rows) return 0;
    size_t last = size_plus(size_times(batches - 1, s.batch), size_times(heads - 1, s.head));
    return size_plus(size_plus(last, size_times(rows - 1, s.row)), width);
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
    size_t answers = p->packed ? p->total_q : rows_per_head(p), keys = stored_keys(p);
    size_t batches = p->packed ? 1 : p->batch, kv = p->page_size ? p->n_pages : batches;
    n.q = extent(p->q_strides, batches, p->heads_q, stored_queries(p), p->head_dim);
    n.k = extent(p->k_strides, kv, p->heads_kv, keys, p->head_dim);
    n.v = extent(p->v_strides, kv, p->heads_kv, keys, p->head_dim_v);
    n.bias = p->has_bias ? size_times(p->seqlen_q, p->seqlen_k) : 0;
    n.o = extent(p->o_strides, batches, p->heads_q, answers, p->head_dim_v);
    n.lse = product(batches, p->heads_q, answers, 1);
    n.sinks = p->has_sinks ? p->heads_q : 0;
    n.cu_seqlens = p->packed ? size_plus(p->batch, 1) : 0;
    n.pages = size_times(p->batch, p->pages_per_sequence);
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
    size_t ints = size_plus(size_times(n.cu_seqlens, 2), n.pages);
    all = size_plus(all, size_times(size_plus(ints, n.sinks), sizeof(float)));
    return size_plus(all, size_times(size_plus(n.bias, n.lse), sizeof(float)));
}
