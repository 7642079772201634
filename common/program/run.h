/* run.h: one `run` of a stage program, from the files it reads to the files it writes.
 *
 *     run_files.c     files to arrays of one type, and arrays to files
 *     run_shape.c     shapes and types of the arrays to a problem
 *     run_variant.c   the variant that computes it
 *     run.c           these steps in order, the computation, and what is said about it
 *
 * A step returns OK or an exit status. */
#ifndef RUN_H
#define RUN_H

#include <stdio.h>

#include "npy/npy.h"
#include "program/options.h"
#include "verification/compare.h"

enum { OK = 0, FAILED = 1, BAD = 2, SKIPPED = 77 };

/* Everything of one run: what was read, what is computed, what is written. */
struct run {
    const struct stage *stage;
    const struct options *opt;
    FILE *report;               /* what was done: stdout, or stderr when an array goes there */
    struct problem p;
    const struct variant *v;    /* computes it */
    struct npy in[N_ARRAYS];    /* the files read; of others all 0 */
    struct arrays a;
    struct outputs out;
    struct npy_writer writer[N_ARRAYS];
};

/* Prints what is wrong with the input; returns BAD. */
int bad(const struct run *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, about the file of array i. */
int bad_file(const struct run *r, enum array i, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints a line of the report. */
void say(const struct run *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Runs the steps: one process takes these three, several ranks meet in between. */
int run_in_steps(const struct stage *stage, const struct options *opt, int (*steps)(struct run *r));
int run_problem(struct run *r); /* reads the inputs */
int run_prepare(struct run *r); /* chooses a variant, opens the outputs */
int run_finish(struct run *r);  /* computes and writes */

/* Reads the files of the inputs that were given. */
int run_read(struct run *r);

/* Gives the problem that type and points r->a at the inputs, converted to it. */
int run_convert_inputs(struct run *r, enum dtype dtype);

/* Sets r->p from the shapes of r->in, and its type from --dtype or the files' types.  Of the
 * data it looks at that of cu_seqlens only. */
int run_choose_problem(struct run *r);

/* The shape that array i has in a file; returns its rank.  An array of rows has as many
 * dimensions before its rows as q has, an array of results those of x. */
size_t run_file_shape(const struct run *r, enum array i, size_t *shape);

/* The stage's best variant for p on this machine, or NULL; sets the type that is computed
 * in.  The best are those that keep a bad value row from leaking where that matters; of these, those that compute in the problem's own type; of these, the
 * last one listed.  In stages 1 to 4 a GPU kernel is never executed on the CPU unasked.
 *   isolate  v holds NaN or inf */
const struct variant *choice_default(const struct stage *stage, const struct problem *p,
                                     int isolate, enum dtype *type);

/* Sets r->v, named by --variant or the default, and the type that is computed in. */
int run_choose_variant(struct run *r, enum dtype *type);

/* Prints the variant, the type and the shapes. */
void run_describe(const struct run *r);

/* Opens the files of the outputs that were asked for. */
int run_open_outputs(struct run *r);

/* Refuses outputs that memory cannot hold. */
int run_outputs_fit(const struct run *r);

/* Writes the outputs as f32; all files appear, or none. */
int run_write_outputs(struct run *r);

#endif
