/* variants.h: the variants of stage 1.  Their order is that of `list`; of several that do a
 * problem equally well, `run` takes the last.  A new variant is a file and two lines here. */
#ifndef STAGE_VARIANTS_H
#define STAGE_VARIANTS_H

#include "harness.h"

extern const struct variant naive;                                 /* stage.c */
extern const struct variant naive_simd;                            /* fast/simd.c */
extern const struct variant naive_threads;                         /* fast/threads.c */
extern const struct variant gpu_thread_per_row, gpu_block_per_row; /* gpu/rows.cu */

static const struct variant *const variants[] = {
    &naive,
    &gpu_thread_per_row,
    &gpu_block_per_row,
    &naive_simd,
    &naive_threads,
    NULL,
};

#endif
