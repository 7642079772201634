/* test_hopper.cc: Hopper's instructions executed on the CPU (cuda_on_cpu/hopper_on_cpu.h), each
 * against what the PTX manual says, and the rungs that consist of them. */
#include "kernel_launch.h"

#include <stdlib.h>
#include <thread>

#include "../05_flash_cuda/hopper/wgmma.h"

/* A map of an array [1, 1, rows, columns] in boxes of 64 columns and 64 rows. */
static CUtensorMap map_of(uint16_t *array, size_t rows, size_t columns)
{
    CUtensorMap map;
    cuuint64_t size[4] = {columns, rows, 1, 1};
    cuuint64_t stride[3] = {2 * columns, 2 * columns * rows, 2 * columns * rows};
    cuuint32_t box[4] = {64, 64, 1, 1}, step[4] = {1, 1, 1, 1};
    CUDA_CHECK(cudaSetDevice(0)); /* the driver wants a context */
    cr_assert(cuTensorMapEncodeTiled(
                  &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, array, size, stride, box, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    return map;
}

struct tile {
    alignas(1024) uint16_t x[64 * 64];
    uint64_t full, empty;
};

static __global__ void copy_kernel(CUtensorMap from, CUtensorMap to, int row, uint16_t *seen)
{
    struct tile &shared = dynamic_shared<struct tile>();
    if (threadIdx.x == 0) mbarrier_init(&shared.full, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&shared.full, sizeof shared.x);
        tma_load_box(shared.x, &from, &shared.full, 0, row, 0, 0);
    }
    mbarrier_wait(&shared.full, 0);
    for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) seen[i] = shared.x[i];
    if (threadIdx.x == 0) {
        tma_store_box(&to, shared.x, 0, row, 0, 0);
        tma_store_commit();
        tma_store_wait();
    }
}

/* An array of 70 rows and 24 columns; the box begins in row 8. */
Test(hopper, copies_are_swizzled_filled_with_zeros_and_clipped)
{
    const size_t rows = 70, columns = 24;
    std::vector<uint16_t> from(rows * columns), to(rows * columns, 0xdead), seen(64 * 64, 1);
    for (size_t i = 0; i < from.size(); i++) from[i] = (uint16_t)(i + 1);
    launch(1, 32, sizeof(struct tile), copy_kernel, map_of(from.data(), rows, columns),
           map_of(to.data(), rows, columns), 8, seen.data());
    for (size_t r = 0; r < 64; r++)
        for (size_t c = 0; c < 64; c++) {
            int inside = 8 + r < rows && c < columns, want = 0;
            if (inside) want = from[(8 + r) * columns + c];
            int got = seen[r * 64 + (c / 8 ^ r % 8) * 8 + c % 8];
            cr_assert(got == want, "row %zu, column %zu: got %d, want %d", r, c, got, want);
        }
    for (size_t i = 0; i < to.size(); i++)
        cr_assert(to[i] == (i < 8 * columns ? 0xdead : from[i]), "stored element %zu", i);
}

struct operands {
    alignas(1024) uint16_t a[64 * 64];
    alignas(1024) uint16_t b[64 * 64];
};

/* The three forms of the product: Q K^T, P V with P in registers, dS K with dS in shared memory. */
enum form { Q_K, P_V, DS_K };

/* d = A B^T or A B of matrices that lie swizzled in shared memory, k = 64; A by descriptor or
 * in registers.  Without `wait` the accumulators are read at once. */
template <enum form FORM>
static __global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *d, bool wait)
{
    struct operands &shared = dynamic_shared<struct operands>();
    float x[32] = {};
    uint32_t registers[4][4];
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
    for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
        int at = i / 64 * 64 + (i / 8 % 8 ^ i / 64 % 8) * 8 + i % 8;
        shared.a[at] = a[i];
        shared.b[at] = b[i];
    }
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) {
            const uint16_t *two = a + (row + i % 2 * 8) * 64 + 16 * k + column + i / 2 * 8;
            registers[k][i] = two[0] | (uint32_t)two[1] << 16;
        }
    __syncthreads();
    for (int k = 0; k < 4; k++)
        if constexpr (FORM == P_V)
            wgmma_pv<__half>(x, registers[k], descriptor_v(shared.b, 64) + 128 * k);
        else if constexpr (FORM == DS_K)
            wgmma_dsk<__half, false>(x, descriptor_qk(shared.a) + 2 * k,
                                     descriptor_v(shared.b, 64) + 128 * k);
        else
            wgmma_qk<__half, false>(x, descriptor_qk(shared.a) + 2 * k,
                                    descriptor_qk(shared.b) + 2 * k);
    wgmma_commit();
    if (wait) wgmma_wait<0>();
    for (int i = 0; i < 32; i++)
        d[(row + i / 2 % 2 * 8) * 64 + 8 * (i / 4) + column + i % 2] = x[i];
    wgmma_wait<0>();
}

