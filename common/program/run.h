/* run.h: one `run` of a stage program, from the files it reads to the files it writes.
 *
 *     run_input.c     files to arrays, and their conversion to one type
 *     run_shape.c     shapes and types of the arrays to a problem
 *     run_variant.c   the variant that computes it
 *     run_output.c    arrays to files
 *     run.c           these steps in order, and the computation
 *
 * A step returns OK or an exit status. */
#ifndef RUN_H
#define RUN_H

#include <stdio.h>

#include "npy/npy.h"
#include "program/options.h"
#include "harness.h"

enum { OK = 0, FAILED = 1, BAD = 2, SKIPPED = 77 };
enum { X, Q = X, K, V, BIAS, SINKS, CU_SEQLENS_Q, CU_SEQLENS_K, N_FILES };

/* Everything of one run: what was read, what is computed, what is written. */
struct run {
    const struct stage *stage;
    const struct options *opt;
    FILE *report;               /* what was done: stdout, or stderr when an array goes there */
    struct npy in[N_FILES];
    const char *path[N_FILES];
    struct problem p;
    struct arrays a;
    void *converted[N_FILES];   /* inputs in the problem's type, where the file's differs */
    char *out[2];               /* y or o, and lse, each with GUARD bytes on both sides */
    struct npy_writer writer[2];
    size_t n_writers;
};

/* Prints what is wrong with the input; returns BAD. */
int bad(const struct run *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints a line of the report. */
void say(const struct run *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads the file at path, given with `option`, as array `which`.  Nothing without a path. */
int run_read(struct run *r, int which, const char *option, const char *path);

/* The same for a file of whole numbers. */
int run_read_ints(struct run *r, int which, const char *option, const char *path);

/* Points r->a at the inputs in the problem's type. */
int run_convert_inputs(struct run *r);

/* Makes the converted copies the inputs, as if the files had held that type. */
int run_adopt_converted(struct run *r);

/* Sets r->p from the files' shapes, and its type from --dtype or the files' types. */
int run_choose_problem(struct run *r);

/* The variant named by --variant, or the default; sets the type that is computed in. */
int run_choose_variant(struct run *r, const struct variant **chosen, enum dtype *type);

/* Prints the variant, the type and the shapes. */
void run_describe(const struct run *r, const struct variant *v);

/* Opens the next output at path.  Nothing without a path. */
int run_open_output(struct run *r, const char *option, const char *path);

/* Refuses outputs that memory cannot hold. */
int run_outputs_fit(const struct run *r);

/* Allocates the outputs and points r->a at them. */
int run_allocate_outputs(struct run *r);

/* Writes the outputs as f32; both files appear, or none. */
int run_write_outputs(struct run *r);

#endif
