/* cuda_on_cpu.cc: executes CUDA kernels on the CPU; see cuda_on_cpu.h.
 *
 * A worker is one CPU thread with a stack for each thread of a block (or of a cluster of
 * blocks).  It goes round its fibres and resumes those that are ready.  A round in which
 * none is ready is a deadlock. */
#include "cuda_on_cpu/executor.h"
#include "gpu/cuda_check.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_STACK_REGISTER(low, high) (void)0
#define VALGRIND_MAKE_MEM_UNDEFINED(p, n) (void)0
#endif
__thread struct uint3 threadIdx, blockIdx;
__thread struct dim3 blockDim, gridDim;

namespace cuda_on_cpu
{

/* Sanitizers make frames larger. */
#if defined(ASAN) || defined(CUDA_ON_CPU_TSAN)
static const size_t STACK_BYTES = 512 << 10;
#else
static const size_t STACK_BYTES = 128 << 10;
#endif
static const size_t COLOURS = 16 << 10; /* stacks start at different cache lines: */
static const size_t COLOUR = 5 * 64;    /* 256 of one alignment would evict each other */
static const size_t SHARED_MOST = 227 << 10;   /* as on Hopper, the largest */
static const size_t SHARED_UNASKED = 48 << 10; /* without cudaFuncSetAttribute */

__thread struct worker *self;

/* --- Reports --- */

/* The kernel's name: told by dynamic_shared(), else the function where the error arose,
 * else as the launch writes it. */
static void kernel_name(char *name, size_t size, const char *function)
{
    if (self->function) function = self->function;
    if (function) {
        snprintf(name, size, "%s", function);
        return;
    }
    const char *text = self->launch->text; /* "&config, kernel<64>, arguments" */
    const char *start = strchr(text, ',');
    start = start ? start + 1 + strspn(start + 1, " ") : text;
    snprintf(name, size, "%.*s", (int)strcspn(start, ", "), start);
}

static int describe(char *text, size_t size, const struct fibre *f,
                    const struct place *where)
{
    char name[128];
    kernel_name(name, sizeof name, where ? where->function : NULL);
    const struct uint3 *b = &f->block->index, *t = &f->index;
    return snprintf(text, size, "%s:%u: %s, block (%u,%u,%u), thread (%u,%u,%u): ",
                    where ? where->file : self->launch->file,
                    where ? where->line : (unsigned)self->launch->line, name, b->x, b->y,
                    b->z, t->x, t->y, t->z);
}

[[noreturn]] static void stop(char *text, size_t used)
{
    static std::atomic_flag taken = ATOMIC_FLAG_INIT;
    while (taken.test_and_set()) pause(); /* another CPU thread is reporting and ends us */
    text[used++] = '\n';
    fflush(stdout);
    ssize_t ignored = write(2, text, used);
    (void)ignored;
    _exit(1);
}

[[noreturn]] static void fail_of(const struct fibre *f, const struct place &where,
                                 const char *format, va_list list)
{
    char text[1024];
    int n = describe(text, sizeof text, f, &where);
    n += vsnprintf(text + n, sizeof text - 1 - n, format, list);
    stop(text, (size_t)n < sizeof text - 1 ? n : sizeof text - 2);
}

void fail(const struct place &where, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_of(self->current, where, format, list);
}

void fail_at(const struct fibre *f, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_of(f, f->where, format, list);
}

/* An access that the machine refuses: next to the shared memory or anywhere else. */
static struct sigaction before_us[2]; /* SIGSEGV, SIGBUS */
static void on_fault(int signal, siginfo_t *info, void *)
{
    if (!self || !self->current) { /* not in a kernel: as if we were not here */
        sigaction(signal, &before_us[signal == SIGBUS], NULL);
        return;
    }
    const struct fibre *f = self->current;
    const char *at = (const char *)info->si_addr;
    const char *low = f->block->shared, *high = low + self->launch->shared_bytes;
    char text[1024];
    int n = describe(text, sizeof text, f, NULL);
    if (low && at >= high && at < high + SHARED_MOST)
        n += snprintf(text + n, sizeof text - n,
                      "access %zu bytes past the end of its %zu bytes of shared memory",
                      (size_t)(at - high), self->launch->shared_bytes);
    else if (at >= f->stack && at < f->stack + STACK_BYTES)
        n += snprintf(text + n, sizeof text - n, "its stack of %zu bytes overflows",
                      STACK_BYTES);
    else if (low && at < low && at > low - SHARED_MOST)
        n += snprintf(text + n, sizeof text - n,
                      "access %zu bytes before the start of its shared memory",
                      (size_t)(low - at));
    else
        n += snprintf(text + n, sizeof text - n,
                      "access to an address that is in no array, "
                      "or not aligned (%p)",
                      (const void *)at);
    stop(text, n);
}

static void catch_faults(void)
{
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &ours, &before_us[0]);
    sigaction(SIGBUS, &ours, &before_us[1]);
}

