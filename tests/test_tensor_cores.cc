/* test_tensor_cores.cc: how split-KV cuts the keys and what it refuses before it allocates; and that
 * kernels with invariant bits have the same. */
#include <criterion/criterion.h>

#include <vector>

#include "harness.h"

extern "C" {
#include "problem/choice.h"
#include "problem/dtype.h"
#include "problem/variant.h"
#include "vector/half.h"
}

extern "C" const struct variant general, general_tiled, invariant, split_kv, split_kv_f32;

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

/* o and lse of the last n queries of p, from v. */
static std::vector<uint32_t> bits_of(const struct variant &v, struct problem p, struct arrays a, size_t n)
{
    const size_t all = p.seqlen_q, d = p.head_dim_v;
    p.q_strides = {all * p.heads_q * p.head_dim, all * p.head_dim, p.head_dim};
    a.q = (const char *)a.q + (all - n) * p.head_dim * dtype_size(p.dtype);
    p.seqlen_q = n;
    std::vector<float> o(p.heads_q * n * d);
    std::vector<float> lse(p.heads_q * n);
    std::vector<char> work(v.workspace ? v.workspace(&p) : 0);
    a.o = o.data(), a.lse = lse.data(), a.workspace = work.data();
    cr_assert_null(variant_refuses(&v, &p), "%s: %s", v.name, variant_refuses(&v, &p));
    variant_call(&v, &p, &a);
    std::vector<uint32_t> bits;
    for (size_t i = 0; i < o.size(); i++) bits.push_back(f32_bits(dtypes[p.dtype].load(o.data(), i)));
    for (float x : lse) bits.push_back(f32_bits(x));
    return bits;
}

/* Hopper's wgmma, and mma.sync of many queries; of few in leaves side by side; float32's one kernel.
 * Of 1100 keys two leaves are whole; in the window the first is hidden. */
Test(tensor_cores, invariant_bits_are_those_of_each_kernel)
{
    for (const enum dtype dtype : {F32, F16, BF16})
        for (const size_t d : {64, 128})
            for (const size_t window : {0, 530}) {
                struct problem p = decode(&split_kv, 70, 1100);
                p.dtype = dtype, p.heads_q = 2, p.head_dim = p.head_dim_v = d, p.scale = 0.5f;
                p.causal = p.has_sinks = p.invariant = 1;
                p.has_window = window > 0, p.window_left = (ptrdiff_t)window, p.window_right = 0;
                std::vector<float> x[3];
                for (int i = 0; i < 3; i++) {
                    x[i].resize((i ? p.seqlen_k : 2 * p.seqlen_q) * d);
                    for (size_t j = 0; j < x[i].size(); j++)
                        dtypes[dtype].store(x[i].data(), j, (float)sin(0.7 * j * (j % 97 + i)));
                }
                const float sinks[] = {0.5f, 3.0f};
                struct arrays a = {};
                a.q = x[0].data(), a.k = x[1].data(), a.v = x[2].data(), a.sinks = sinks;
                const struct variant &by_mma = dtype == F32 ? general_tiled : invariant;
                const auto want = bits_of(dtype == F32 ? general_tiled : general, p, a, 70);
                const auto few = bits_of(by_mma, p, a, 3);
                cr_expect(bits_of(by_mma, p, a, 70) == want, "%s, d = %zu", dtype_name(dtype), d);
                for (size_t i = 0; i < few.size(); i++) { /* [head][query][column], then lse */
                    const size_t w = i < 6 * d ? d : 1, at = i < 6 * d ? i : i - 6 * d;
                    cr_assert_eq(few[i], want[(i < 6 * d ? 0 : 140 * d) +
                                              (at / (3 * w) * 70 + 67) * w + at % (3 * w)]);
                }
            }
}
