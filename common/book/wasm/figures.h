/* figures.h: what the interactive figures compute, by the stages' own functions.
 *
 * One file for each stage includes its stage.c, so that a figure shows what that program
 * computes.  The same files are compiled for the browser (WebAssembly) and, for the test,
 * for this machine; both use the exponential of common/vector/vexp.h, so that the bits are
 * the same. */
#ifndef FIGURES_H
#define FIGURES_H

#include "harness.h"

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name))) name
#else
#define EXPORT(name) name
#define expf tree_expf /* after math.h: the exponential of vexp.h here too */
float tree_expf(float x);
#endif

/* A stage's main, and with it the list of its variants, is left out. */
#define main static __attribute__((unused)) unused_main

enum { MOST_SCORES = 64, MOST_DIMS = 8, MOST_STEPS = 256 };

extern float scores[MOST_SCORES], weights[MOST_SCORES], arena[];

/* One line of a stage's trace. */
struct step {
    float index, x, m, l, correction;
    float o[MOST_DIMS];
    float n_o;
    float loop; /* from 1; 0 where the trace names none */
};

extern struct step steps[MOST_STEPS];
extern int n_steps, loop;

void add_state(size_t index, float x, float m, float l, float correction);

/* The steps of a stage's softmax_row on the first n scores; returns their number. */
int traced_row(function_of_row *softmax_row, int n);

float to_type(float x, int type); /* rounded to enum dtype and back */

#endif
