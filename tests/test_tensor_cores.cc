/* The tensor-core rungs: how fragments fit together, and split-KV's parts. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "../05_flash_cuda/portable/mma_sync.h"

extern "C" const struct variant tensor_cores, async_copies, larger_tiles,
    lazy_rescaling, split_kv, split_kv_f32;

/* The two C fragments of a product, packed in pairs, multiply as the A fragment of the
 * next: (A B) I = A B with A (16, 16) = 16 row + column, B and I the identity. */
static __global__ void identity_kernel(float *d)
{
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t a[4], one_low = pack<F16>(1.0f, 0.0f), one_high = pack<F16>(0.0f, 1.0f);
    for (int i = 0; i < 4; i++) {
        float first = 16.0f * (g + i % 2 * 8) + 2 * t + i / 2 * 8;
        a[i] = pack<F16>(first, first + 1.0f);
    }
    /* B = I: column g has its 1 in row g, which lane t = g / 2 holds in half g % 2 */
    uint32_t one = g / 2 != t ? 0 : g % 2 ? one_high : one_low;
    float c[2][4] = {}, again[2][4] = {};
    mma_16x8x16<F16>(c[0], a, one, 0); /* columns 0-7 of I: rows 0-7 */
    mma_16x8x16<F16>(c[1], a, 0, one); /* columns 8-15: rows 8-15 */
    uint32_t p[4] = {pack<F16>(c[0][0], c[0][1]), pack<F16>(c[0][2], c[0][3]),
                     pack<F16>(c[1][0], c[1][1]), pack<F16>(c[1][2], c[1][3])};
    mma_16x8x16<F16>(again[0], p, one, 0);
    mma_16x8x16<F16>(again[1], p, 0, one);
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 4; i++) {
            int at = (g + i / 2 * 8) * 16 + 8 * n + 2 * t + i % 2;
            d[at] = c[n][i];
            d[256 + at] = again[n][i];
        }
}

Test(tensor_cores, packed_result_fragments_are_an_operand_fragment)
{
    std::vector<float> d(512, NAN);
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(32);
    CUDA_CHECK(cudaLaunchKernelEx(&config, identity_kernel, d.data()));
    for (int i = 0; i < 512; i++)
        cr_assert(d[i] == (float)(i % 256),
                  "product %d, element (%d, %d): got %g, want %d", i / 256, i % 256 / 16,
                  i % 16, d[i], i % 256);
}

/* One head, head_dim 64, q = 0: o is the mean of the visible values.  Value j is j mod
 * 7 in all columns but column j mod 64, where it is 8 more, so a lost or doubled key
 * shows. */
struct decode {
    std::vector<uint16_t> q, k, v, o;
    std::vector<float> lse, bias;
    std::vector<unsigned char> workspace;
    struct problem p = {};
    struct arrays a = {};

