/* test_cuda_instructions.cc: ldmatrix, mma.sync and cp.async as the CPU executes them. */
#include "kernel_launch.h"

#include "cuda_on_cpu/mma_on_cpu.h"

struct matrices {
    alignas(16) uint16_t a[16][24], b[8][24], bt[16][24]; /* rows padded to 48 bytes */
};

/* d (16, 8) = a (16, 16) b (16, 8) + 1, with B from its columns (the rows of b) or, by
 * .trans, from its rows (bt). */
static __global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *d,
                                      int bf16, int trans, int k)
{
    struct matrices &shared = dynamic_shared<struct matrices>();
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) shared.a[i / 16][i % 16] = a[i];
    for (int i = lane; i < 128; i += 32) {
        shared.b[i % 8][i / 8] = b[i];
        shared.bt[i / 8][i % 8] = b[i];
    }
    __syncthreads();
    uint32_t fa[4], fb[2];
    cuda_on_cpu::ldmatrix(fa, 4, &shared.a[lane % 16][lane / 16 * 8], false);
    if (trans)
        cuda_on_cpu::ldmatrix(fb, 2, &shared.bt[lane % 16][0], true);
    else
        cuda_on_cpu::ldmatrix(fb, 2, &shared.b[lane % 8][lane / 8 % 2 * 8], false);
    float acc[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (k == 16)
        cuda_on_cpu::mma_m16n8(acc, fa, fb, acc, 16, bf16);
    else { /* as on sm_75: two of half the depth */
        cuda_on_cpu::mma_m16n8(acc, fa, fb, acc, 8, bf16);
        cuda_on_cpu::mma_m16n8(acc, fa + 2, fb + 1, acc, 8, bf16);
    }
    int g = lane / 4, c = lane % 4 * 2;
    d[g * 8 + c] = acc[0];
    d[g * 8 + c + 1] = acc[1];
    d[(g + 8) * 8 + c] = acc[2];
    d[(g + 8) * 8 + c + 1] = acc[3];
}

Test(cuda_on_cpu, mma_of_ldmatrix_fragments_is_the_matrix_product)
{
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int way = 0; way < 4; way++) {
            uint16_t a[256], b[128];
            float d[128], x[256], y[128]; /* small integers: exact in both types */
            for (int i = 0; i < 256; i++) x[i] = (float)((i * 37 + i / 16) % 17 - 8);
            for (int i = 0; i < 128; i++) y[i] = (float)((i * 23 + i / 8) % 13 - 6);
            for (int i = 0; i < 256; i++)
                a[i] = bf16 ? float_to_bfloat(x[i]) : float_to_half(x[i]);
            for (int i = 0; i < 128; i++)
                b[i] = bf16 ? float_to_bfloat(y[i]) : float_to_half(y[i]);
            launch(1, 32, sizeof(struct matrices), product_kernel, a, b, d, bf16, way % 2,
                   way / 2 ? 16 : 8);
            for (int i = 0; i < 16; i++)
                for (int j = 0; j < 8; j++) {
                    float want = 1.0f;
                    for (int l = 0; l < 16; l++) want += x[i * 16 + l] * y[l * 8 + j];
                    cr_assert(d[i * 8 + j] == want,
                              "bf16 %d, way %d, element (%d, %d): got %g, want %g", bf16,
                              way, i, j, d[i * 8 + j], want);
                }
        }
}

/* Copies two groups; waits for the first, for both, or not at all. */
static __global__ void copy_kernel(const float *x, float *y, int wait)
{
    struct numbers &shared = dynamic_shared<struct numbers>();
    int i = threadIdx.x;
    cuda_on_cpu::cp_async(&shared.x[4 * i], &x[4 * i], 16, 16);
    cuda_on_cpu::cp_async_commit();
    cuda_on_cpu::cp_async(&shared.x[128 + 4 * i], &x[128 + 4 * i], 16, i == 5 ? 8 : 16);
    cuda_on_cpu::cp_async_commit();
    if (wait > 0) cuda_on_cpu::cp_async_wait(2 - wait);
    __syncthreads();
    for (int e = i; e < 256; e += 32) y[e] = shared.x[255 - e];
}

Test(cuda_on_cpu, asynchronous_copies_take_place_in_the_wait)
{
    alignas(16) float x[256];
    float y[256];
    for (int i = 0; i < 256; i++) x[i] = (float)(i + 1);
    for (int wait = 0; wait < 3; wait++) {
        launch(1, 32, sizeof(struct numbers), copy_kernel, x, y, wait);
        for (int e = 0; e < 256; e++) {
            bool arrived = 255 - e < 128 * wait;
            bool filled = 255 - e == 150 || 255 - e == 151; /* beyond the 8 bytes read */
            float want = filled ? 0.0f : x[255 - e];
            cr_assert(arrived ? y[e] == want : isnan(y[e]), "wait %d, element %d: %g",
                      wait, e, y[e]);
        }
    }
}