/* --- Fibres --- */

UNSEEN static void to_scheduler(void)
{
    struct worker *w = self;
    struct fibre *f = w->current;
#ifdef ASAN
    __sanitizer_start_switch_fiber(&f->asan, w->stack_low, w->stack_size);
#endif
    TSAN(__tsan_switch_to_fiber(w->tsan, __tsan_switch_to_fiber_no_sync));
    context_switch(&f->registers, &w->scheduler);
#ifdef ASAN
    __sanitizer_finish_switch_fiber(f->asan, &w->stack_low, &w->stack_size);
#endif
}

UNSEEN static void resume(struct worker *w, struct fibre *f)
{
    w->current = f;
    threadIdx = f->index;
    blockIdx = f->block->index;
#ifdef ASAN
    __sanitizer_start_switch_fiber(&w->asan, f->stack, STACK_BYTES);
#endif
    TSAN(__tsan_switch_to_fiber(f->tsan, __tsan_switch_to_fiber_no_sync));
    context_switch(&w->scheduler, &f->registers);
#ifdef ASAN
    __sanitizer_finish_switch_fiber(w->asan, NULL, NULL);
#endif
    w->current = NULL;
}

/* Sets where the current fibre stands and waits until it is made READY again. */
UNSEEN static void wait_as(enum state state, const char *name, const struct place &where)
{
    struct fibre *f = self->current;
    f->state = state;
    f->waits_in = name;
    f->where = where;
    to_scheduler(); /* another thread runs now */
    TSAN(__tsan_acquire(f));
}

UNSEEN static void wake(struct fibre *f)
{
    TSAN(__tsan_release(f));
    f->state = READY;
}

UNSEEN void wait_for(const void *what, describe_function *describe, const char *name,
                     const struct place &where)
{
    self->current->what = what;
    self->current->describe = describe;
    wait_as(AT_ADDRESS, name, where);
}

UNSEEN void wake_waiters(struct block *b, const void *what)
{
    for (unsigned i = 0; i < self->threads_per_block; i++)
        if (b->fibres[i].state == AT_ADDRESS && b->fibres[i].what == what)
            wake(&b->fibres[i]);
}

UNSEEN static void leave(struct fibre *f)
{
    struct block *b = f->block;
    f->copies->clear();
    f->groups->clear();
    f->state = DONE;
    b->n_done++;
    b->warps[f->rank / 32].gone |= 1u << f->rank % 32;
    if (b->barriers[0].arrived > 0)
        for (unsigned i = 0; i < self->threads_per_block; i++) {
            struct fibre *other = &b->fibres[i];
            if (other->state == AT_BARRIER && other->barrier == 0)
                fail_at(other,
                        "waits at a barrier, but thread (%u,%u,%u) has left the "
                        "kernel without reaching it",
                        f->index.x, f->index.y, f->index.z);
        }
}

/* A fibre lives as long as its worker and runs one thread after another. */
UNSEEN static void fibre_main(void)
{
#ifdef ASAN
    __sanitizer_finish_switch_fiber(NULL, &self->stack_low, &self->stack_size);
#endif
    for (;;) {
        struct fibre *f = self->current;
        TSAN(__tsan_acquire(&self->sync));
        self->launch->thread(self->launch->arguments);
        TSAN(__tsan_release(&self->sync));
        leave(f);
        to_scheduler();
    }
}

static char *map(size_t bytes, int protection)
{
    char *p = (char *)mmap(NULL, bytes, protection,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "no memory to execute a block of CUDA threads on the CPU\n");
        exit(1);
    }
    return p;
}

