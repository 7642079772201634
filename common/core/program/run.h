/* run.h: one `run` of a stage program, from the files it reads to the files it writes.
 *
 *     run.c           the steps in order: files to a problem and its arrays, and arrays to files
 *     run_variant.c   the variant that computes it
 *
 * A step returns OK or an exit status. */
#pragma once

#include <stdio.h>

#include "npy/npy.h"
#include "problem/execute.h"
#include "program/complain.h"
#include "program/options.h"

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
    struct outputs out, forward; /* backward reads what the forward pass gives */
    struct npy_writer writer[N_ARRAYS];
};

/* Prints what is wrong with the input, or with the file of array i; BAD. */
#define bad(r, ...) complain((r)->stage, __VA_ARGS__)
#define bad_file(r, i, format, ...) \
    bad(r, "--%s: %s: " format, array_list[i].name, (r)->opt->file[i], ##__VA_ARGS__)

/* Prints a line of the report. */
#define say(r, ...) fprintf((r)->report, __VA_ARGS__)

/* Runs the steps: one process takes these three, several ranks meet in between. */
int run_in_steps(const struct stage *stage, const struct options *opt, int (*steps)(struct run *r));
int run_problem(struct run *r); /* reads the inputs; sets r->p by their shapes and types */
int run_prepare(struct run *r); /* chooses a variant, opens the outputs */
int run_finish(struct run *r);  /* computes and writes */

/* The stage's best variant for p on this machine, or NULL; *asked is p in the types that are computed in.  In
 * stages 1 to 4 a GPU kernel, which is slow there, is never executed on the CPU unasked, and an f16
 * file is widened: o, which is written as f32, is not rounded to f16.   isolate: v holds NaN or inf */
const struct variant *choice_default(const struct stage *stage, const struct problem *p,
                                     int isolate, struct problem *asked);

/* Sets r->v, named by --variant or the default, and the types that are computed in. */
int run_choose(struct run *r, struct problem *asked);

void run_describe(const struct run *r); /* prints the variant, the type and the shapes */
