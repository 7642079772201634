/* copier.cu: the yardstick of a project on a GPU: a program of ours in a worker's place.
 *
 * Asked for a softmax it copies x to y; asked for attention it launches a kernel that does nothing.
 * The judge times it as it times a submission (speed.c), so the way there and back is the same. */
#include "harness.h"

#include "gpu/cuda_check.h"

static void copy(const struct problem *p, const struct arrays *a)
{
    CUDA_CHECK(cudaMemcpyAsync(a->y, a->x, p->rows * p->cols * dtype_size(p->dtype),
                               cudaMemcpyDeviceToDevice, (cudaStream_t)a->stream));
}

static __global__ void empty_kernel(void) {}

static void nothing(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = {};
    (void)p;
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(cudaLaunchKernelEx(&config, empty_kernel));
}

GPU_VARIANT(project) = {
    .name = "copier",
    .idea = "a copy, or nothing",
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = TYPE(F32) | TYPE(F16),
    .does = {{OP_SOFTMAX, copy}, {OP_ATTENTION, nothing}},
};
