/* tma_on_cpu.cc: mbarriers and the copy engine of hopper_on_cpu.h. */
#include "cuda_on_cpu/executor.h"
#include "cuda_on_cpu/hopper_on_cpu.h"

#include <stdio.h>

using namespace cuda_on_cpu;

/* --- mbarrier --- */

namespace
{
struct mbarrier {
    uint64_t phase : 1, made : 7; /* MADE: mbarrier_init() has been here */
    uint64_t count : 12, missing : 12; /* arrivals of a phase, those still to come */
    int64_t bytes : 32;                /* announced, not yet arrived */
};
enum { MADE = 0x55 };
static_assert(sizeof(struct mbarrier) == 8, "it lies in the kernel's word");
} // namespace

UNSEEN static struct mbarrier *mbarrier_at(uint64_t *bar, const struct caller &where)
{
    shared_address(bar, where);
    struct mbarrier *b = (struct mbarrier *)bar;
    if (b->made != MADE) fail(where, "an mbarrier without mbarrier_init()");
    return b;
}

UNSEEN static void mbarrier_describe(const void *what, char *text, size_t size)
{
    const struct mbarrier *b = (const struct mbarrier *)what;
    snprintf(text, size, "%d arrivals and %d bytes are missing in its phase %d",
             (int)b->missing, (int)b->bytes, (int)b->phase);
}

/* Writes what happens to an mbarrier of block 0 into the file that CUDA_ON_CPU_TRACE names, a line
 * each: what, the thread, the barrier's address, a phase bit. */
UNSEEN static void trace(const char *what, const struct mbarrier *b, int phase)
{
    static const char *path = getenv("CUDA_ON_CPU_TRACE");
    static FILE *file = path ? fopen(path, "w") : NULL;
    if (file && self->number == 0)
        fprintf(file, "%s,%u,%td,%d\n", what, self->current ? self->current->rank : 0,
                (const char *)b - self->block.shared, phase);
}

/* Ends the phase when nothing is missing. */
UNSEEN static void mbarrier_end_phase(struct mbarrier *b)
{
    if (b->missing || b->bytes) return;
    b->phase ^= 1;
    b->missing = b->count;
    trace("flips", b, b->phase);
    wake_waiters(b);
}

UNSEEN void mbarrier_init(uint64_t *bar, int count, const struct caller &where)
{
    shared_address(bar, where);
    if (count < 1 || count > 4095) fail(where, "mbarrier_init() with count %d", count);
    struct mbarrier *b = (struct mbarrier *)bar;
    *bar = 0;
    b->made = MADE;
    b->count = b->missing = (unsigned)count;
    trace("begins", b, 0);
}

UNSEEN void mbarrier_arrive_expect_tx(uint64_t *bar, int bytes, const struct caller &where)
{
    struct mbarrier *b = mbarrier_at(bar, where);
    order_by_arrival(self->current);
    TSAN(__tsan_release(bar));
    if (!b->missing)
        fail(where, "arrives at an mbarrier that has all its %d arrivals (%d bytes of its "
             "phase are missing)", (int)b->count, (int)b->bytes);
    trace("arrives", b, b->phase);
    b->bytes += bytes;
    b->missing--;
    mbarrier_end_phase(b);
}

UNSEEN void mbarrier_arrive(uint64_t *bar, const struct caller &where)
{
    mbarrier_arrive_expect_tx(bar, 0, where);
}

/* As try_wait in a loop: who comes back two phases later waits again. */
UNSEEN void mbarrier_wait(uint64_t *bar, uint32_t phase, const struct caller &where)
{
    struct mbarrier *b = mbarrier_at(bar, where);
    if (b->phase == (phase & 1)) trace("waits", b, phase & 1);
    while (b->phase == (phase & 1))
        wait_for(b, mbarrier_describe,
                 phase & 1 ? "mbarrier_wait for phase 1" : "mbarrier_wait for phase 0", where);
    trace("passes", b, phase & 1);
    TSAN(__tsan_acquire(bar));
}

/* --- Tensor maps --- */

