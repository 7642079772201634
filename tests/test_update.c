/* Incremental update (04_monoid_tiled_cpu/variants/update.c): the answer is that of a new tree,
 * bit for bit, and costs ceil(log2 n) merges, counted. */
#include <criterion/criterion.h>
#include <string.h>

/* The file itself, for its static functions; its variants are linked already. */
#define update_refold update_refold_here
#define update_tree update_tree_here
#include "../04_monoid_tiled_cpu/variants/update.c"
#include "attention_problem.h"

static size_t ceil_log2(size_t n)
{
    size_t log = 0;
    while ((size_t)1 << log < n) log++;
    return log;
}

/* No keys are the unit. */
Test(update, answers_match_the_reference_and_merges_are_logarithmic)
{
    const size_t lengths[] = {0, 1, 2, 3, 4, 5, 16, 17, 100, 128, 129};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t n_updates = 0; n_updates < (lengths[i] ? 6 : 1); n_updates++) {
            struct problem p = problem_of(OP_UPDATE, (struct shape){2, 4, 2, 1, lengths[i], 8, 5}, 0,
                                          i % 2);
            p.n_updates = n_updates;
            struct inputs *in = inputs_of(p, MASK_SOME, F32);
            size_t merges = 0, most = 8 * n_updates * (ceil_log2(lengths[i]) + 1);
            in->arrays.merges = &merges;
            judge(&update_tree, in);
            cr_assert(merges <= most, "n = %zu, %zu updates: %zu merges, at most %zu", lengths[i],
                      n_updates, merges, most);
            inputs_free(in);
        }
}

/* After any updates every node is what building the tree from the new rows gives. */
Test(update, tree_equals_a_new_tree_bit_for_bit)
{
    enum { N = 37, DV = 3, LEAVES = 64 };
    struct aggregate node[2][2 * LEAVES];
    float o[2][2 * LEAVES * DV], k[N], v[N * DV], q = 1.0f;
    struct random r = {3};
    for (int j = 0; j < N; j++) k[j] = 3.0f * random_normal(&r);
    for (int j = 0; j < N * DV; j++) v[j] = random_normal(&r);
    struct head head = {.q = &q, .k = k, .v = v, .seqlen_q = 1, .seqlen_k = N, .head_dim = 1,
                        .head_dim_v = DV, .scale = 1.0f};
    tree_build(&head, node[0], o[0], LEAVES);
    for (int u = 0; u < 300; u++) {
        size_t j = random_below(&r, N);
        k[j] = u % 7 ? 3.0f * random_normal(&r) : -INFINITY; /* now and then a mask */
        for (int c = 0; c < DV; c++) v[j * DV + c] = random_normal(&r);
        size_t merges = tree_update(node[0], LEAVES, j, score(&head, 0, j), v + j * DV);
        cr_assert(merges == 6, "%zu merges", merges);
        tree_build(&head, node[1], o[1], LEAVES);
        for (int i = 1; i < 2 * LEAVES; i++)
            cr_assert(memcmp(&node[0][i].m, &node[1][i].m, sizeof(float)) == 0 &&
                          memcmp(&node[0][i].l, &node[1][i].l, sizeof(float)) == 0,
                      "update %d, node %d", u, i);
        size_t bytes = (2 * LEAVES - 1) * DV * sizeof(float);
        cr_assert(memcmp(o[0] + DV, o[1] + DV, bytes) == 0, "update %d: o", u);
    }
}

/* Why a tree and not subtraction: the weight of a key can be lost before its removal. */
Test(update, subtracting_a_key_cannot_undo_it)
{
    struct se x = se_lift(0.0f), with = se_merge(x, se_lift(40.0f));
    float back = with.l - 1.0f; /* the weight of the key at 40, taken out again */
    cr_assert(back == 0.0f, "%g is left of the key with score 0", back);
}
