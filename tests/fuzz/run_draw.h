/* run_draw.h: files and options of `run`, drawn at random and added to the line. */
#ifndef RUN_DRAW_H
#define RUN_DRAW_H

#include <stddef.h>

#include "problem/random.h"

extern struct random draws;

/* A number below n; 1 one time in n. */
size_t below(size_t n);
int rarely(size_t n);

void draw_softmax(void);
void draw_attention(void);
void draw_options(void);

#endif
