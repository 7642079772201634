/* gpu_softmax.cu: project of stage 3, 40 points: softmax at the speed of a GPU's memory.
 *
 * This program is right and slow: a thread computes a whole row, so neighbouring threads read
 * addresses that lie a row apart.  Make it fast.  Everything may change: blocks, shared memory,
 * packs of 16 bytes, rows that stay on the chip.  It must stay right in all cases: any length,
 * masked scores (-INFINITY), rows that are all masked (y = 0), NaN (the row becomes NaN), scores
 * up to 1e30.  One wrong case, and the speed does not count.
 *
 * The cases are executed on the CPU too, so write the kernel as common/core/cuda_on_cpu/cuda_on_cpu.h
 * says.  The points are for the share of what copying the same rows takes; the shares for half and
 * all points depend on the GPU (common/products/course/targets.csv).
 *
 * Speed: softmax:8192x65536 in f32, as a share of copy.
 * Judged like: safe_row
 * Right, and how fast:  make project EX=gpu_softmax */
#include "course/exercise.h"

enum { THREADS = 128 };

/* Softmax of row i by thread i.
 *   x (rows, cols)  scores; -INFINITY means masked      y (rows, cols)  probabilities */
static __global__ void softmax_kernel(const float *x, float *y, size_t rows, size_t cols)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (i >= rows) return;
    const float *x_i = x + i * cols;
    float *y_i = y + i * cols, m = -INFINITY, l = 0;
    for (size_t j = 0; j < cols; j++) {
        if (x_i[j] == -INFINITY) continue;
        float m_new = x_i[j] > m ? x_i[j] : m;
        l = l * expf(m - m_new) + expf(x_i[j] - m_new);
        m = m_new;
    }
    for (size_t j = 0; j < cols; j++) y_i[j] = l == 0 ? 0 : expf(x_i[j] - m) / l;
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((p->rows + THREADS - 1) / THREADS));
    config.blockDim = dim3(THREADS);
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(cudaLaunchKernelEx(&config, softmax_kernel, (const float *)a->x, (float *)a->y,
                                  p->rows, p->cols));
}

PROGRAM(3, gpu_softmax, "softmax at the speed of a GPU's memory",
        .types = TYPE(F32), .max_score = INFINITY, .masked_rows = 1,
        .does = {{OP_SOFTMAX, softmax}})