/* Enough fibres for n threads. */
static void grow_fibres(struct worker *w, unsigned n)
{
    /* Fibres that are parked point to themselves, so they must not move: room for the
     * largest cluster of the largest blocks is taken once (and touched when used). */
    enum { MOST = 16 * 1024 };
    if (w->fibres.capacity() < MOST) w->fibres.reserve(MOST);
    size_t had = w->fibres.size();
    if (had >= n) return;
    size_t page = sysconf(_SC_PAGESIZE), bytes = (n - had) * STACK_BYTES;
    char *stacks = map(bytes, PROT_READ | PROT_WRITE);
#ifdef MADV_NOHUGEPAGE
    madvise(stacks, bytes, MADV_NOHUGEPAGE); /* of each stack little is touched */
#endif
    w->fibres.resize(n);
    for (size_t i = had; i < n; i++) {
        struct fibre *f = &w->fibres[i];
        f->stack = stacks + (i - had) * STACK_BYTES;
        mprotect(f->stack, page, PROT_NONE); /* of very many some may be refused */
        (void)VALGRIND_STACK_REGISTER(f->stack, f->stack + STACK_BYTES);
        context_make(&f->registers, f->stack, STACK_BYTES - i * COLOUR % COLOURS,
                     fibre_main);
        f->copies = new std::vector<struct copy>;
        f->groups = new std::vector<size_t>;
        TSAN(f->tsan = __tsan_create_fiber(0));
    }
}

/* Shared memory for n blocks of `bytes` each, whose end touches a guard page. */
static void place_shared(struct worker *w, unsigned n, size_t bytes)
{
    size_t page = sysconf(_SC_PAGESIZE), most = (SHARED_MOST + page - 1) / page * page;
    size_t mapped = (bytes + page - 1) / page * page;
    if (mapped != w->shared_mapped)
        for (char *m : w->shared_maps) mprotect(m + page, most, PROT_NONE);
    while (w->shared_maps.size() < n)
        w->shared_maps.push_back(map(page + most + page, PROT_NONE));
    for (unsigned i = 0; i < n; i++) {
        char *end = w->shared_maps[i] + page + most;
        mprotect(end - mapped, mapped, PROT_READ | PROT_WRITE);
        w->blocks[i].shared = bytes ? end - (bytes + 15) / 16 * 16 : NULL;
    }
    w->shared_mapped = mapped;
}

/* Workers stay for the next launch; the list keeps those reachable whose thread ends. */
static void worker_new(void)
{
    static std::mutex mutex;
    static std::vector<struct worker *> all;
    self = new struct worker();
    stack_t old; /* a fault on an overflowing stack is reported from another one */
    if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE)) {
        stack_t other = {};
        other.ss_size = 64 << 10;
        other.ss_sp = map(other.ss_size, PROT_READ | PROT_WRITE);
        sigaltstack(&other, NULL);
    }
    std::lock_guard<std::mutex> lock(mutex);
    all.push_back(self);
}

static void worker_prepare(struct worker *w, const struct launch *l)
{
    w->launch = l;
    w->n_blocks = l->cluster.x * l->cluster.y * l->cluster.z;
    w->threads_per_block = l->block.x * l->block.y * l->block.z;
    w->n_fibres = w->n_blocks * w->threads_per_block;
    w->function = NULL;
    TSAN(w->tsan = __tsan_get_current_fiber());
    grow_fibres(w, w->n_fibres);
    w->blocks.resize(w->n_blocks);
    place_shared(w, w->n_blocks, l->shared_bytes);
    blockDim = l->block;
    gridDim = l->grid;
}

/* --- Executing the blocks --- */

/* Fills what lies between the guard page and the shared memory, and that memory. */
static void poison(const struct worker *w, const struct block *b)
{
    if (!b->shared) return;
    size_t page = sysconf(_SC_PAGESIZE);
    char *start = (char *)((uintptr_t)b->shared & ~(page - 1));
    memset(start, 0xff, b->shared - start + w->launch->shared_bytes);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(b->shared, w->launch->shared_bytes);
}

/* Whether the bytes before the shared memory are as poison() left them. */
static void check_front(const struct block *b)
{
    if (!b->shared) return;
    size_t page = sysconf(_SC_PAGESIZE), n = (uintptr_t)b->shared & (page - 1);
    for (size_t i = 1; i <= n; i++)
        if (b->shared[-(ptrdiff_t)i] != (char)0xff) {
            char text[1024];
            int used = describe(text, sizeof text, b->fibres, NULL);
            used += snprintf(text + used, sizeof text - used,
                             "or another of its block: "
                             "write %zu bytes before the start of its shared memory",
                             i);
            stop(text, used);
        }
}