enum CUresult cuTensorMapEncodeTiled(
    struct CUtensorMap *map, enum CUtensorMapDataType, cuuint32_t rank, void *array,
    const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
    const cuuint32_t *step, enum CUtensorMapInterleave, enum CUtensorMapSwizzle,
    enum CUtensorMapL2promotion, enum CUtensorMapFloatOOBfill)
{
    if (!has_context) return CUDA_ERROR_INVALID_CONTEXT;
    if (rank != 4) return CUDA_ERROR_INVALID_VALUE;
    *map = {(char *)array, {}, {stride[0], stride[1], stride[2]}, {}};
    memcpy(map->size, size, sizeof map->size);
    memcpy(map->box, box, sizeof map->box);
    /* a row of the box is at most as wide as the swizzle; our copies are for that width */
    bool fits = (uintptr_t)array % 16 == 0 && 2 * box[0] == 128 && box[2] == 1 && box[3] == 1;
    for (int i = 0; i < 4; i++)
        fits = fits && size[i] >= 1 && size[i] <= 1ull << 32 && box[i] >= 1 && box[i] <= 256 &&
               step[i] == 1 && (i == 3 || (stride[i] % 16 == 0 && stride[i] < 1ull << 40));
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- Copies --- */

namespace
{
struct transfer {
    struct CUtensorMap map; /* or, for bytes in a row: */
    char *bytes;
    size_t n_bytes;
    char *shared;
    struct mbarrier *bar; /* a load's */
    int at[4];            /* column, row, head, batch of the box */
    bool adds;            /* a store of bytes: floats, added */
};

/* What is under way in the block that a worker executes. */
struct transfers {
    std::vector<struct transfer> loads;
    std::vector<std::vector<struct transfer>> stores{self->n_fibres}; /* of each thread */
};
} // namespace

/* What a transfer of bytes in a row does: a load copies, a store copies or adds floats. */
UNSEEN static void copy_bytes(const struct transfer &t, bool load)
{
    if (load) memcpy(t.shared, t.bytes, t.n_bytes);
    if (!load && !t.adds) memcpy(t.bytes, t.shared, t.n_bytes);
    for (size_t i = 0; !load && t.adds && i < t.n_bytes / 4; i++)
        atomicAdd((float *)t.bytes + i, ((const float *)t.shared)[i]);
}

/* Copies the box between array and shared memory: 16-byte chunk c of row r lies at chunk
 * c ^ (r % 8) of its 128 bytes, where r counts from a multiple of 1024 bytes on. */
UNSEEN static void copy_box(const struct transfer &t, bool load)
{
    if (t.bytes) return copy_bytes(t, load);
    const struct CUtensorMap &m = t.map;
    for (uint32_t r = 0; r < m.box[1]; r++) {
        const int64_t at[3] = {(int64_t)t.at[1] + r, t.at[2], t.at[3]};
        int64_t offset = 0;
        bool here = true;
        for (int i = 0; i < 3; i++) {
            here = here && at[i] >= 0 && (uint64_t)at[i] < m.size[i + 1];
            offset += at[i] * (int64_t)m.stride[i];
        }
        for (uint32_t c = 0; c < m.box[0]; c++) {
            int64_t column = (int64_t)t.at[0] + c;
            size_t to = t.shared - self->block.shared + r * 128 + c * 2;
            uint16_t *shared = (uint16_t *)(self->block.shared + (to ^ (to >> 7 & 7) << 4));
            bool inside = here && column >= 0 && (uint64_t)column < m.size[0];
            uint16_t *array = (uint16_t *)(m.array + (inside ? offset + 2 * column : 0));
            if (load) *shared = inside ? *array : 0;
            else if (inside) *array = *shared;
        }
    }
}

UNSEEN static void load_now(const struct transfer &t)
{
    copy_box(t, true);
    t.bar->bytes -= (int64_t)t.n_bytes;
    TSAN(__tsan_release(t.bar));
    mbarrier_end_phase(t.bar);
}

/* Completes one load, the oldest or the newest.  False when none is under way. */
static bool finish_a_load(void)
{
    struct transfer t;
    {
        struct unseen now;
        std::vector<struct transfer> &loads = of_block<struct transfers>().loads;
        if (loads.empty()) return false;
        if (executes_now()) std::swap(loads.front(), loads.back());
        t = loads.back();
        loads.pop_back();
    }
    load_now(t);
    return true;
}

/* The side of a transfer that lies in shared memory. */
UNSEEN static char *tile_at(const void *shared, size_t bytes, uint32_t alignment, bool is_store,
                            const struct caller &where)
{
    uint32_t address = shared_address(shared, where);
    if (address % alignment) fail(where, "TMA: the tile must start at a multiple of %u bytes", alignment);
    shared_at(address, bytes, where);
    check_accesses("TMA", address, bytes, is_store, where);
    return (char *)shared;
}

UNSEEN static struct transfer transfer_of(const CUtensorMap *map, const void *shared,
                                          bool is_store, int column, int row, int head, int batch,
                                          const struct caller &where)
{
    size_t bytes = map->box[0] * map->box[1] * 2;
    return {*map, NULL, bytes, tile_at(shared, bytes, 128, is_store, where), NULL,
            {column, row, head, batch}, false};
}

UNSEEN static struct transfer bytes_of(void *memory, const void *shared, size_t bytes,
                                       bool is_store, const struct caller &where)
{
    if ((uintptr_t)memory % 16 || bytes % 16)
        fail(where, "TMA: addresses and bytes must be multiples of 16");
    return {{}, (char *)memory, bytes, tile_at(shared, bytes, 16, is_store, where), NULL, {}, false};
}

UNSEEN static void start_load(struct transfer t, uint64_t *bar, const struct caller &where)
{
    t.bar = mbarrier_at(bar, where);
    self->finish_one = finish_a_load;
    if (executes_now()) {
        load_now(t);
        return;
    }
    struct unseen now;
    of_block<struct transfers>().loads.push_back(t);
}

UNSEEN void tma_load_bytes(void *to, const void *from, int bytes, uint64_t *bar,
                           const struct caller &where)
{
    start_load(bytes_of((void *)from, to, (size_t)bytes, false, where), bar, where);
}

UNSEEN void tma_load_box(void *to, const CUtensorMap *map, uint64_t *bar, int column, int row,
                     int head, int batch, const struct caller &where)
{
    start_load(transfer_of(map, to, false, column, row, head, batch, where), bar, where);
}

UNSEEN static std::vector<struct transfer> &my_stores(void)
{
    return of_block<struct transfers>().stores[self->current - self->fibres.data()];
}

UNSEEN void tma_store_box(const CUtensorMap *map, const void *from, int column, int row, int head,
                      int batch, const struct caller &where)
{
    my_stores().push_back(transfer_of(map, from, true, column, row, head, batch, where));
}

UNSEEN void cuda_on_cpu::tma_store(float *to, const float *from, size_t n, bool adds,
                                   const struct caller &where)
{
    my_stores().push_back(bytes_of(to, from, 4 * n, true, where));
    my_stores().back().adds = adds;
}

UNSEEN void tma_store_wait(void)
{
    for (const struct transfer &t : my_stores()) copy_box(t, false);
    my_stores().clear();
}

UNSEEN void tma_store_commit(void)
{
    if (executes_now()) tma_store_wait();
}
