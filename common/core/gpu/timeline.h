/* timeline.h: what each warp of a Hopper rung does when.  `make cuda TIMELINE=1` records it,
 * common/products/reports/timeline.py writes notes/results/hopper/timeline.csv from it, and a page of the
 * book shows it.  In every other build mark() is empty and the machine code has nothing of it.
 *
 * mark(x) says that the warp does x from now on.  The helpers that the rungs share call it, the
 * rungs themselves do not. */
#pragma once

enum activity {
    WAIT = 'w',     /* for an mbarrier: a tile that is to arrive, a stage that is to be free */
    TURN = 't',     /* for the turn at the tensor cores */
    SYNC = 'b',     /* for the other threads of the warpgroup */
    QK = 'q',       /* issues Q K^T */
    PV = 'v',       /* issues P V */
    PRODUCTS = 'p', /* for products that it has issued */
    WEIGHTS = 's', /* mask, maximum, exponentials, rescaling, rounding */
    COPY = 'c',     /* issues a copy */
    STORE = 'o'     /* divides and stores o */
};

#ifdef TIMELINE
#include "gpu/cuda_check.h"
#include <string.h>

/* Only block 0 records, the first lane of each warp.  A mark is the multiprocessor's clock and
 * the activity.  Its slot follows from the clock, so that no counter takes a register: marks of a
 * warp are more than 16 cycles apart, and what is older than 16 MOST_MARKS cycles is lost. */
constexpr int MOST_WARPS = 20, MOST_MARKS = 8192;
static __device__ uint2 timeline_marks[MOST_WARPS * MOST_MARKS];

static __device__ __forceinline__ void mark(enum activity what)
{
    uint32_t clock;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(clock)::"memory");
    if ((threadIdx.x % 32 | blockIdx.x) == 0)
        timeline_marks[threadIdx.x / 32 * MOST_MARKS + clock / 16 % MOST_MARKS] =
            make_uint2(clock, what);
}

/* Writes the marks of the last launch to the file that the environment's TIMELINE names, a line
 * each: warp, activity, clock. */
static void timeline_save(void)
{
    static uint2 marks[MOST_WARPS * MOST_MARKS];
    FILE *file = getenv("TIMELINE") ? fopen(getenv("TIMELINE"), "w") : NULL;
    if (!file) return;
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpyFromSymbol(marks, timeline_marks, sizeof marks));
    for (int i = 0; i < MOST_WARPS * MOST_MARKS; i++)
        if (marks[i].y)
            fprintf(file, "%d %c %u\n", i / MOST_MARKS, (char)marks[i].y, marks[i].x);
    fclose(file);
    memset(marks, 0, sizeof marks);
    CUDA_CHECK(cudaMemcpyToSymbol(timeline_marks, marks, sizeof marks));
}
#else
static __device__ __forceinline__ void mark(enum activity) {}
static inline void timeline_save(void) {}
#endif