    decode(size_t queries, size_t keys)
        : q(queries * 64), k(keys * 64), v(keys * 64), o(queries * 64, 0x7fff),
          lse(queries, NAN)
    {
        for (size_t j = 0; j < keys; j++)
            for (size_t d = 0; d < 64; d++) {
                k[j * 64 + d] = float_to_half((float)((j * 31 + d * 17) % 13) - 6.0f);
                v[j * 64 + d] = float_to_half((float)(j % 7 + (j % 64 == d) * 8));
            }
        p.op = OP_ATTENTION;
        p.dtype = F16;
        p.batch = p.heads_q = p.heads_kv = 1;
        p.seqlen_q = queries;
        p.seqlen_k = keys;
        p.head_dim = p.head_dim_v = 64;
        p.scale = 0.125f;
    }
    void run(const struct variant *rung = &split_kv)
    {
        /* filled with NaN: a part without keys must not be read */
        p.dtype = rung->types & TYPE(F32) ? F32 : F16;
        workspace.assign(rung->workspace ? rung->workspace(&p) + 1 : 1, 0xff);
        a.q = q.data(), a.k = k.data(), a.v = v.data();
        a.o = o.data(), a.lse = lse.data();
        a.bias = bias.empty() ? NULL : bias.data();
        p.has_bias = !bias.empty();
        a.workspace = workspace.data();
        std::vector<float> wide[3], wide_o(o.size(), NAN);
        if (p.dtype == F32) {
            const std::vector<uint16_t> *narrow[3] = {&q, &k, &v};
            for (int i = 0; i < 3; i++)
                for (uint16_t x : *narrow[i]) wide[i].push_back(half_to_float(x));
            a.q = wide[0].data(), a.k = wide[1].data(), a.v = wide[2].data();
            a.o = wide_o.data();
        }
        variant_call(rung, &p, &a);
        for (size_t i = 0; p.dtype == F32 && i < o.size(); i++)
            o[i] = float_to_half(wide_o[i]);
    }
    void expect_mean_of(size_t query, size_t keys)
    {
        cr_assert(fabsf(lse[query] - logf((float)keys)) < 1e-5f,
                  "lse of query %zu: got %g, "
                  "want %g",
                  query, lse[query], logf((float)keys));
        for (size_t d = 0; d < 64; d++) {
            double want = 0.0;
            for (size_t j = 0; j < keys; j++) want += (double)(j % 7 + (j % 64 == d) * 8);
            float got = half_to_float(o[query * 64 + d]);
            want /= (double)keys;
            cr_assert(fabs(got - want) < 2e-3, "query %zu, column %zu: got %g, want %g",
                      query, d, got, want);
        }
    }
};

/* The executor has 16 multiprocessors, so 2112 keys, 33 tiles of 64, are cut into 8
 * parts of 5 tiles: the last one is empty.  Below 512 keys there is one part and no
 * workspace. */
static const struct variant *const splits[] = {&split_kv, &split_kv_f32};

Test(tensor_cores, split_kv_merges_parts_of_which_the_last_is_empty)
{
    for (const struct variant *split : splits)
        for (size_t keys : {1, 3, 63, 64, 65, 511, 512, 2112, 2113, 3000}) {
            struct decode x(1, keys);
            x.run(split);
            x.expect_mean_of(0, keys);
            cr_assert((split->workspace(&x.p) > 0) == (keys >= 512), "%zu keys: parts",
                      keys);
        }
}

/* 16 parts of 2048 keys for as many multiprocessors: blocks of 8 warps. */
Test(tensor_cores, split_kv_blocks_of_eight_warps)
{
    for (const struct variant *split : splits) {
        struct decode x(1, 32768);
        x.p.dtype = split == &split_kv ? F16 : F32;
        cr_assert_str_eq(split->picks(&x.p), "16 parts of 2048 keys, blocks of 8 warps");
        x.run(split);
        x.expect_mean_of(0, 32768);
    }
}

/* What a grid or an int cannot count is refused, and nothing less. */
Test(tensor_cores, split_kv_refuses_what_it_cannot_count)
{
    for (const struct variant *split : splits) {
        size_t most = split == &split_kv ? 64 : 32;
        struct decode x(1, 1);
        x.p.seqlen_q = most;
        x.p.seqlen_k = 1 << 29;
        x.p.heads_q = x.p.heads_kv = (1 << 29) / most; /* 2^29 rows of lse */
        cr_expect_null(split->refuses(&x.p));
        x.p.seqlen_q++;
        cr_expect_not_null(split->refuses(&x.p));
        x.p.seqlen_q = 1;
        x.p.seqlen_k++;
        cr_expect_not_null(split->refuses(&x.p));
        x.p.seqlen_k = 1;
        cr_expect_null(split->refuses(&x.p));
        x.p.batch = most + 1;
        cr_expect_not_null(split->refuses(&x.p));
    }
}

