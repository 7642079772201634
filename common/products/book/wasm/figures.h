/* figures.h: what the interactive figures compute, by the stages' own functions. */
#pragma once

#include "harness.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

/* A stage's main, and with it the list of its variants, is left out. */
#define main static __attribute__((unused)) unused_main

/* name_1, name_2 and name_3 are those of stages 1, 2 and 3 (lesson.c). */
#define JOINED(name, number) name##_##number
#define OF(name, number) JOINED(name, number)
#define OF_STAGE(name) OF(name, STAGE)
int row_1(int n), row_2(int n), row_3(int n);
double bytes_1(const struct problem *), bytes_2(const struct problem *), bytes_3(const struct problem *);
variant_function attention_1, attention_2, attention_3;

enum { MOST_SCORES = 128, MOST_STEPS = 512 };

extern float scores[MOST_SCORES], weights[MOST_SCORES], arena[];

/* The steps of a stage's softmax_row on the first n scores; returns their number. */
int traced_row(function_of_row *softmax_row, int n);
