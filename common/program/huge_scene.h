/* huge_scene.h: a problem with an array of more than 2^31 elements on the GPU, and the rows of it
 * that are judged. */
#ifndef HUGE_SCENE_H
#define HUGE_SCENE_H

#include "verification/compare.h"

enum { SPOTS = 4 };

/* A problem, and which of its arrays is the large one. */
struct huge {
    const char *what;
    struct problem p;
    int by_keys; /* rows are chosen by where their keys lie, else by where q or x does */
    int planted; /* all keys are 0 but one near the end, which takes all the weight */
};

/* One row that is judged: query i of a head, or row i of x. */
struct spot {
    size_t head, i;
    struct problem p; /* this row alone */
    struct arrays a;  /* its inputs */
    struct standard *standard;
};

/* A huge problem in one type, on the GPU. */
struct scene {
    const struct huge *huge;
    struct problem p;
    struct arrays device;
    struct spot spots[SPOTS];
    void *block; /* PERIOD normal numbers, in the problem's type */
};

/* Puts everything on the GPU; 0 without memory. */
int set_scene(struct scene *s, const struct huge *huge, enum dtype dtype);
void strike_scene(struct scene *s);

/* Moves a spot's outputs between host and GPU; up = 1: to the GPU. */
void move_outputs(const struct scene *s, const struct spot *spot, struct outputs *out, int up);

#endif
