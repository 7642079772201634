/* test_tensor_cores.cc: how split-KV cuts the keys, what it refuses before it allocates, and which
 * gradient is taken. */
#include <criterion/criterion.h>

#include "harness.h"

extern "C" const struct variant split_kv, split_kv_f32;
extern "C" const struct variant gradient_overlap, gradient_wide_heads, gradient_narrow_heads,
    gradient_in_order;

static struct problem decode(const struct variant *by, size_t queries, size_t keys)
{
    struct problem p = {};
    p.op = OP_ATTENTION, p.dtype = by == &split_kv ? F16 : F32;
    p.batch = p.heads_q = p.heads_kv = 1;
    p.seqlen_q = queries, p.seqlen_k = keys;
    p.head_dim = p.head_dim_v = 64;
    return p;
}

/* The executor has 16 multiprocessors.  Below 512 keys there is one part and no workspace. */
Test(tensor_cores, split_kv_cuts_many_keys_in_parts)
{
    for (const struct variant *split : {&split_kv, &split_kv_f32}) {
        struct problem few = decode(split, 1, 511), many = decode(split, 1, 512);
        struct problem most = decode(split, 1, 32768);
        cr_expect(split->workspace(&few) == 0 && split->workspace(&many) > 0, "%s", split->name);
        cr_expect_str_eq(split->picks(&most), "16 parts of 2048 keys, blocks of 8 warps");
    }
}

/* What a grid or an int cannot count is refused, and nothing less. */
Test(tensor_cores, split_kv_refuses_what_it_cannot_count)
{
    for (const struct variant *split : {&split_kv, &split_kv_f32}) {
        size_t most = split == &split_kv ? 64 : 32;
        struct problem p = decode(split, most, 1 << 29);
        p.heads_q = p.heads_kv = (1 << 29) / most; /* 2^29 rows of lse */
        cr_expect_null(split->refuses(&p));
        p.seqlen_q++;
        cr_expect_not_null(split->refuses(&p));
        p.seqlen_q = 1, p.seqlen_k++;
        cr_expect_not_null(split->refuses(&p));
        p.seqlen_k = 1;
        cr_expect_null(split->refuses(&p));
        p.batch = most + 1;
        cr_expect_not_null(split->refuses(&p));
    }
}

/* The last of the list that does not yield.  The bound is keys x head_dim = 2^17. */
Test(tensor_cores, the_gradient_in_order_is_taken_where_keys_are_few)
{
    static const struct variant *const gradients[] = {&gradient_overlap, &gradient_wide_heads,
                                                      &gradient_narrow_heads, &gradient_in_order};
    static const struct { size_t d, keys; const struct variant *taken; } want[] = {
        {64, 2048, &gradient_in_order},  {64, 2049, &gradient_narrow_heads},
        {128, 1024, &gradient_in_order}, {128, 1025, &gradient_overlap},
        {256, 512, &gradient_in_order},  {256, 513, &gradient_wide_heads}};
    for (const auto &w : want) {
        struct problem p = decode(&split_kv, 64, w.keys);
        p.op = OP_BACKWARD, p.scale = 1.0f, p.head_dim = p.head_dim_v = w.d;
        const struct variant *taken = NULL;
        for (const struct variant *v : gradients)
            if (!v->refuses(&p) && !v->yields(&p)) taken = v;
        cr_expect_eq(taken, w.taken, "d = %zu, %zu keys", w.d, w.keys);
    }
}
