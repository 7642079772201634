/* variants.h: the variants of stage 3.  Their order is that of `list`; of several that do a
 * problem equally well, `run` takes the last.  A new variant is a file and two lines here. */
#ifndef STAGE_VARIANTS_H
#define STAGE_VARIANTS_H

#include "harness.h"

extern const struct variant online;                         /* stage.c */
extern const struct variant divide_once;                    /* one_loop.c */
extern const struct variant online_simd;                    /* fast/simd.c */
extern const struct variant online_streaming;               /* fast/streaming.c */
extern const struct variant online_one_look;                /* fast/one_look.c */
extern const struct variant online_threads;                 /* fast/threads.c */
extern const struct variant gpu_online;                     /* gpu/rows.cu */
extern const struct variant gpu_cub_monoid;                 /* gpu/cub_monoid.cu */
extern const struct variant gpu_registers;                  /* gpu/one_pass/registers.cu */
extern const struct variant gpu_shared;                     /* gpu/one_pass/shared.cu */
extern const struct variant gpu_cluster;                    /* gpu/one_pass/cluster.cu */
extern const struct variant gpu_grid;                       /* gpu/one_pass/grid.cu */
extern const struct variant gpu_two_pass;                   /* gpu/one_pass/two_pass.cu */
extern const struct variant gpu_one_pass;                   /* gpu/one_pass/one_pass.cu */
extern const struct variant online_normalised;              /* variants/normalised.c */
extern const struct variant log_online;                     /* variants/logsoftmax.c */
extern const struct variant online_two_pass;                /* variants/powers_of_two.c */
extern const struct variant mean_total, mean_product_first; /* variants/mean.c */
extern const struct variant mean_weighted, mean_increment;  /* variants/mean.c */

static const struct variant *const variants[] = {
    &online,
    &divide_once,
    &gpu_online,
    &gpu_cub_monoid,
    &gpu_registers,
    &gpu_shared,
    &gpu_cluster,
    &gpu_grid,
    &gpu_two_pass,
    &gpu_one_pass,
    &online_normalised,
    &log_online,
    &mean_total,
    &mean_product_first,
    &mean_weighted,
    &mean_increment,
    &online_two_pass,
    &online_simd,
    &online_streaming,
    &online_one_look,
    &online_threads,
    NULL,
};

#endif