/* The largest difference between what the kernel computes and the product of small integers. */
template <enum form FORM> static float product_error(bool wait)
{
    std::vector<uint16_t> a(64 * 64), b(64 * 64);
    std::vector<float> d(64 * 64, NAN);
    auto value = [](int i, int seed) { return (float)((i * 37 + i / 64 * 11 + seed) % 9 - 4); };
    for (int i = 0; i < 64 * 64; i++) {
        a[i] = float_to_half(value(i, 1));
        b[i] = float_to_half(value(i, 5));
    }
    launch(1, 128, sizeof(struct operands), product_kernel<FORM>, a.data(), b.data(),
           d.data(), wait);
    float worst = 0.0f;
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++) {
            float want = 0.0f;
            for (int k = 0; k < 64; k++)
                want += value(i * 64 + k, 1) * value(FORM != Q_K ? k * 64 + j : j * 64 + k, 5);
            if (!(fabsf(d[i * 64 + j] - want) <= worst)) worst = fabsf(d[i * 64 + j] - want);
        }
    return worst;
}

Test(hopper, product_by_descriptors_is_a_b_transposed)
{
    cr_expect(product_error<Q_K>(true) == 0.0f);
}

Test(hopper, product_with_registers_and_rows_of_v_is_a_b)
{
    cr_expect(product_error<P_V>(true) == 0.0f);
}

Test(hopper, product_of_rows_of_ds_and_rows_of_k_is_a_b)
{
    cr_expect(product_error<DS_K>(true) == 0.0f);
}

/* One of the two multiplies: the whole warpgroup 0 or the single warp behind it. */
static __global__ void one_of_two_kernel(int who)
{
    struct operands &shared = dynamic_shared<struct operands>();
    float x[32] = {};
    if ((int)threadIdx.x / 128 != who) return;
    wgmma_qk<__half, false>(x, descriptor_qk(shared.a), descriptor_qk(shared.b));
    wgmma_commit();
    wgmma_wait<0>();
}

Test(hopper, product_needs_a_whole_warpgroup_but_not_a_whole_block)
{
    launch(1, 160, sizeof(struct operands), one_of_two_kernel, 0);
    expect_report([] { launch(1, 160, sizeof(struct operands), one_of_two_kernel, 1); },
                  {"want a whole warpgroup of 128"});
}

/* Executed late, the product is not there yet. */
Test(hopper, accumulators_read_before_the_wait_are_old)
{
    setenv("CUDA_ON_CPU_ORDER", "backward", 1);
    cr_expect(product_error<Q_K>(true) == 0.0f);
    cr_expect(product_error<Q_K>(false) > 0.0f);
}

static __global__ void lonely_kernel()
{
    struct tile &shared = dynamic_shared<struct tile>();
    if (threadIdx.x == 0) mbarrier_init(&shared.full, 2);
    __syncthreads();
    if (threadIdx.x == 0) mbarrier_arrive(&shared.full);
    mbarrier_wait(&shared.full, 0);
}

Test(hopper, deadlock_at_an_mbarrier_says_what_is_missing)
{
    expect_report([] { launch(1, 32, sizeof(struct tile), lonely_kernel); },
                  {"lonely_kernel, block (0,0,0), thread (0,0,0): deadlock: waits in "
                   "mbarrier_wait for phase 0 (1 arrivals and 0 bytes are missing"});
}

static __global__ void hasty_kernel(CUtensorMap from)
{
    struct tile &shared = dynamic_shared<struct tile>();
    mbarrier_init(&shared.full, 1);
    mbarrier_arrive_expect_tx(&shared.full, sizeof shared.x);
    tma_load_box(shared.x, &from, &shared.full, 0, 0, 0, 0);
}

Test(hopper, block_that_does_not_wait_for_its_copy_is_reported)
{
    std::vector<uint16_t> from(64 * 64);
    setenv("CUDA_ON_CPU_ORDER", "backward", 1);
    expect_report(
        [&] { launch(1, 1, sizeof(struct tile), hasty_kernel, map_of(from.data(), 64, 64)); },
        {"before an asynchronous copy has completed"});
}

