/* variants.h: the variants of stage 2.  Their order is that of `list`; of several that do a
 * problem equally well, `run` takes the last.  A new variant is a file and two lines here. */
#ifndef STAGE_VARIANTS_H
#define STAGE_VARIANTS_H

#include "harness.h"

extern const struct variant recompute;                  /* stage.c */
extern const struct variant reload;                     /* variants/reload.c */
extern const struct variant log_recompute;              /* variants/logsoftmax.c */
extern const struct variant safe_simd;                  /* fast/simd.c */
extern const struct variant safe_overlapped;            /* fast/overlapped.c */
extern const struct variant safe_threads;               /* fast/threads.c */
extern const struct variant gpu_three_pass;             /* gpu/rows.cu */
extern const struct variant gpu_four_kernels;           /* gpu/four_kernels.cu */
extern const struct variant gpu_cub, gpu_cub_fused_exp; /* gpu/cub.cu */

static const struct variant *const variants[] = {
    &recompute,
    &reload,
    &log_recompute,
    &gpu_four_kernels,
    &gpu_cub,
    &gpu_cub_fused_exp,
    &gpu_three_pass,
    &safe_simd,
    &safe_overlapped,
    &safe_threads,
    NULL,
};

#endif
