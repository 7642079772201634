/* test_merges.c: what a tree of merges costs, counted: prefix scan and incremental update. */
#include <criterion/criterion.h>

/* The files themselves, for their static functions; their variants are linked already. */
#define scan_serial scan_serial_here
#define scan_work_efficient scan_work_efficient_here
#include "../04_monoid_tiled_cpu/variants/scan.c"
#define update_tree update_tree_here
#include "../04_monoid_tiled_cpu/variants/update.c"

enum { MOST = 4096 };
static struct aggregate node[2 * MOST];
static float o[2 * MOST], q = 1, k[MOST], v[MOST];

static size_t floor_log2(size_t n)
{
    size_t log = 0;
    while (n >>= 1) log++;
    return log;
}

/* By hand: the up sweep makes n - 1 merges and the down sweep n - 1 - log2 n when n is a
 * power of two; there are log2 n rounds up and log2 n - 1 down. */
Test(merges, of_a_scan_are_linear_and_its_rounds_logarithmic)
{
    for (size_t n = 1; n <= MOST; n += n < 300 ? 1 : 379) {
        size_t merges, rounds, log = floor_log2(n);
        for (size_t j = 0; j < n; j++) {
            node[j] = (struct aggregate){.o = o + j, .d = 1};
            aggregate_unit(&node[j]);
            aggregate_push(&node[j], 0, v + j);
        }
        prefix_scan(node, n, &merges, &rounds);
        cr_assert(merges <= 2 * n && rounds <= 2 * log + 1, "%zu: %zu, %zu", n, merges, rounds);
        if ((n & (n - 1)) == 0)
            cr_assert(merges == 2 * n - 2 - log && rounds == (log ? 2 * log : 0),
                      "%zu: %zu, %zu", n, merges, rounds);
    }
}

Test(merges, of_an_update_are_the_height_of_the_tree)
{
    for (size_t n = 1; n <= MOST; n *= 3) {
        struct head head = {.q = &q, .k = k, .v = v, .seqlen_q = 1, .seqlen_k = n,
                            .head_dim = 1, .head_dim_v = 1, .scale = 1};
        size_t leaves = leaves_for(n);
        tree_build(&head, node, o, leaves);
        cr_expect(leaves >= n && leaves < 2 * n + (n == 1));
        cr_expect(tree_update(node, leaves, n / 2, 1, v) == floor_log2(leaves), "%zu keys", n);
    }
}

/* Why a tree and not subtraction: the weight of a key can be lost before its removal. */
Test(merges, a_key_cannot_be_undone_by_subtracting_it)
{
    struct se x = se_lift(0.0f), with = se_merge(x, se_lift(40.0f));
    float back = with.l - 1.0f; /* the weight of the key at 40, taken out again */
    cr_assert(back == 0.0f, "%g is left of the key with score 0", back);
}