/* --- Tiles and proxies: the thread that starts a copy, and what the others have done there --- */

enum order { ORDERED, NO_FENCE, NO_WARP_BARRIER };

/* A warp reads a tile, its lane 0 arrives, a thread of another warp copies over the tile. */
static __global__ void overwrite_kernel(CUtensorMap from, enum order order)
{
    struct tile &shared = dynamic_shared<struct tile>();
    if (threadIdx.x == 0) mbarrier_init(&shared.full, 1), mbarrier_init(&shared.empty, 1);
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t r[4];
        ldmatrix(r, shared_address(shared.x + 8 * threadIdx.x));
        if (order != NO_FENCE) fence_proxy_async();
        if (order != NO_WARP_BARRIER) __syncwarp();
        if (threadIdx.x == 0) mbarrier_arrive(&shared.empty);
    } else if (threadIdx.x == 32) {
        mbarrier_wait(&shared.empty, 0);
        mbarrier_arrive_expect_tx(&shared.full, sizeof shared.x);
        tma_load_box(shared.x, &from, &shared.full, 0, 0, 0, 0);
        mbarrier_wait(&shared.full, 0);
    }
}

Test(hopper, copy_over_a_tile_that_is_still_read_is_reported)
{
    std::vector<uint16_t> from(64 * 64);
    const CUtensorMap map = map_of(from.data(), 64, 64);
    const size_t bytes = sizeof(struct tile);
    launch(1, 64, bytes, overwrite_kernel, map, ORDERED);
    expect_report([&] { launch(1, 64, bytes, overwrite_kernel, map, NO_FENCE); },
                  {"has read this tile, line", "without fence_proxy_async()"});
    expect_report([&] { launch(1, 64, bytes, overwrite_kernel, map, NO_WARP_BARRIER); },
                  {"no barrier or arrival orders it before"});
}

/* A warp writes four matrices, of which the next product reads the columns as rows. */
static __global__ void transpose_kernel(uint16_t *seen, bool fence)
{
    struct operands &shared = dynamic_shared<struct operands>();
    const int lane = threadIdx.x % 32;
    uint32_t r[4];
    float d[32];
    for (int i = 0; i < 4; i++) /* element (row, column) of matrix i is 100 i + 10 row + column */
        r[i] = (uint32_t)(100 * i + lane / 4 * 10 + lane % 4 * 2) * 0x10001u + 0x10000u;
    if (threadIdx.x < 32) stmatrix_transposed(shared_address(shared.a + 8 * lane), r);
    if (fence) fence_proxy_async();
    __syncthreads();
    wgmma_dsk<__half, true>(d, descriptor_qk(shared.a), descriptor_v(shared.b, 64));
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) seen[i] = shared.a[i];
}

Test(hopper, stmatrix_transposed_writes_columns_and_wgmma_wants_a_fence)
{
    const size_t bytes = sizeof(struct operands);
    std::vector<uint16_t> seen(256);
    launch(1, 128, bytes, transpose_kernel, seen.data(), true);
    for (int i = 0; i < 256; i++) /* row c of the memory is column c */
        cr_assert(seen[i] == i / 64 * 100 + i % 8 * 10 + i / 8 % 8, "%d: %d", i, seen[i]);
    expect_report([&] { launch(1, 128, bytes, transpose_kernel, seen.data(), false); },
                  {"wgmma: thread", "has written to this tile", "without fence_proxy_async()"});
}

struct floats {
    alignas(128) float in[64], out[64];
    uint64_t full;
};

/* Adds what it loads to `sums`, block after block: block b is the (b + 1)-th. */
static __global__ void add_kernel(const float *from, float *sums, int *counter, bool fence)
{
    struct floats &shared = dynamic_shared<struct floats>();
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.full, 1);
        mbarrier_arrive_expect_tx(&shared.full, sizeof shared.in);
        tma_load_bytes(shared.in, from, sizeof shared.in, &shared.full);
    }
    __syncthreads();
    mbarrier_wait(&shared.full, 0);
    const float *x = shared.in + 4 * threadIdx.x;
    if (threadIdx.x < 16) store_four(shared.out + 4 * threadIdx.x, x[0], x[1], x[2], x[3]);
    if (threadIdx.x < 16) add_four(sums + 64 + 4 * threadIdx.x, x[0], x[1], x[2], x[3]);
    if (fence) fence_proxy_async();
    __syncthreads();
    if (threadIdx.x) return;
    wait_for_count(counter, (int)blockIdx.x);
    tma_add_floats(sums, shared.out);
    tma_store_commit();
    tma_store_wait();
    sums[128 + blockIdx.x] = sums[63];
    count(counter);
}