/* Block number i of the grid's cluster c; x runs fastest in both. */
static void block_begin(struct worker *w, size_t cluster, unsigned i)
{
    const struct launch *l = w->launch;
    struct block *b = &w->blocks[i];
    size_t across = l->grid.x / l->cluster.x, down = l->grid.y / l->cluster.y;
    b->index.x = (unsigned)(cluster % across) * l->cluster.x + i % l->cluster.x;
    b->index.y = (unsigned)(cluster / across % down) * l->cluster.y +
                 i / l->cluster.x % l->cluster.y;
    b->index.z = (unsigned)(cluster / across / down) * l->cluster.z +
                 i / l->cluster.x / l->cluster.y;
    b->rank = i;
    b->n_done = 0;
    b->fibres = &w->fibres[i * w->threads_per_block];
    memset(b->barriers, 0, sizeof b->barriers);
    memset(b->warps, 0, sizeof b->warps);
    poison(w, b);
    for (unsigned t = 0; t < w->threads_per_block; t++) {
        struct fibre *f = &b->fibres[t];
        f->state = READY;
        f->rank = t;
        f->index = {t % l->block.x, t / l->block.x % l->block.y,
                    t / l->block.x / l->block.y};
        f->block = b;
        f->cluster_arrived = false;
    }
}

/* "a barrier", "mbarrier_wait (2 arrivals are missing)". */
static const char *waits_in(const struct fibre *f, char *text, size_t size)
{
    char detail[100] = "";
    if (f->state != AT_ADDRESS || !f->describe) return f->waits_in;
    f->describe(f->what, detail, sizeof detail);
    snprintf(text, size, "%s (%s)", f->waits_in, detail);
    return text;
}

[[noreturn]] static void report_deadlock(const struct worker *w)
{
    const struct fibre *first = NULL, *other = NULL;
    char text[2][160];
    for (unsigned i = 0; i < w->n_fibres; i++) {
        const struct fibre *f = &w->fibres[i];
        if (f->state == DONE) continue;
        if (!first)
            first = f;
        else if (!other &&
                 (f->state != first->state || f->where.line != first->where.line))
            other = f;
    }
    if (!other)
        for (unsigned i = 0; i < w->n_fibres && !other; i++)
            if (w->fibres[i].state == DONE) other = &w->fibres[i];
    const char *in = waits_in(first, text[0], sizeof text[0]);
    if (!other) fail_at(first, "deadlock: waits in %s, as do all others", in);
    if (other->state == DONE)
        fail_at(first,
                "deadlock: waits in %s, but thread (%u,%u,%u) of block (%u,%u,%u) has "
                "left the kernel",
                in, other->index.x, other->index.y, other->index.z,
                other->block->index.x, other->block->index.y, other->block->index.z);
    fail_at(first,
            "deadlock: waits in %s, while thread (%u,%u,%u) of block (%u,%u,%u) waits "
            "in %s, line %u",
            in, other->index.x, other->index.y, other->index.z, other->block->index.x,
            other->block->index.y, other->block->index.z,
            waits_in(other, text[1], sizeof text[1]), other->where.line);
}

