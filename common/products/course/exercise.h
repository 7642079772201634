/* exercise.h: what the harness must know of an exercise or a project.  Its file ends with
 *
 *     PROGRAM(4, merge, "chunks folded alone, then merged",
 *             ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}})
 *
 * the stage, the name of the file, one line, and the fields of struct variant (harness.h): what it
 * promises, and its function. */
#ifndef EXERCISE_H
#define EXERCISE_H

#include "harness.h"
#include "stage.h"

/* The promise of attention: any score, rows that are all masked, NaN in a masked row of v. */
#define ALL_PROBLEMS                                                                       \
    .supports = BASIC_FEATURES, .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1

#define PROGRAM(stage_number, file, words, ...)                                            \
    const struct variant exercise = {                                                      \
        .name = #file, .idea = words, .device = ON_CPU, .types = TYPE(F32), __VA_ARGS__};  \
    MAIN(stage_number, file, words)

/* A program of one variant. */
#define MAIN(stage_number, file, words)                                                    \
    static const struct variant *const variants[] = {&exercise, NULL};                     \
    static const struct stage stage = {                                                    \
        .number = stage_number, .name = #file, .idea = words, .variants = variants};       \
    int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }

#ifdef __cplusplus
#include "gpu/cuda_check.h"

static inline const char *above_128_columns(const struct problem *p)
{
    return p->head_dim > 128 || p->head_dim_v > 128 ? "a head_dim above 128" : NULL;
}

/* The program of a kernel. */
#undef PROGRAM
#ifdef __CUDACC__
#undef MAIN
#define MAIN(...)
#endif
#define PROGRAM(stage_number, file, words, ...)                                            \
    GPU_VARIANT(exercise) = {.name = #file, .idea = words, .device = GPU_DEVICE,           \
                             .least_arch = 75, __VA_ARGS__, .on_gpu = GPU_TWIN(exercise)}; \
    MAIN(stage_number, file, words)
#endif

#endif