Test(hopper, blocks_add_floats_in_the_order_that_they_wait_for)
{
    const size_t bytes = sizeof(struct floats);
    std::vector<float> from(64), sums(128 + 9);
    int counter = 0;
    for (int i = 0; i < 64; i++) from[i] = (float)i;
    launch(9, 32, bytes, add_kernel, from.data(), sums.data(), &counter, true);
    for (int i = 0; i < 128; i++) cr_assert(sums[i] == 9.0f * (float)(i % 64), "%d: %g", i, sums[i]);
    for (int b = 0; b < 9; b++) cr_assert(sums[128 + b] == 63.0f * (float)(b + 1), "block %d", b);
    expect_report([&] { launch(1, 32, bytes, add_kernel, from.data(), sums.data(), &counter, false); },
                  {"TMA: thread", "has written to this tile", "without fence_proxy_async()"});
}

/* --- The rungs that consist of these instructions --- */

extern "C" const struct variant first_block_max, tuned, general;

/* Attention of one head of 64 columns; o and lse as the variant rounds them. */
struct head_of_64 {
    size_t queries, keys;
    std::vector<uint16_t> q, k, v, o;
    std::vector<float> lse;

    head_of_64(size_t queries, size_t keys)
        : queries(queries), keys(keys), q(queries * 64), k(keys * 64), v(keys * 64),
          o(queries * 64, 0xffff), lse(queries, NAN)
    {
    }
    void run(const struct variant *by)
    {
        struct problem p = {};
        p.op = OP_ATTENTION;
        p.dtype = BF16;
        p.batch = p.heads_q = p.heads_kv = 1;
        p.seqlen_q = queries;
        p.seqlen_k = keys;
        p.head_dim = p.head_dim_v = 64;
        p.scale = 0.125f;
        std::vector<char> workspace(by->workspace(&p) + 1024);
        struct arrays a = {};
        a.q = q.data();
        a.k = k.data();
        a.v = v.data();
        a.o = o.data();
        a.lse = lse.data();
        a.workspace = workspace.data();
        variant_call(by, &p, &a);
    }
};

/* Without a context in its thread, a launch ends the process. */
Test(hopper, kernels_start_in_a_thread_that_has_called_nothing_before)
{
    for (const struct variant *by : {&tuned, &general}) {
        struct head_of_64 x(1, 1);
        x.v.assign(64, float_to_bfloat(1.0f));
        std::thread([&] { x.run(by); }).join();
        cr_expect(x.o == x.v && x.lse[0] == 0.0f, "%s", by->name);
    }
}

/* Scores rise by 64 in each block of 64 keys, so every block but the first is repaired, and its
 * keys are read by ordinary loads before the copy engine writes others there.  Key 768 + 4 i, of
 * score 768 + 4 i, outweighs those before it e^4 times. */
Test(hopper, blocks_that_are_repaired_give_the_safe_result)
{
    const size_t keys = 1024;
    for (const struct variant *by : {&first_block_max, &tuned, &general}) {
        struct head_of_64 x(100, keys);
        double m = 1020.0, l = 0.0, o = 0.0;
        for (size_t i = 0; i < 100; i++) x.q[i * 64] = float_to_bfloat(1.0f);
        for (size_t j = 0; j < keys; j++) {
            float score = (float)(j / 4 * 4), value = (float)(j / 4 % 7);
            x.k[j * 64] = float_to_bfloat(8.0f * score);
            for (size_t d = 0; d < 64; d++) x.v[j * 64 + d] = float_to_bfloat(value);
            double p = exp((double)bfloat_to_float(x.k[j * 64]) / 8 - m);
            l += p, o += p * value;
        }
        x.run(by);
        for (size_t i = 0; i < 100; i++) {
            cr_assert(fabs(x.lse[i] - (m + log(l))) < 1e-3, "%s: lse[%zu] = %g, want %g",
                      by->name, i, x.lse[i], m + log(l));
            for (size_t d = 0; d < 64; d++)
                cr_assert(fabs(bfloat_to_float(x.o[i * 64 + d]) - o / l) < 0.02,
                          "%s: o[%zu, %zu]", by->name, i, d);
        }
    }
}
