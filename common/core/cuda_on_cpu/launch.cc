/* launch.cc: a launch: is it allowed, who executes which block; and what else the host calls. */
#include "cuda_on_cpu/executor.h"

#include <omp.h>
#include <signal.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

__thread struct dim3 blockDim, gridDim;

namespace cuda_on_cpu
{

static const size_t SHARED_UNASKED = 48 << 10; /* without cudaFuncSetAttribute */

static std::mutex idle_mutex;
static std::vector<struct worker *> idle; /* workers stay for the next launch */

static struct worker *idle_worker(void)
{
    std::lock_guard<std::mutex> lock(idle_mutex);
    if (idle.empty()) return new struct worker();
    struct worker *w = idle.back();
    idle.pop_back();
    return w;
}

/* The calling CPU thread gets a worker that is ready for the launch. */
static void begin_work(const struct launch *l, struct crew *crew)
{
    struct worker *w = self = idle_worker();
    const size_t signal_bytes = 64 << 10;
    if (!w->signal_stack) w->signal_stack = map(signal_bytes, PROT_READ | PROT_WRITE);
    stack_t ours = {};
    ours.ss_sp = w->signal_stack;
    ours.ss_size = signal_bytes;
    sigaltstack(&ours, &w->signal_stack_before);
    w->launch = l;
    w->crew = crew;
    w->n_fibres = l->block.x * l->block.y * l->block.z;
    w->function = NULL;
    TSAN(w->tsan = __tsan_get_current_fiber());
    grow_fibres(w, w->n_fibres);
    place_shared(w, l->shared_bytes);
    blockDim = l->block;
    gridDim = l->grid;
}

static void end_work(void)
{
    sigaltstack(&self->signal_stack_before, NULL);
    std::lock_guard<std::mutex> lock(idle_mutex);
    idle.push_back(self);
    self = NULL;
}

static std::mutex limits_mutex;
static std::map<const void *, size_t> limits; /* cudaFuncSetAttribute */
static enum cudaError_t last_error;

/* What a GPU refuses. */
static enum cudaError_t launch_refused(const struct launch *l)
{
    struct dim3 g = l->grid, b = l->block;
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (!b.x || !b.y || !b.z || b.z > 64 || b.x > 1024 || b.y > 1024 ||
        (size_t)b.x * b.y * b.z > 1024)
        return cudaErrorInvalidConfiguration;
    std::lock_guard<std::mutex> lock(limits_mutex);
    auto limit = limits.find(l->kernel);
    size_t most = limit == limits.end() ? SHARED_UNASKED : limit->second;
    return l->shared_bytes > most ? cudaErrorInvalidValue : cudaSuccess;
}

enum cudaError_t set_shared_limit(const void *kernel, int bytes)
{
    if (bytes < 0 || (size_t)bytes > SHARED_MOST)
        return last_error = cudaErrorInvalidValue;
    std::lock_guard<std::mutex> lock(limits_mutex);
    limits[kernel] = (size_t)bytes < SHARED_UNASKED ? SHARED_UNASKED : bytes;
    return cudaSuccess;
}

enum cudaError_t execute(const struct launch *l)
{
    enum cudaError_t error = launch_refused(l);
    if (error) return last_error = error;
    has_context = true;
    static std::once_flag once;
    std::call_once(once, [] {
        catch_faults();
        order_read();
    });
    size_t n = (size_t)l->grid.x * l->grid.y * l->grid.z;
    struct crew crew = {};
#pragma omp parallel if (n > 1)
    {
#pragma omp single
        crew.busy = omp_get_num_threads();
#pragma omp for schedule(dynamic) nowait
        for (size_t i = 0; i < n; i++) {
            if (!self) begin_work(l, &crew); /* threads without blocks need no worker */
            run_block(self, i);
        }
        if (self) end_work();
        std::lock_guard<std::mutex> lock(crew.mutex);
        crew.busy--;
    }
    return cudaSuccess;
}

} // namespace cuda_on_cpu

/* --- The runtime --- */

static const struct error { enum cudaError_t error; const char *name, *text; } errors[] = {
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "shared memory beyond the limit, or another invalid argument"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "grid or block size not allowed"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaSuccess, "cudaSuccess", "no error"}};

static const struct error *error_of(enum cudaError_t error)
{
    for (const struct error &e : errors)
        if (e.error == error) return &e;
    return errors;
}

const char *cudaGetErrorName(enum cudaError_t error) { return error_of(error)->name; }
const char *cudaGetErrorString(enum cudaError_t error) { return error_of(error)->text; }

enum cudaError_t cudaSetDevice(int)
{
    cuda_on_cpu::has_context = true;
    return cudaSuccess;
}

enum cudaError_t cudaGetLastError(void)
{
    enum cudaError_t error = cuda_on_cpu::last_error;
    cuda_on_cpu::last_error = cudaSuccess;
    return error;
}

/* The same answer on every machine, so that what depends on it repeats. */
enum cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int)
{
    switch (what) {
    case cudaDevAttrMultiProcessorCount: *value = 16; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 8; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = cuda_on_cpu::SHARED_MOST;
        break;
    }
    return cudaSuccess;
}