Test(tensor_cores, split_kv_causal_queries_see_their_own_prefix)
{
    for (const struct variant *split : splits) {
        struct decode x(20, 2112);
        x.p.causal = 1;
        x.run(split);
        for (size_t i = 0; i < 20; i++) x.expect_mean_of(i, 2112 - 19 + i);
    }
}

/* A plain call runs a kernel of its own.  Strides that say what the shape says, a sink, and a
 * soft cap each lead to the other one. */
Test(tensor_cores, split_kv_plain_and_general_kernels_agree)
{
    for (const struct variant *split : splits) {
        struct decode plain(3, 2113), general(3, 2113), sunk(3, 2113), capped(1, 2113);
        for (struct decode *x : {&plain, &general, &sunk, &capped})
            for (size_t i = 0; i < x->q.size(); i++)
                x->q[i] = float_to_half((float)(i % 5) - 1.0f);
        plain.run(split);
        general.p.k_strides = {2113 * 64, 2113 * 64, 64};
        general.run(split);
        cr_expect(general.o == plain.o && general.lse == plain.lse, "%s", split->name);

        sunk.p.has_sinks = 1;
        sunk.a.sinks = &plain.lse[0]; /* query 0: as much weight as all keys */
        sunk.run(split);
        cr_expect(fabsf(sunk.lse[0] - plain.lse[0] - logf(2.0f)) < 1e-5f, "%s", split->name);
        for (size_t d = 0; d < 64; d++) {
            float got = half_to_float(sunk.o[d]), want = half_to_float(plain.o[d]) / 2;
            cr_expect(fabsf(got - want) < 2e-3f, "%s: got %g, want %g", split->name, got, want);
        }

        capped.p.softcap = 1e-6f; /* all scores become alike */
        capped.run(split);
        capped.expect_mean_of(0, 2113);
    }
}

Test(tensor_cores, split_kv_without_visible_keys_gives_zero)
{
    for (const struct variant *split : splits) {
        struct decode x(2, 2112);
        x.bias.assign(2 * 2112, -INFINITY);
        x.bias[2112 + 1000] = 0.0f; /* query 1 sees one key, in the fourth part */
        x.run(split);
        cr_assert(x.lse[0] == -INFINITY && x.o[0] == 0 && x.o[63] == 0);
        cr_assert(fabsf(x.lse[1]) < 1e-6f);
        for (size_t d = 0; d < 64; d++)
            cr_assert(x.o[64 + d] == x.v[1000 * 64 + d], "column %zu", d);
    }
}

enum { N_ORDERED = 6 }; /* kernels that the next test runs */

/* What these kernels compute, one after the other, in a process of its own that runs
 * the threads of a block in the given order. */
static std::vector<uint16_t> bits_in_order(const char *order)
{
    const size_t queries = 60, n = queries * 64;
    const struct variant *rungs[N_ORDERED] = {&tensor_cores, &async_copies, &larger_tiles,
                                              &lazy_rescaling, &split_kv, &split_kv_f32};
    uint16_t *shared =
        (uint16_t *)mmap(NULL, N_ORDERED * n * sizeof *shared, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_ON_CPU_ORDER", order, 1);
        struct decode x(queries, 700);
        for (size_t i = 0; i < x.q.size(); i++)
            x.q[i] = float_to_half((float)(i * 37 % 29) / 8.0f - 1.8f);
        for (int i = 0; i < N_ORDERED; i++) {
            x.run(rungs[i]);
            memcpy(shared + i * n, x.o.data(), n * sizeof *shared);
        }
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    cr_assert(status == 0, "order %s: exit status %d", order, status);
    std::vector<uint16_t> bits(shared, shared + N_ORDERED * n);
    munmap(shared, N_ORDERED * n * sizeof *shared);
    return bits;
}

Test(tensor_cores, rungs_give_the_same_bits_in_every_order)
{
    std::vector<uint16_t> first = bits_in_order("mixed");
    for (const char *order : {"forward", "backward", "random:1", "random:2", "random:3"})
        cr_assert(bits_in_order(order) == first, "differs in the order %s", order);
}
