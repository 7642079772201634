/* gpu.cu: the GPU as the harness sees it, with CUDA. */
#include "gpu/gpu.h"

#include "harness.h"
#include "gpu/cuda_check.h"

static int forbidden;

/* The compute capability, found once.  A driver that is missing or too old for the toolkit
 * leaves `why` set and the program goes on without a GPU. */
struct gpu { int known, arch; char name[256], why[256]; };
static struct gpu gpu;

/* Why there is no GPU, in words that say what to do. */
static void say_why(cudaError_t error)
{
    int driver = 0;
    cudaGetLastError(); /* the error is told; later calls start clean */
    snprintf(gpu.why, sizeof gpu.why, "%s", cudaGetErrorString(error));
    if (error != cudaErrorInsufficientDriver || cudaDriverGetVersion(&driver)) return;
    if (driver == 0) snprintf(gpu.why, sizeof gpu.why, "no CUDA driver found");
    else
        snprintf(gpu.why, sizeof gpu.why, "its driver is for CUDA %d.%d, this program for "
                 "CUDA %d.%d: update the driver", driver / 1000, driver % 1000 / 10,
                 CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static void look(void)
{
    if (gpu.known) return;
    gpu.known = 1;
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess) {
        say_why(error);
        return;
    }
    if (n == 0) {
        snprintf(gpu.why, sizeof gpu.why, "no GPU found");
        return;
    }
    cudaDeviceProp props;
    error = cudaGetDeviceProperties(&props, 0);
    if (error == cudaSuccess) error = cudaFree(0);
    if (error != cudaSuccess) {
        say_why(error);
        return;
    }
    snprintf(gpu.name, sizeof gpu.name, "%s", props.name);
    gpu.arch = props.major * 10 + props.minor;
}

extern "C" int gpu_arch(void)
{
    if (forbidden) return 0;
    look();
    return gpu.arch;
}

extern "C" const char *gpu_name(void)
{
    look();
    return gpu.name;
}

extern "C" const char *gpu_why_not(void)
{
    if (forbidden) return "--device cpu";
    look();
    return gpu.why;
}

extern "C" void gpu_forbid(void) { forbidden = 1; }

/* An empty kernel, compiled for the same architectures as every other one. */
static __global__ void probe_kernel(void) {}

extern "C" const char *gpu_has_code_for(int least)
{
    static char text[200];
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
    if (error != cudaSuccess) {
        cudaGetLastError();
        snprintf(text, sizeof text, "no code for sm_%d: build with CUDA_ARCH=%d", gpu.arch,
                 gpu.arch);
        return text;
    }
    if (attributes.ptxVersion < least) {
        snprintf(text, sizeof text, "needs code for sm_%d, built for sm_%d: CUDA_ARCH=%d",
                 least, attributes.ptxVersion, gpu.arch);
        return text;
    }
    return NULL;
}

extern "C" void *gpu_alloc(size_t bytes)
{
    void *d = NULL;
    cudaError_t error = cudaMalloc(&d, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return NULL;
    }
    CUDA_CHECK(error);
    return d;
}

extern "C" void gpu_free(void *d)
{
    CUDA_CHECK(cudaFree(d));
}

extern "C" size_t gpu_memory_free(void)
{
    size_t free_bytes = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

extern "C" void gpu_upload(void *d, const void *h, size_t bytes)
{
    CUDA_CHECK(cudaMemcpy(d, h, bytes, cudaMemcpyHostToDevice));
}

extern "C" void gpu_download(void *h, const void *d, size_t bytes)
{
    CUDA_CHECK(cudaMemcpy(h, d, bytes, cudaMemcpyDeviceToHost));
}

extern "C" void gpu_wait(void)
{
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
}

static __global__ void read_kernel(const float4 *x, size_t n, float *sink)
{
    float4 s = {0, 0, 0, 0};
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        float4 a = x[i], b = x[i + step], c = x[i + 2 * step], d = x[i + 3 * step];
        s.x += a.x + b.x + c.x + d.x;
        s.y += a.y + b.y + c.y + d.y;
        s.z += a.z + b.z + c.z + d.z;
        s.w += a.w + b.w + c.w + d.w;
    }
    for (; i < n; i += step) s.x += x[i].x;
    if (s.x + s.y + s.z + s.w == 12345.678f) *sink = s.x; /* keeps the loads */
}

/* The sum over a buffer, by every multiprocessor; keeps nothing. */
static void launch_read(const void *from, size_t bytes, void *sink)
{
    int sms = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    const cudaLaunchConfig_t config = {.gridDim = dim3((unsigned)sms * 8), .blockDim = dim3(256)};
    CUDA_CHECK(cudaLaunchKernelEx(&config, read_kernel, (const float4 *)from,
                                  bytes / sizeof(float4), (float *)sink));
}

/* Reads a buffer of twice the L2 cache, so that the next kernel starts cold.  Writing it
 * would leave lines behind that the next kernel has to wait for. */
static void flush_l2(void)
{
    static char *buffer;
    static size_t bytes;
    if (!buffer) {
        int l2 = 0;
        CUDA_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0));
        bytes = 2 * (size_t)(l2 > 0 ? l2 : 64 << 20);
        CUDA_CHECK(cudaMalloc(&buffer, bytes + sizeof(float4)));
        CUDA_CHECK(cudaMemset(buffer, 0, bytes + sizeof(float4)));
    }
    launch_read(buffer, bytes, buffer + bytes);
}

