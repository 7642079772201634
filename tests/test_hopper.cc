/* test_hopper.cc: misuse of Hopper's instructions that their execution on the CPU reports
 * (cuda_on_cpu/hopper_on_cpu.h).  That they compute what the PTX manual says is seen by the rungs,
 * which `check` executes on the CPU and on a GPU. */
#include "kernel_launch.h"

#include <stdlib.h>

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

struct operands {
    alignas(1024) uint16_t a[64 * 64];
    alignas(1024) uint16_t b[64 * 64];
};

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
