/* executor.h: the fibres, blocks and workers of cuda_on_cpu.cc, for the files that add
 * instructions to it. */
#ifndef EXECUTOR_H
#define EXECUTOR_H

#include "cuda_on_cpu/cuda_on_cpu.h"
#include "cuda_on_cpu/stack_switch.h"

#include <vector>

#ifdef CUDA_ON_CPU_TSAN
#include <sanitizer/tsan_interface.h>
#define TSAN(call) call
#else
#define TSAN(call) (void)0
#endif
#define UNSEEN CUDA_ON_CPU_UNSEEN

namespace cuda_on_cpu
{

static const int N_BARRIERS = 16;

enum state { READY, DONE, AT_BARRIER, AT_WARP, AT_CLUSTER, AT_ADDRESS };

/* Words on what a fibre waits for: "2 arrivals are missing". */
typedef void describe_function(const void *what, char *text, size_t size);

struct copy {
    void *to;
    const void *from;
    size_t bytes, bytes_read;
};

struct fibre {
    context registers;
    char *stack;
    enum state state;
    unsigned rank; /* in its block */
    struct uint3 index;
    struct block *block;
    int barrier, count; /* AT_BARRIER: which one; its result */
    unsigned mask;      /* AT_WARP: with whom, doing what */
    warp_function *compute;
    void *operand;
    unsigned cluster_phase; /* the phase of the cluster barrier it has arrived in */
    bool cluster_arrived;
    const void *what; /* AT_ADDRESS: wake_waiters(what) makes it ready again */
    describe_function *describe; /* or NULL */
    const char *waits_in; /* what it waits in, for reports */
    struct place where;
    std::vector<struct copy> *copies;
    std::vector<size_t> *groups; /* ends of the committed groups in `copies` */
    void *tsan, *asan;
};

struct barrier {
    int arrived, expected, votes;
    unsigned line;
    const char *file;
};

struct block {
    struct uint3 index;
    unsigned rank;        /* in its cluster */
    struct fibre *fibres; /* its first */
    unsigned n_done;
    struct barrier barriers[N_BARRIERS];
    struct {
        unsigned waiting, gone; /* lanes that are AT_WARP, and DONE */
    } warps[32];
    char *shared; /* launch.shared_bytes, ends at a guard page */
};

/* One CPU thread that executes blocks. */
struct worker {
    const struct launch *launch;
    context scheduler;
    struct fibre *current;
    std::vector<struct fibre> fibres;
    std::vector<struct block> blocks;
    std::vector<char *> shared_maps; /* per block: guard page, SHARED_MOST, guard page */
    std::vector<char *> stacks;
    size_t shared_mapped; /* bytes of shared memory that can be accessed */
    unsigned n_fibres, n_blocks, threads_per_block;
    unsigned cluster_arrived, cluster_phase;
    uint64_t cluster, coins; /* which one it executes; coins tossed in it */
    uint64_t serial;         /* counts the clusters that it has executed */
    bool (*finish_one)(void); /* completes a pending copy, if there is one; or NULL */
    const char *function; /* the kernel's name, once it has told it */
    char sync;            /* an address for the thread sanitizer */
    void *tsan, *asan;
    const void *stack_low;
    size_t stack_size;
};
extern __thread struct worker *self;

/* The current fibre waits until somebody wakes the waiters for `what`. */
void wait_for(const void *what, describe_function *describe, const char *name,
              const struct place &where);
void wake_waiters(struct block *b, const void *what);

/* Whether an asynchronous instruction is executed now or as late as possible, both right on a
 * GPU: a fixed hash decides.  CUDA_ON_CPU_ORDER=forward: always now; backward: never. */
bool executes_now(void);

/* As fail(), for another fibre than the current one, where it waits. */
[[noreturn]] void fail_at(const struct fibre *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

} // namespace cuda_on_cpu

#endif
