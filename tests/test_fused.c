/* Fused reductions (04_monoid_tiled_cpu/variants/fused_reduction.c), beyond the cases of `check`, which
 * push one element after the other: parts are merged in any partition. */
#include <criterion/criterion.h>

#include "../04_monoid_tiled_cpu/variants/fused_reduction.h"
#include "attention_problem.h"

enum { N = 500 };
static const float *x, *w;

static struct inputs *fill(enum recipe recipe)
{
    struct inputs *in = inputs_of(rows_of(OP_FUSED_REDUCTION, 1, N), recipe, F32);
    x = in->arrays.x, w = in->arrays.w;
    return in;
}

/* The fold by a random tree of parentheses, with empty parts. */
static struct pair random_tree(const struct reduction *red, size_t first, size_t last,
                               struct random *r)
{
    if (last - first <= 1 || random_below(r, 4) == 0)
        return pair_fold(red, x + first, w + first, last - first);
    size_t middle = first + 1 + random_below(r, last - first - 1);
    struct pair left = random_tree(red, first, middle, r), right = random_tree(red, middle, last, r);
    if (random_below(r, 3) == 0) left = pair_merge(red, left, (struct pair){0});
    if (random_below(r, 3) == 0) right = pair_merge(red, (struct pair){0}, right);
    return pair_merge(red, left, right);
}

static struct pair in_chunks(const struct reduction *red, size_t size)
{
    struct pair all = {0};
    for (size_t j = 0; j < N; j += size)
        all = pair_merge(red, all, pair_fold(red, x + j, w + j, N - j < size ? N - j : size));
    return all;
}

/* Chunks of every size, then a hundred random trees. */
Test(fused, any_partition_gives_the_exact_answer)
{
    static const enum recipe recipes[] = {RANDOM, ASCENDING, DESCENDING, SHIFT_UP, EQUAL};
    struct random r = {99};
    for (int kind = 0; kind < 5; kind++) {
        struct inputs *in = fill(recipes[kind]);
        struct standard *standard = standard_new(&in->problem, &in->arrays);
        struct outputs out = outputs_new(&in->problem);
        for (size_t size = 1; size <= N + 100; size++) {
            for (size_t f = 0; f < N_FUSED; f++) {
                struct pair all = size <= N ? in_chunks(&reductions[f], size)
                                            : random_tree(&reductions[f], 0, N, &r);
                ((float *)out.array[ARRAY_Y].data)[f] = reductions[f].finish(&all);
                cr_assert(all.n == N);
            }
            struct verdict v = compare(standard, &out);
            cr_assert(v.ok, "kind %d, partition %zu, %s: got %.9g, want %.9g, allowed %g", kind,
                      size, reductions[v.index[1]].name, v.got, v.want, v.allowed);
        }
        outputs_free(&out);
        standard_free(standard), inputs_free(in);
    }
}