static uint64_t hash(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* CUDA_ON_CPU_ORDER. */
static struct {
    enum { MIXED, FORWARD, BACKWARD, RANDOM } how;
    uint64_t seed;
} order;

static void order_read(void)
{
    const char *text = getenv("CUDA_ON_CPU_ORDER");
    if (!text || !*text || !strcmp(text, "mixed"))
        order.how = order.MIXED;
    else if (!strcmp(text, "forward"))
        order.how = order.FORWARD;
    else if (!strcmp(text, "backward"))
        order.how = order.BACKWARD;
    else if (!strncmp(text, "random:", 7)) {
        order.how = order.RANDOM;
        order.seed = strtoull(text + 7, NULL, 10);
    } else {
        fprintf(stderr,
                "CUDA_ON_CPU_ORDER=%s: want forward, backward, mixed or "
                "random:SEED\n",
                text);
        exit(2);
    }
}

UNSEEN bool executes_now(void)
{
    if (order.how == order.FORWARD) return true;
    if (order.how == order.BACKWARD) return false;
    return hash(order.seed ^ hash(self->cluster) ^ hash(++self->coins)) & 1;
}

/* Runs the blocks of one cluster to their end; without clusters that is one block. */
UNSEEN static void run_cluster(struct worker *w, size_t cluster)
{
    w->cluster_arrived = w->cluster_phase = 0;
    w->serial++;
    w->cluster = cluster;
    w->coins = 0;
    for (unsigned i = 0; i < w->n_blocks; i++) block_begin(w, cluster, i);
    TSAN(__tsan_release(&w->sync));
    unsigned n = w->n_fibres, done = 0;
    for (uint64_t round = 0; done < n; round++) {
        uint64_t bits = hash(order.seed ^ hash(cluster) ^ round);
        bool backward =
            order.how == order.BACKWARD || (order.how == order.MIXED && (bits & 1));
        unsigned start = order.how == order.RANDOM ? bits % n : 0;
        unsigned stride = order.how == order.RANDOM ? 1 + (bits >> 32) % n : 1;
        while (std::gcd(stride, n) != 1) stride--;
        bool progress = false;
        for (unsigned i = 0, at = start; i < n; i++, at = (at + stride) % n) {
            struct fibre *f = &w->fibres[backward ? n - 1 - at : at];
            if (f->state != READY) continue;
            resume(w, f);
            progress = true;
            done += f->state == DONE;
        }
        if (!progress && !(w->finish_one && w->finish_one())) report_deadlock(w);
    }
    if (w->finish_one && w->finish_one())
        fail_at(w->fibres.data(), "or another of its block: leaves the kernel before an "
                                  "asynchronous copy has completed");
    TSAN(__tsan_acquire(&w->sync));
    for (unsigned i = 0; i < w->n_blocks; i++) check_front(&w->blocks[i]);
}

static std::mutex limits_mutex;
static std::map<const void *, size_t> limits; /* cudaFuncSetAttribute */
static enum cudaError_t last_error;

/* What a GPU refuses. */
static enum cudaError_t launch_refused(const struct launch *l)
{
    struct dim3 g = l->grid, b = l->block, c = l->cluster;
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (!b.x || !b.y || !b.z || b.z > 64 || b.x > 1024 || b.y > 1024 ||
        (size_t)b.x * b.y * b.z > 1024)
        return cudaErrorInvalidConfiguration;
    if (!c.x || !c.y || !c.z || g.x % c.x || g.y % c.y || g.z % c.z ||
        c.x * c.y * c.z > 16)
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
    static std::once_flag once;
    std::call_once(once, [] {
        catch_faults();
        order_read();
    });
    size_t n = (size_t)l->grid.x * l->grid.y * l->grid.z /
               (l->cluster.x * l->cluster.y * l->cluster.z);
#pragma omp parallel if (n > 1)
    {
        if (!self) worker_new();
        worker_prepare(self, l);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < n; i++) run_cluster(self, i);
    }
    return cudaSuccess;
}

struct dim3 cluster_of(const struct cudaLaunchConfig_t *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
            const union cudaLaunchAttributeValue *v = &config->attrs[i].val;
            return dim3(v->clusterDim.x, v->clusterDim.y, v->clusterDim.z);
        }
    return dim3(1, 1, 1);
}

/* --- What a kernel calls --- */

UNSEEN void *shared_memory(size_t bytes, size_t alignment, const struct place &where)
{
    struct worker *w = self;
    w->function = where.function;
    if (bytes > w->launch->shared_bytes)
        fail(where, "uses %zu bytes of shared memory, the launch gave %zu", bytes,
             w->launch->shared_bytes);
    void *shared = w->current->block->shared;
    if ((uintptr_t)shared % alignment)
        fail(where,
             "launch with sizeof() of the shared memory, a multiple of %zu, not %zu",
             alignment, w->launch->shared_bytes);
    return shared;
}

/* Lets those go on who wait at the barrier, and resets it. */
UNSEEN static void barrier_open(struct block *b, int id)
{
    struct barrier *bar = &b->barriers[id];
    TSAN(__tsan_acquire(bar));
    self->current->count = bar->votes;
    for (unsigned i = 0; i < self->threads_per_block; i++) {
        struct fibre *f = &b->fibres[i];
        if (f->state != AT_BARRIER || f->barrier != id) continue;
        f->count = bar->votes;
        wake(f);
    }
    bar->arrived = bar->votes = 0;
}

