/* run.h: one `run` of a stage program, from the files it reads to the files it writes.
 *
 *     run_files.c   files to a problem and its arrays, and arrays to files
 *     run.c         the variant that computes it, and the steps in order
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

/* Gives the problem the types of this one and points r->a at the inputs, converted to them. */
int run_convert_inputs(struct run *r, const struct problem *types);

/* Opens the files of the outputs that were asked for; writes them as f32: all appear, or none. */
int run_open_outputs(struct run *r);
int run_write_outputs(struct run *r);
