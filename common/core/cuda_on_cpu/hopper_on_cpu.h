/* hopper_on_cpu.h: the CPU twins of Hopper's asynchronous instructions, under the names of the
 * wrappers in gpu/ptx.h and 05_flash_cuda/hopper/wgmma.h: mbarriers, TMA, wgmma.
 *
 * Modelled: phases, arrivals and bytes of an mbarrier; boxes, 128-byte swizzle, zeros outside
 * of the array and clipped stores of TMA; descriptors, fragments and groups of wgmma; named
 * barriers.
 *
 * Asynchrony.  An instruction is executed when it is issued or as late as a GPU may: a copy
 * to shared memory when no thread could go on without it, a copy from shared memory and a
 * product when their thread waits for them.  A fixed hash decides (executes_now() in
 * executor.h).  So a kernel that does not wait for a tile, a product or a store computes with
 * what was there before, and one that releases a tile too early with what comes after.
 *
 * Proxies.  A copy to or from a tile, or a product with one, that threads have read by ldmatrix or
 * written by stmatrix or store_four() is reported unless a fence_proxy_async() and an arrival or a
 * barrier lie between (proxies.cc).
 *
 * Sums of e4m3 products have 13 fraction bits, as measured (notes/eight_bits.md).
 *
 * Not modelled: speed, registers, bank conflicts, the other fences, TMA multicast, clusters, rounding of the
 * tensor cores in 16 bits (products are exact in float, the sum over k runs upwards in float). */
#pragma once

#include "cuda_on_cpu/mma_on_cpu.h"
#include "vector/codes8.h"

#define __grid_constant__

/* ---- the driver's tensor map, as far as a kernel for 16-bit arrays needs it ---- */

typedef uint64_t cuuint64_t;
typedef uint32_t cuuint32_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_INVALID_CONTEXT = 201 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

/* Sizes, box and strides of [batch, heads, rows, columns], columns first; strides in bytes,
 * from rows on. */
struct CUtensorMap {
    char *array;
    uint64_t size[4], stride[3];
    uint32_t box[4];
};

enum CUresult cuTensorMapEncodeTiled(
    struct CUtensorMap *map, enum CUtensorMapDataType type, cuuint32_t rank, void *array,
    const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
    const cuuint32_t *step, enum CUtensorMapInterleave interleave,
    enum CUtensorMapSwizzle swizzle, enum CUtensorMapL2promotion promotion,
    enum CUtensorMapFloatOOBfill fill);

/* ---- shared memory addresses: bytes from the start of the block's shared memory ---- */

uint32_t shared_address(const void *p, CALLER);

namespace cuda_on_cpu
{

void *shared_at(uint32_t address, size_t bytes, const struct caller &where);

/* D (64 x n) += A (64 x 16) B (16 x n), or without +; see wgmma_on_cpu.cc.  Of numbers of 8 bits 32. */
enum eight { NOT_EIGHT, EIGHT_E4M3, EIGHT_INT8 };
struct wgmma {
    int n;
    bool bf16, first, a_in_registers, b_transposed;
    uint64_t a, b; /* descriptors; no a where A is in registers */
    enum eight eight = NOT_EIGHT;
    bool operator==(const struct wgmma &) const = default;
};
void wgmma_issue(const struct wgmma &product, float *d, const uint32_t *a,
                 const struct caller &where);
void wgmma_wait_groups(int groups_left, const struct caller &where);
void tma_store(float *to, const float *from, size_t n, bool adds, const struct caller &where);
/* 16 bytes of a tile that the thread reads or writes itself: noted by proxies.cc. */
void *tile_row(uint32_t address, bool is_write, const struct caller &where);
void check_accesses(const char *who, uint32_t address, size_t bytes, bool reads,
                    const struct caller &where);

} // namespace cuda_on_cpu

/* ---- mbarrier, named barriers, setmaxnreg ---- */

void mbarrier_init(uint64_t *bar, int count, CALLER);
void mbarrier_arrive(uint64_t *bar, CALLER);
void mbarrier_arrive_expect_tx(uint64_t *bar, int bytes, CALLER);
void mbarrier_wait(uint64_t *bar, uint32_t phase, CALLER);
static inline void fence_mbarrier_init(void) {}
static inline void mbarrier_arrive_if(uint64_t *bar, bool yes, CALLER)
{
    if (yes) mbarrier_arrive(bar, where);
}

static inline void named_barrier_sync(int id, int n, CALLER)
{
    cuda_on_cpu::barrier_sync(id, n, 0, where);
}
static inline void named_barrier_arrive(int id, int n, CALLER)
{
    cuda_on_cpu::barrier_arrive(id, n, where);
}

template <int N> static inline void setmaxnreg_dec(void) {}
template <int N> static inline void setmaxnreg_inc(void) {}

/* ---- TMA ---- */

void tma_load_box(void *to, const CUtensorMap *map, uint64_t *bar, int column, int row, int head,
              int batch, CALLER);
void tma_store_box(const CUtensorMap *map, const void *from, int column, int row, int head,
               int batch, CALLER);
void tma_load_bytes(void *to, const void *from, int bytes, uint64_t *bar, CALLER);
template <int N> static inline void tma_add_floats(float *to, const float (&from)[N], CALLER)
{
    cuda_on_cpu::tma_store(to, from, N, true, where);
}
static inline void tma_store_bytes(void *to, const void *from, int bytes, CALLER)
{
    cuda_on_cpu::tma_store((float *)to, (const float *)from, bytes / 4, false, where);
}
void tma_store_commit(void);
void tma_store_wait(void);
static inline void tma_store_wait_read(void) { tma_store_wait(); }
void fence_proxy_async(void);
static inline void add_four(float *to, float a, float b, float c, float d)
{
    atomicAdd(to, a), atomicAdd(to + 1, b), atomicAdd(to + 2, c), atomicAdd(to + 3, d);
}

