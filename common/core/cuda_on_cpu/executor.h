/* executor.h: the fibres, blocks and workers that execute kernels, and what the files of this
 * folder offer one another.
 *
 * A worker is one CPU thread with a stack for each thread of a block.  It goes round its fibres
 * and resumes those that are ready.  A round in which none is ready is a deadlock, unless one waits
 * for a count: then another worker may still count.
 *
 *     launch -> schedule -> fibre, memory -> report
 *               barrier, async_copy, tma, wgmma -> fibre, report */
#pragma once

#include "cuda_on_cpu/cuda_on_cpu.h"
#include "cuda_on_cpu/stack_switch.h"

#include <signal.h>

#include <mutex>
#include <vector>

#ifndef __has_feature
#define __has_feature(feature) 0 /* gcc defines the macros __SANITIZE_... instead */
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define ASAN(call) call
#define FRAME 4 /* sanitizers make frames larger */
#else
#define ASAN(call) (void)0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define TSAN(call) call
#define FRAME 4
extern "C" void AnnotateIgnoreWritesBegin(const char *, int), AnnotateIgnoreWritesEnd(const char *, int);
#else
#define TSAN(call) (void)0
#endif
#ifndef FRAME
#define FRAME 1
#endif
#define UNSEEN CUDA_ON_CPU_UNSEEN

namespace cuda_on_cpu
{

static const int N_BARRIERS = 16;
static const size_t STACK_BYTES = FRAME * (128 << 10);
static const size_t SHARED_MOST = 227 << 10;   /* as on Hopper, the largest */

enum state { READY, DONE, AT_WARP, AT_ADDRESS, AT_COUNT };

/* Words on what a fibre waits for: "2 arrivals are missing". */
typedef void describe_function(const void *what, char *text, size_t size);

struct copy {
    void *to;
    const void *from;
    size_t bytes, bytes_read;
};

/* What a thread waits for that waits for other blocks, too: *counter >= n. */
struct awaited_count {
    const int *counter;
    int n;
};

/* An ordinary access to a row of 128 bytes of shared memory: proxies.cc. */
enum access_order { NOT_FENCED, FENCED, IN_WARP };
struct access {
    uint32_t row, line;
    bool is_write;
    enum access_order order;
};

struct fibre {
    context registers;
    char *stack;
    enum state state;
    unsigned rank; /* in the block */
    struct uint3 index;
    unsigned mask;      /* AT_WARP: with whom, doing what */
    warp_function *compute;
    void *operand;
    struct awaited_count awaited; /* AT_COUNT */
    const void *what; /* AT_ADDRESS: wake_waiters(what) makes it ready again */
    describe_function *describe; /* of what, or NULL */
    const char *waits_in; /* what it waits in, for reports */
    struct caller where;
    std::vector<struct copy> copies;
    std::vector<std::vector<struct copy>> groups; /* those that are committed */
    std::vector<struct access> accesses;
    void *tsan, *asan;
};

struct barrier {
    int arrived, expected, votes, result; /* votes of the last time */
    unsigned line;
    const char *file;
};

struct block {
    struct uint3 index;
    struct barrier barriers[N_BARRIERS];
    struct {
        unsigned waiting, gone; /* lanes that are AT_WARP, and DONE */
    } warps[32];
    char *shared; /* launch.shared_bytes, ends at a guard page */
};

/* The workers of a launch. */
struct crew {
    std::mutex mutex;
    int busy; /* have blocks to execute and can go on */
    std::vector<struct worker *> stuck; /* can go on after a count only */
};

/* What one CPU thread executes blocks with. */
struct worker {
    const struct launch *launch;
    struct crew *crew;
    context scheduler;
    struct fibre *current;
    std::vector<struct fibre> fibres;
    struct block block;
    char *shared_map; /* guard page, SHARED_MOST, guard page */
    std::vector<char *> stacks; /* of some fibres each, above a guard page */
    char *signal_stack; /* a fault on an overflowing stack is reported from here */
    stack_t signal_stack_before;
    size_t shared_mapped; /* bytes of shared memory that can be accessed */
    unsigned n_fibres;     /* threads of the block */
    uint64_t number, coins; /* which block it executes; coins tossed in it */
    uint64_t serial;        /* of that block among all that were ever executed */
    bool (*finish_one)(void); /* completes a pending copy, if there is one; or NULL */
    const char *function; /* the kernel's name, once it has told it */
    char sync;            /* an address for the thread sanitizer */
    void *tsan, *asan;
    const void *stack_low;
    size_t stack_size;
};
inline __thread struct worker *self; /* of this CPU thread */

/* While one of these lives the thread sanitizer sees nothing.  It takes the fibres for threads, and
 * would take for a race what several of them and the scheduler write down in lists: one CPU thread
 * executes them all.  The functions of those lists are not ours, so UNSEEN does not reach them. */
struct unseen {
    unseen() { TSAN(AnnotateIgnoreWritesBegin(__FILE__, __LINE__)); }
    ~unseen() { TSAN(AnnotateIgnoreWritesEnd(__FILE__, __LINE__)); }
};

/* A T for the block that this CPU thread executes, T{} at its begin. */
template <class T> UNSEEN static inline T &of_block(void)
{
    struct unseen now;
    static __thread struct { uint64_t serial; T *state; } mine;
    if (!mine.state) mine.state = new T();
    if (mine.serial != self->serial) *mine.state = T();
    mine.serial = self->serial;
    return *mine.state;
}

/* Whether this host thread has a current context, as the driver's calls want it: it gets one by
 * cudaSetDevice() or a launch. */
inline __thread bool has_context;

/* --- report.cc --- */
/* As fail(), for any fibre; where {}: at the launch. */
[[noreturn]] void fail_at(const struct fibre *f, const struct caller &where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define OVERFLOWS "its stack of %zu bytes overflows"
[[noreturn]] void report_deadlock(const struct worker *w);
void catch_faults(void);

/* --- memory.cc --- */
char *map(size_t bytes, int protection);
void protect(char *start, size_t bytes, int protection);
void place_shared(struct worker *w, size_t bytes);
void poison(const struct worker *w);
void check_front(const struct worker *w);

/* --- fibre.cc --- */
void grow_fibres(struct worker *w, unsigned n);
/* Runs the fibre until it waits or leaves. */
void resume(struct worker *w, struct fibre *f);
void wait_as(enum state state, const void *what, describe_function *describe, const char *name,
             const struct caller &where);
void wake(struct fibre *f);
/* The current fibre waits until somebody wakes the waiters for `what`. */
static inline void wait_for(const void *what, describe_function *describe, const char *name,
                            const struct caller &where)
{
    wait_as(AT_ADDRESS, what, describe, name, where);
}
void wake_waiters(const void *what);

/* --- proxies.cc: what orders a thread's accesses --- */
void order_in_warp(struct fibre *f);
void order_in_block(struct fibre *f);
void order_by_arrival(struct fibre *f);

/* --- block.cc --- */
void order_read(void);
void run_block(struct worker *w, size_t number);
/* Whether an asynchronous instruction is executed now or as late as possible, both right on a
 * GPU: a fixed hash decides.  CUDA_ON_CPU_ORDER=forward: always now; backward: never. */
bool executes_now(void);

} // namespace cuda_on_cpu