/* Counts the current thread; true when it was the last. */
UNSEEN static bool barrier_count(int id, int threads, int vote, const struct place &where)
{
    struct fibre *f = self->current;
    struct block *b = f->block;
    if (id < 0 || id >= N_BARRIERS) fail(where, "barrier %d: there are 0 to 15", id);
    int whole = self->threads_per_block;
    if (threads < 0 || threads > whole || (threads && threads % 32 && threads != whole))
        fail(where, "barrier %d for %d threads: want a multiple of 32 up to %d", id,
             threads, whole);
    struct barrier *bar = &b->barriers[id];
    if (!threads && b->n_done) {
        unsigned i = 0;
        while (b->fibres[i].state != DONE) i++;
        struct uint3 t = b->fibres[i].index;
        fail(where,
             "reaches a barrier, but thread (%u,%u,%u) has left the kernel before it",
             t.x, t.y, t.z);
    }
    int expected = threads ? threads : whole;
    if (!bar->arrived) {
        bar->expected = expected;
        bar->file = where.file;
        bar->line = where.line;
    }
    if (bar->expected != expected)
        fail(where, "barrier %d for %d threads, but others wait there for %d (line %u)",
             id, expected, bar->expected, bar->line);
    if (!threads && (bar->line != where.line ||
                     (bar->file != where.file && strcmp(bar->file, where.file))))
        fail(where, "divergent barrier: others of its block wait at the one in line %u",
             bar->line);
    TSAN(__tsan_release(bar));
    bar->votes += vote != 0;
    return ++bar->arrived == bar->expected;
}

UNSEEN int barrier_sync(int id, int threads, int vote, const struct place &where)
{
    struct fibre *f = self->current;
    f->barrier = id;
    if (barrier_count(id, threads, vote, where)) {
        barrier_open(f->block, id);
        TSAN(__tsan_acquire(&f->block->barriers[id]));
        return f->count;
    }
    wait_as(AT_BARRIER, "a barrier", where);
    return f->count;
}

UNSEEN void barrier_arrive(int id, int threads, const struct place &where)
{
    if (barrier_count(id, threads, 0, where)) barrier_open(self->current->block, id);
}

UNSEEN unsigned lane(void) { return self->current->rank % 32; }

/* All lanes of f's mask are here: does it and lets the others go on.  False, and nothing
 * done, if some of them wait with another mask. */
UNSEEN static bool warp_meet(struct fibre *f, bool orders, const char *name,
                             const struct place &where)
{
    struct fibre *warp = f - f->rank % 32;
    void *operands[32] = {};
    for (unsigned left = f->mask; left; left &= left - 1) {
        unsigned i = __builtin_ctz(left);
        if (warp[i].mask != f->mask) return false;
        if (warp[i].compute != f->compute)
            fail(where, "%s, while lane %u of the same mask is in %s, line %u", name, i,
                 warp[i].waits_in, warp[i].where.line);
        operands[i] = warp[i].operand;
        if (orders) TSAN(__tsan_acquire((char *)&warp[i] + 1));
    }
    f->compute(operands, f->mask, where);
    f->block->warps[f->rank / 32].waiting &= ~f->mask;
    for (unsigned left = f->mask & ~(1u << f->rank % 32); left; left &= left - 1) {
        struct fibre *other = &warp[__builtin_ctz(left)];
        if (orders)
            wake(other);
        else
            other->state = READY;
    }
    return true;
}

UNSEEN void warp_collective(unsigned mask, warp_function *compute, void *operand,
                            bool orders, const char *name, const struct place &where)
{
    struct fibre *f = self->current;
    unsigned mine = f->rank % 32, width = self->threads_per_block - (f->rank - mine);
    unsigned *waiting = &f->block->warps[f->rank / 32].waiting;
    unsigned gone = f->block->warps[f->rank / 32].gone;
    if (width < 32) mask &= (1u << width) - 1; /* lanes that do not exist */
    if (!(mask >> mine & 1))
        fail(where, "%s: its own lane %u is not in the mask 0x%08x", name, mine, mask);
    if (mask & gone)
        fail(where, "%s: lane %d of the mask 0x%08x has left the kernel", name,
             __builtin_ctz(mask & gone), mask);
    f->mask = mask;
    f->compute = compute;
    f->operand = operand;
    if (orders) TSAN(__tsan_release((char *)f + 1));
    *waiting |= 1u << mine;
    if ((*waiting & mask) == mask && warp_meet(f, orders, name, where)) return;
    wait_as(AT_WARP, name, where);
}

static void nothing(void *const[32], unsigned, const struct place &) {}

struct votes {
    int vote;
    unsigned result;
};

