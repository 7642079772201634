/* scan.c: the fourth use of a monoid.  One query's answer for every prefix of the keys:
 *
 *     o_j, lse_j = attention of keys 0 .. j,   j = 0 .. n - 1
 *
 * The serial fold passes through all of them, n merges one after the other.  Because the
 * operation is associative, a tree gets them in 2 log2 n rounds of independent merges and
 * still in O(n) merges altogether (Brent and Kung 1982; Blelloch 1990).
 *
 * This is not yet causal attention.  There query i sees keys 0 .. i with its own scores
 * q_i . k_j; a scan has one query, and its scores say nothing about another's. */
#include "cost.h"
#include "monoid.h"
#define EIGHT_SUMS
#include "score.h"

/* Turns x[j] into x[0] . ... . x[j] in place for j < n.  Two sweeps over a binary tree
 * whose node for the 2^t elements that end at j lies in x[j]:
 *   up    t = 0, 1, ...   x[j] becomes x[j - 2^t] . x[j] where 2^(t+1) divides j + 1
 *   down  ..., 1, 0       x[j + 2^t] becomes x[j] . x[j + 2^t] at the same j
 * Merges of one round touch different elements, so a round may run in parallel.  The
 * operands of SE may change places, so the left one can be merged into the right one.
 *   merges  number of merges, at most 2 n    rounds  at most 2 log2 n    (either NULL) */
static void prefix_scan(struct aggregate *x, size_t n, size_t *merges, size_t *rounds)
{
    size_t count = 0, depth = 0, width = 1;
    for (; 2 * width <= n; width *= 2, depth++)
        for (size_t j = 2 * width - 1; j < n; j += 2 * width, count++)
            aggregate_merge(&x[j], &x[j - width]);
    for (width /= 2; width >= 1; width /= 2, depth++)
        for (size_t j = 2 * width - 1; j + width < n; j += 2 * width, count++)
            aggregate_merge(&x[j + width], &x[j]);
    if (merges) *merges = count;
    if (rounds) *rounds = depth;
}

/* o [batch, heads_q, seqlen_k, head_dim_v] and lse are written as the scan goes: the o of
 * element j lies in its answer from the start.  workspace: seqlen_k aggregates. */
static void scan(const struct problem *p, const struct arrays *a)
{
    size_t n = p->seqlen_k, dv = p->head_dim_v;
    struct aggregate *x = a->workspace;
    for (size_t head = 0; head < n_heads(p); head++) {
        struct head h = head_of(p, a, head);
        float *o = (float *)a->o + head * n * dv, *lse = a->lse + head * n;
        for (size_t j = 0; j < n; j++) {
            x[j].o = o + j * dv;
            x[j].d = dv;
            aggregate_unit(&x[j]);
            aggregate_push(&x[j], score(&h, 0, j), v_row(&h, j));
        }
        prefix_scan(x, n, NULL, NULL);
        for (size_t j = 0; j < n; j++) aggregate_finish(&x[j], x[j].o, lse + j);
    }
}

static size_t workspace_tree(const struct problem *p)
{
    return p->seqlen_k * sizeof(struct aggregate);
}

/* The same by one fold from left to right: n merges, each waiting for the one before.
 * workspace: the running o. */
static void serial(const struct problem *p, const struct arrays *a)
{
    size_t n = p->seqlen_k, dv = p->head_dim_v;
    for (size_t head = 0; head < n_heads(p); head++) {
        struct head h = head_of(p, a, head);
        float *o = (float *)a->o + head * n * dv, *lse = a->lse + head * n;
        struct aggregate x = {.o = a->workspace, .d = dv};
        aggregate_unit(&x);
        for (size_t j = 0; j < n; j++) {
            aggregate_push(&x, score(&h, 0, j), v_row(&h, j));
            aggregate_finish(&x, o + j * dv, lse + j);
        }
    }
}

static size_t workspace_serial(const struct problem *p)
{
    return p->head_dim_v * sizeof(float);
}

/* Every key and value is read once, every prefix's answer written; the tree rewrites the
 * answers about twice. */
static struct cost cost_with(const struct problem *p, double answers)
{
    double keys = (double)n_heads(p) * (double)p->seqlen_k;
    double floats = (double)p->head_dim + (1 + answers) * (double)p->head_dim_v + 1;
    return (struct cost){.bytes = 4 * keys * floats, .exps = 2 * keys};
}

static struct cost cost_serial(const struct problem *p) { return cost_with(p, 1); }
static struct cost cost(const struct problem *p) { return cost_with(p, 5); }

const struct variant scan_serial = {
    .name = "scan_serial", .idea = "prefixes: n merges",
    ASIDE, .workspace = workspace_serial, .cost = cost_serial,
    .does = {{OP_SCAN, serial}},
};

const struct variant scan_work_efficient = {
    .name = "scan", .idea = "prefixes: 2 log n rounds",
    ASIDE, .workspace = workspace_tree, .cost = cost,
    .does = {{OP_SCAN, scan}},
};
