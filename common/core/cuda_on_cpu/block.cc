/* block.cc: executes a block: which of its threads runs next. */
#include "cuda_on_cpu/executor.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <numeric>

namespace cuda_on_cpu
{

/* The x of blocks and of threads runs fastest. */
static void block_begin(struct worker *w)
{
    const struct launch *l = w->launch;
    struct block *b = &w->block;
    b->index.x = (unsigned)(w->number % l->grid.x);
    b->index.y = (unsigned)(w->number / l->grid.x % l->grid.y);
    b->index.z = (unsigned)(w->number / l->grid.x / l->grid.y);
    memset(b->barriers, 0, sizeof b->barriers);
    memset(b->warps, 0, sizeof b->warps);
    poison(w);
    for (unsigned t = 0; t < w->n_fibres; t++) {
        struct fibre *f = &w->fibres[t];
        f->state = READY;
        f->rank = t;
        f->index = {t % l->block.x, t / l->block.x % l->block.y,
                    t / l->block.x / l->block.y};
        f->accesses.clear();
    }
}

static uint64_t hash(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* CUDA_ON_CPU_ORDER, by its first letter; mixed without one. */
static struct {
    enum { MIXED = 'm', FORWARD = 'f', BACKWARD = 'b', RANDOM = 'r' } how;
    uint64_t seed;
} order;

void order_read(void)
{
    const char *text = getenv("CUDA_ON_CPU_ORDER");
    if (!text || !*text) text = "mixed";
    if (strcmp(text, "mixed") && strcmp(text, "forward") && strcmp(text, "backward") &&
        strncmp(text, "random:", 7)) {
        fprintf(stderr, "CUDA_ON_CPU_ORDER=%s: want forward, backward, mixed or random:SEED\n", text);
        exit(2);
    }
    order.how = (decltype(order.how))*text;
    if (order.how == order.RANDOM) order.seed = strtoull(text + 7, NULL, 10);
}

UNSEEN bool executes_now(void)
{
    if (order.how == order.FORWARD) return true;
    if (order.how == order.BACKWARD) return false;
    return hash(order.seed ^ hash(self->number) ^ hash(++self->coins)) & 1;
}

/* ---- Waits for a count, by which blocks wait for one another. ---- */

static bool has_count(const struct fibre &f)
{
    return f.state == AT_COUNT &&
           __atomic_load_n(f.awaited.counter, __ATOMIC_ACQUIRE) >= f.awaited.n;
}

static bool some_has_count(const struct worker *w)
{
    return std::any_of(w->fibres.begin(), w->fibres.begin() + w->n_fibres, has_count);
}

/* No thread of the block can go on.  Waits until another worker has counted for one of them; false
 * if none ever will, because all workers wait like this or have no block left. */
UNSEEN static bool others_count(struct worker *w)
{
    struct crew *crew = w->crew;
    std::unique_lock<std::mutex> lock(crew->mutex);
    bool waits = std::any_of(w->fibres.begin(), w->fibres.begin() + w->n_fibres,
                             [](const struct fibre &f) { return f.state == AT_COUNT; });
    if (!waits) return false;
    crew->stuck.push_back(w);
    crew->busy--;
    while (!some_has_count(w)) {
        if (!crew->busy &&
            std::none_of(crew->stuck.begin(), crew->stuck.end(), some_has_count))
            return false;
        lock.unlock();
        sched_yield();
        lock.lock();
    }
    crew->stuck.erase(std::find(crew->stuck.begin(), crew->stuck.end(), w));
    crew->busy++;
    return true;
}

/* In every other block a warp or a warpgroup sleeps: it goes on only when nobody else can.  On a GPU nothing
 * bounds how slow one is; in rounds alone none is two tiles behind.   n: of its threads, 0: nobody sleeps */
struct sleeper { unsigned first, n; };
static struct sleeper sleeper_of(size_t number, unsigned n)
{
    uint64_t bits = hash(~order.seed ^ hash(number));
    unsigned size = bits & 2 ? 32 : 128, parts = n / size;
    bool pictured = getenv("CUDA_ON_CPU_TRACE"); /* a figure shows what is usual */
    if (order.how == order.FORWARD || order.how == order.BACKWARD || pictured || bits & 1 || parts < 2)
        return {n, 0};
    return {(unsigned)(bits >> 8) % parts * size, size};
}

/* Runs a block to its end. */
UNSEEN void run_block(struct worker *w, size_t number)
{
    static std::atomic<uint64_t> blocks;
    w->serial = ++blocks;
    w->number = number;
    w->coins = 0;
    block_begin(w);
    TSAN(__tsan_release(&w->sync));
    unsigned n = w->n_fibres, done = 0;
    struct sleeper sleeper = sleeper_of(number, n);
    bool awake = false;
    for (uint64_t round = 0; done < n; round++) {
        uint64_t bits = hash(order.seed ^ hash(number) ^ round);
        bool backward =
            order.how == order.BACKWARD || (order.how == order.MIXED && (bits & 1));
        unsigned start = order.how == order.RANDOM ? bits % n : 0;
        unsigned stride = order.how == order.RANDOM ? 1 + (bits >> 32) % n : 1;
        while (std::gcd(stride, n) != 1) stride--;
        bool progress = false;
        for (unsigned i = 0, at = start; i < n; i++, at = (at + stride) % n) {
            struct fibre *f = &w->fibres[backward ? n - 1 - at : at];
            if (has_count(*f)) wake(f);
            if (f->state != READY || (!awake && f->rank - sleeper.first < sleeper.n)) continue;
            resume(w, f);
            progress = true;
            done += f->state == DONE;
        }
        if (progress || (w->finish_one && w->finish_one())) awake = false;
        else if (!awake && sleeper.n) awake = true;
        else if (!others_count(w)) report_deadlock(w);
    }
    if (w->finish_one && w->finish_one())
        fail_at(w->fibres.data(), w->fibres[0].where, "or another of its block: leaves the kernel before "
                "an asynchronous copy has completed");
    TSAN(__tsan_acquire(&w->sync));
    check_front(w);
}

} // namespace cuda_on_cpu

static void describe_count(const void *what, char *text, size_t size)
{
    const auto *awaited = (const struct cuda_on_cpu::awaited_count *)what;
    snprintf(text, size, "the counter is %d and must be %d",
             __atomic_load_n(awaited->counter, __ATOMIC_RELAXED), awaited->n);
}

UNSEEN void wait_for_count(const int *counter, int n, const struct cuda_on_cpu::caller &where)
{
    struct cuda_on_cpu::fibre *f = cuda_on_cpu::self->current;
    f->awaited = {counter, n};
    cuda_on_cpu::wait_as(cuda_on_cpu::AT_COUNT, &f->awaited, describe_count, "wait_for_count", where);
}