UNSEEN static void ballot_compute(void *const operand[32], unsigned, const struct place &)
{
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        if (operand[i] && ((struct votes *)operand[i])->vote) result |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (operand[i]) ((struct votes *)operand[i])->result = result;
}

unsigned ballot(unsigned mask, int vote, const char *name, const struct place &where)
{
    struct votes v = {vote, 0};
    warp_collective(mask, ballot_compute, &v, false, name, where);
    return v.result;
}

UNSEEN void copy_async(void *to, const void *from, size_t bytes, size_t bytes_read,
                const struct place &where)
{
    if ((bytes != 4 && bytes != 8 && bytes != 16) || bytes_read > bytes)
        fail(where, "cp.async of %zu bytes, %zu of them read", bytes, bytes_read);
    if ((uintptr_t)to % bytes || (bytes_read && (uintptr_t)from % bytes))
        fail(where, "cp.async: addresses must be multiples of %zu", bytes);
    self->current->copies->push_back({to, from, bytes, bytes_read});
}

UNSEEN void copy_async_commit(void)
{
    struct fibre *f = self->current;
    f->groups->push_back(f->copies->size());
}

void copy_async_wait(unsigned groups_left)
{
    std::vector<struct copy> &copies = *self->current->copies;
    std::vector<size_t> &groups = *self->current->groups;
    if (groups.size() <= groups_left) return;
    size_t closed = groups.size() - groups_left, end = groups[closed - 1];
    for (size_t i = 0; i < end; i++) {
        const struct copy &c = copies[i];
        memcpy(c.to, c.from, c.bytes_read);
        memset((char *)c.to + c.bytes_read, 0, c.bytes - c.bytes_read);
    }
    copies.erase(copies.begin(), copies.begin() + end);
    groups.erase(groups.begin(), groups.begin() + closed);
    for (size_t &g : groups) g -= end;
}

UNSEEN unsigned cluster_rank(void) { return self->current->block->rank; }
UNSEEN unsigned cluster_size(void) { return self->n_blocks; }

UNSEEN void *cluster_map(const void *shared, unsigned rank, const struct place &where)
{
    const struct block *mine = self->current->block;
    if (rank >= self->n_blocks)
        fail(where, "block %u of a cluster of %u", rank, self->n_blocks);
    const struct block *other = &self->blocks[rank];
    if (other->n_done)
        fail(where, "block %u of the cluster is leaving: its shared memory ends", rank);
    return other->shared + ((const char *)shared - mine->shared);
}

UNSEEN void cluster_arrive(const struct place &where)
{
    struct fibre *f = self->current;
    if (f->cluster_arrived) fail(where, "arrives twice at the cluster barrier");
    f->cluster_arrived = true;
    f->cluster_phase = self->cluster_phase;
    TSAN(__tsan_release(&self->cluster_phase));
    if (++self->cluster_arrived < self->n_fibres) return;
    TSAN(__tsan_acquire(&self->cluster_phase));
    self->cluster_arrived = 0;
    self->cluster_phase++;
    for (unsigned i = 0; i < self->n_fibres; i++) {
        if (self->fibres[i].state == AT_CLUSTER) self->fibres[i].state = READY;
        TSAN(__tsan_release(&self->fibres[i]));
    }
}

UNSEEN void cluster_wait(const struct place &where)
{
    struct fibre *f = self->current;
    if (!f->cluster_arrived) fail(where, "waits at the cluster barrier without arriving");
    if (f->cluster_phase == self->cluster_phase)
        wait_as(AT_CLUSTER, "a cluster barrier", where);
    TSAN(__tsan_acquire(f));
    f->cluster_arrived = false;
}

} // namespace cuda_on_cpu

void __syncwarp(unsigned mask, const struct cuda_on_cpu::place &where)
{
    char operand;
    cuda_on_cpu::warp_collective(mask, cuda_on_cpu::nothing, &operand, true, "__syncwarp",
                                 where);
}

/* --- The runtime --- */

const char *cudaGetErrorName(enum cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    default: return "cudaErrorInvalidValue";
    }
}

const char *cudaGetErrorString(enum cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "grid, block or cluster size not allowed";
    default: return "shared memory beyond the limit, or another invalid argument";
    }
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

/* What a program makes of a CUDA error.  The library has a function of that name that
 * throws instead, and it comes first. */
__attribute__((weak)) void cuda_failed(const char *file, int line, const char *call,
                                       const char *name, const char *text)
{
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, name, text);
    exit(1);
}
