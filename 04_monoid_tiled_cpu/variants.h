/* variants.h: the variants of stage 4.  Their order is that of `list`; of several that do a
 * problem equally well, `run` takes the last.  A new variant is a file and two lines here. */
#ifndef STAGE_VARIANTS_H
#define STAGE_VARIANTS_H

#include "harness.h"

extern const struct variant fold;                                            /* stage.c */
extern const struct variant monoid_chunk;                                    /* chunk.c */
extern const struct variant monoid_threads;                                  /* threads.c */
extern const struct variant monoid_padded, monoid_masked_reads;              /* pad.c */
extern const struct variant scan_serial, scan_work_efficient;                /* variants/scan.c */
extern const struct variant update_refold, update_tree;                      /* variants/update.c */
extern const struct variant form_split, form_lse, form_normalised;           /* variants/forms.c */
extern const struct variant form_memory_efficient;                           /* variants/forms.c */
extern const struct variant log_attention_two_passes;                        /* variants/log_attention.c */
extern const struct variant log_attention_streamed;                          /* variants/log_attention.c */
extern const struct variant reduction_unfused, reduction_fused;              /* variants/fused_reduction.c */
extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores; /* fast/tiled.c */
extern const struct variant bf16_dot, bf16_amx;                              /* fast/bf16.c */

static const struct variant *const variants[] = {
    &fold,
    &monoid_chunk,
    &monoid_padded,
    &monoid_masked_reads,
    &scan_serial,
    &scan_work_efficient,
    &update_refold,
    &update_tree,
    &form_split,
    &form_lse,
    &form_normalised,
    &form_memory_efficient,
    &log_attention_two_passes,
    &log_attention_streamed,
    &reduction_unfused,
    &reduction_fused,
    &monoid_threads,
    &tiled_loops,
    &tiled_microkernel,
    &tiled_all_cores,
    &bf16_dot,
    &bf16_amx,
    NULL,
};

#endif