static inline void store_four(float *to, float a, float b, float c, float d, CALLER)
{
    cuda_on_cpu::tile_row(shared_address(to, where), true, where);
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

/* ---- counters between blocks: blocks begin in the order of their numbers, so that whom one waits
 * for is in the same block, runs on another core or has ended (block.cc) ---- */

void wait_for_count(const int *counter, int n, CALLER);
static inline void count(int *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELEASE); }

/* ---- numbers, fragments of one warp ---- */

template <class T> constexpr bool is_bf16 = std::is_same_v<T, __nv_bfloat16>;
template <class T> static inline uint32_t pack(float low, float high)
{
    return T(low).bits | (uint32_t)T(high).bits << 16;
}

static inline void ldmatrix(uint32_t *r, uint32_t address, CALLER)
{
    cuda_on_cpu::ldmatrix(r, cuda_on_cpu::tile_row(address, false, where), false, where);
}
static inline void ldmatrix_transposed(uint32_t *r, uint32_t address, CALLER)
{
    cuda_on_cpu::ldmatrix(r, cuda_on_cpu::tile_row(address, false, where), true, where);
}
static inline void stmatrix(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2,
                            uint32_t r3, CALLER)
{
    const uint32_t r[4] = {r0, r1, r2, r3};
    cuda_on_cpu::stmatrix(cuda_on_cpu::tile_row(address, true, where), r, false, where);
}
static inline void stmatrix_transposed(uint32_t address, const uint32_t *r, CALLER)
{
    cuda_on_cpu::stmatrix(cuda_on_cpu::tile_row(address, true, where), r, true, where);
}
template <class T>
static inline void mma_16x8x16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1, CALLER)
{
    const uint32_t b[2] = {b0, b1};
    cuda_on_cpu::mma_m16n8k16(c, a, b, is_bf16<T>, where);
}

/* ---- wgmma ---- */

static inline void wgmma_fence(void) {}
void wgmma_commit(CALLER);
template <int N> static inline void wgmma_wait(CALLER)
{
    cuda_on_cpu::wgmma_wait_groups(N, where);
}
template <class T, int N> static inline void warpgroup_fence_operand(T (&)[N]) {}

template <class T, bool FIRST, int REGISTERS>
static inline void wgmma_qk(float (&d)[REGISTERS], uint64_t a, uint64_t b, CALLER)
{
    cuda_on_cpu::wgmma_issue({2 * REGISTERS, is_bf16<T>, FIRST, false, false, a, b}, d, NULL, where);
}
template <class T, bool FIRST, int REGISTERS>
static inline void wgmma_qk(float (&d)[REGISTERS], const uint32_t *a, uint64_t b, CALLER)
{
    cuda_on_cpu::wgmma_issue({2 * REGISTERS, is_bf16<T>, FIRST, true, false, 0, b}, d, a, where);
}
template <class T, int REGISTERS>
static inline void wgmma_pv(float (&d)[REGISTERS], const uint32_t *a, uint64_t b, CALLER)
{
    cuda_on_cpu::wgmma_issue({2 * REGISTERS, is_bf16<T>, false, true, true, 0, b}, d, a, where);
}

template <class T, bool FIRST>
static inline void wgmma_dsk(float (&d)[32], uint64_t a, uint64_t b, CALLER)
{
    cuda_on_cpu::wgmma_issue({64, is_bf16<T>, FIRST, false, true, a, b}, d, NULL, where);
}

/* ---- 8 bits (05_flash_cuda/eight_bits/wgmma8.h) ---- */

struct e4m3;
template <class T>
constexpr cuda_on_cpu::eight eight_of =
    std::is_same_v<T, e4m3> ? cuda_on_cpu::EIGHT_E4M3 : cuda_on_cpu::EIGHT_INT8;

template <class T, bool FIRST, int REGISTERS, class NUMBER, class A>
static inline void wgmma8(NUMBER (&d)[REGISTERS], A a, uint64_t b, CALLER)
{
    constexpr bool IN_MEMORY = std::is_same_v<A, uint64_t>;
    const uint64_t memory = IN_MEMORY ? (uint64_t)a : 0;
    cuda_on_cpu::wgmma_issue({2 * REGISTERS, false, FIRST, !IN_MEMORY, false, memory, b, eight_of<T>},
                             (float *)d, IN_MEMORY ? NULL : (const uint32_t *)a, where);
}
static inline uint32_t pack_e4m3(float a, float b, float c, float d)
{
    return float_to_e4m3(a) | (uint32_t)float_to_e4m3(b) << 8 | (uint32_t)float_to_e4m3(c) << 16 |
           (uint32_t)float_to_e4m3(d) << 24;
}
static inline uint32_t copied(uint32_t x) { return x; }
template <class T> static inline uint32_t widen_to_f16(uint32_t x)
{
    const bool is_e4m3 = std::is_same_v<T, e4m3>;
    return pack<__half>(is_e4m3 ? e4m3_to_float((uint8_t)x) : (float)(int8_t)x,
                        is_e4m3 ? e4m3_to_float((uint8_t)(x >> 8)) : (float)(int8_t)(x >> 8));
}
