/* place_gpu.cu: memory of the GPU as a place.
 *
 * The judge allocates, and the worker inherits a descriptor of this one allocation
 * (gpu_share.h).  Inputs are drawn and results compared in the judge; neither lies on the GPU
 * where a worker could read it.  A kernel of the worker may still run when its process has been
 * stopped: look() then sees what it has not written yet, and its clock includes the wait. */
#include "harness.h"

#include "gpu/cuda_check.h"
#include "gpu/gpu.h"
#include "grader/gpu_share.h"

extern "C" {
#include "measurement/timing.h"
#include "place.h"
}

enum { AT_MOST = 256 }; /* words in one look */

/* What no worker can reach: where a copy goes, and the words of a look. */
struct own { char *copy; size_t copy_bytes; size_t *at; uint32_t *seen; };

static int make(struct place *place, struct worker *w, size_t n)
{
    struct own *own = (struct own *)calloc(1, sizeof *own);
    place->own = own;
    place->base = share_new(n, &w->gpu_fd);
    place->gpu_bytes = n;
    if (!own || !place->base) return 0;
    own->at = (size_t *)gpu_alloc(AT_MOST * sizeof *own->at);
    own->seen = (uint32_t *)gpu_alloc(AT_MOST * sizeof *own->seen);
    if (!own->at || !own->seen) return 0;
    return 1;
}

static void put(struct place *place, size_t at, const void *from, size_t n)
{
    gpu_upload(place->base + at, from, n);
}

static void get(struct place *place, void *to, size_t at, size_t n)
{
    gpu_download(to, place->base + at, n);
}

/* seen[i] = the word at at[i], one thread each, past the caches. */
static __global__ void look_kernel(const char *base, const size_t *at, int n, uint32_t *seen)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) seen[i] = *(const volatile uint32_t *)(base + at[i]);
}

static void look(struct place *place, const size_t *at, int n, uint32_t *seen)
{
    const struct own *own = (const struct own *)place->own;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(n + 255) / 256);
    config.blockDim = dim3(256);
    gpu_upload(own->at, at, (size_t)n * sizeof *at);
    CUDA_CHECK(cudaLaunchKernelEx(&config, look_kernel, (const char *)place->base,
                                  (const size_t *)own->at, n, own->seen));
    gpu_download(seen, own->seen, (size_t)n * sizeof *seen);
}

/* The same clock and the same look as for a worker, so that what they take is on both sides. */
static double copy(struct place *place, size_t n)
{
    struct own *own = (struct own *)place->own;
    size_t at[AT_MOST] = {0};
    uint32_t seen[AT_MOST];
    if (own->copy_bytes < n) {
        if (own->copy) gpu_free(own->copy);
        own->copy = (char *)gpu_alloc(n);
        own->copy_bytes = own->copy ? n : 0;
    }
    if (!own->copy) return 0;
    gpu_wait();
    double t = seconds_now();
    CUDA_CHECK(cudaMemcpyAsync(own->copy, place->base, n, cudaMemcpyDeviceToDevice, 0));
    gpu_wait();
    look(place, at, AT_MOST, seen);
    return seconds_now() - t;
}

static const struct place_kind kind = {make, put, get, look, copy};

extern "C" const struct place_kind *on_gpu(void)
{
    return gpu_arch() ? &kind : NULL;
}
