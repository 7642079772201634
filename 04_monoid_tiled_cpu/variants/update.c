/* update.c: the fifth use of a monoid.  When one key or value changes, most partial
 * results stay right.  A binary tree keeps them all:
 *
 *     leaf j          (v_j, 1, s_j)             node      left child . right child
 *     the root        the fold of all keys
 *
 * and a new k_j or v_j redoes only the nodes above leaf j, ceil(log2 n) merges instead of
 * the n - 1 of a new fold.  SE has no inverse in float (the weight of a removed key is
 * lost in rounding as soon as it is small), so subtracting the old key would not do. */
#include <string.h>

#include "cost.h"
#include "monoid.h"
#define EIGHT_SUMS
#include "score.h"

/* Smallest power of two that is at least n, and at least 1. */
static size_t leaves_for(size_t n)
{
    size_t leaves = 1;
    while (leaves < n) leaves *= 2;
    return leaves;
}

/* node = left . right.  Node i has children 2 i and 2 i + 1; node 1 is the root. */
static void merge_children(struct aggregate *node, size_t i)
{
    memcpy(node[i].o, node[2 * i].o, node[i].d * sizeof(float));
    node[i].m = node[2 * i].m;
    node[i].l = node[2 * i].l;
    aggregate_merge(&node[i], &node[2 * i + 1]);
}

/* Fills nodes 1 .. 2 leaves - 1, o (2 leaves, dv) being their memory.  The leaves beyond
 * the last key are units. */
static void tree_build(const struct head *h, struct aggregate *node, float *o,
                       size_t leaves)
{
    for (size_t i = 1; i < 2 * leaves; i++) {
        node[i].o = o + i * h->head_dim_v;
        node[i].d = h->head_dim_v;
    }
    for (size_t j = 0; j < leaves; j++) {
        aggregate_unit(&node[leaves + j]);
        if (j < h->seqlen_k) aggregate_push(&node[leaves + j], score(h, 0, j), v_row(h, j));
    }
    for (size_t i = leaves - 1; i >= 1; i--) merge_children(node, i);
}

/* Leaf j becomes (v, 1, score); returns the number of merges on the way to the root. */
static size_t tree_update(struct aggregate *node, size_t leaves, size_t j, float score,
                          const float *v)
{
    size_t merges = 0;
    aggregate_unit(&node[leaves + j]);
    aggregate_push(&node[leaves + j], score, v);
    for (size_t i = (leaves + j) / 2; i >= 1; i /= 2, merges++) merge_children(node, i);
    return merges;
}

/* Attention of one query per head after key row index[u] was replaced by k_new, v_new,
 * for u = 0, 1, ... in turn.  workspace: the nodes of one tree, then their o. */
static void update(const struct problem *p, const struct arrays *a)
{
    size_t leaves = leaves_for(p->seqlen_k), d = p->head_dim, dv = p->head_dim_v;
    size_t group = p->heads_q / p->heads_kv;
    struct aggregate *node = a->workspace;
    float *o = (float *)(node + 2 * leaves);
    for (size_t head = 0; head < n_heads(p); head++) {
        struct head h = head_of(p, a, head);
        size_t head_kv = head / p->heads_q * p->heads_kv + head % p->heads_q / group;
        tree_build(&h, node, o, leaves);
        for (size_t u = 0; u < p->n_updates; u++) {
            size_t j = a->index[u], row_new = head_kv * p->n_updates + u;
            const float *k = (const float *)a->k_new + row_new * d;
            const float *v = (const float *)a->v_new + row_new * dv;
            tree_update(node, leaves, j, score_of(&h, 0, k, j), v);
        }
        aggregate_finish(&node[1], h.o, h.lse);
    }
}

static size_t workspace(const struct problem *p)
{
    size_t nodes = 2 * leaves_for(p->seqlen_k);
    return nodes * (sizeof(struct aggregate) + p->head_dim_v * sizeof(float));
}

const struct variant update_tree = {
    .name = "update", .idea = "a tree: redo log2 n merges",
    ASIDE, .workspace = workspace, .cost = fold_cost,
    .does = {{OP_UPDATE, update}},
};