extern "C" double gpu_time(void (*call)(void *), void *context, int cold)
{
    static cudaEvent_t begin, end;
    if (!begin) {
        CUDA_CHECK(cudaEventCreate(&begin));
        CUDA_CHECK(cudaEventCreate(&end));
    }
    if (cold) flush_l2();
    CUDA_CHECK(cudaEventRecord(begin, 0));
    call(context);
    CUDA_CHECK(cudaEventRecord(end, 0));
    CUDA_CHECK(cudaEventSynchronize(end));
    CUDA_CHECK(cudaGetLastError());
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1e-3;
}

struct stream { void *from, *to; size_t bytes; };

static void copy_call(void *context)
{
    struct stream *s = (struct stream *)context;
    CUDA_CHECK(cudaMemcpyAsync(s->to, s->from, s->bytes, cudaMemcpyDeviceToDevice, 0));
}

static void read_call(void *context)
{
    struct stream *s = (struct stream *)context;
    launch_read(s->from, s->bytes, s->to);
}

/* Best bytes per second of call over a buffer of at most 2 GB, read (and written). */
static double best_gbps(void (*call)(void *), double bytes_per_byte)
{
    struct stream s = {NULL, NULL, (size_t)1 << 31};
    while (s.bytes > gpu_memory_free() / 4) s.bytes /= 2;
    s.from = gpu_alloc(s.bytes);
    s.to = gpu_alloc(s.bytes);
    double best = INFINITY;
    if (s.from && s.to) CUDA_CHECK(cudaMemset(s.from, 0x3c, s.bytes));
    for (int i = 0; i < 8 && s.from && s.to; i++) {
        double t = gpu_time(call, &s, 1);
        if (t < best) best = t;
    }
    if (s.from) gpu_free(s.from);
    if (s.to) gpu_free(s.to);
    return bytes_per_byte * (double)s.bytes / best / 1e9; /* 0 without memory */
}

extern "C" double gpu_copy_gbps(void)
{
    static double gbps;
    if (gpu_arch() && gbps == 0) gbps = best_gbps(copy_call, 2);
    return gbps;
}

extern "C" double gpu_read_gbps(void)
{
    static double gbps;
    if (gpu_arch() && gbps == 0) gbps = best_gbps(read_call, 1);
    return gbps;
}
