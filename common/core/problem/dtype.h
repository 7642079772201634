/* dtype.h: the types of numbers, one line each: a new type is a line of the table. */
#pragma once

#include "harness.h"

struct dtype_entry {
    const char *name;                                 /* "f32", as in the CSV */
    size_t size;                                      /* bytes */
    float (*load)(const void *array, size_t i);       /* element i, exactly */
    void (*store)(void *array, size_t i, float x);    /* rounds to nearest, ties to even */
    double roundoff;   /* relative error of rounding a float to the type: 0 for f32; of int8 it is
                        * that of its largest number */
    double least_step; /* half of the spacing next to 0; 0 for f32 */
    float largest;     /* largest finite number */
    float denormal;    /* some denormal number */
    uint32_t filling;  /* bits of a quiet NaN that no arithmetic produces; 8 bits, in which no
                        * output is, have none to spare: of int8 127 */
};

extern const struct dtype_entry dtypes[N_DTYPES];

static inline const char *dtype_name(enum dtype dtype) { return dtypes[dtype].name; }

/* Sets *dtype to the type of that name; 0 when there is none. */
int dtype_find(const char *name, enum dtype *dtype);

/* "bf16", or "bf16/e4m3": the type of q, and of the cache where it is another.  Until the next call. */
const char *problem_types(const struct problem *p);

/* "f32,bf16": the names of a set of types, TYPE(F32) | ..., into text [size]. */
void dtype_names(unsigned types, char *text, size_t size);

/* x as the type holds it. */
float dtype_round(enum dtype dtype, float x);

/* The bits of element i, in the low end. */
uint32_t dtype_bits(enum dtype dtype, const void *array, size_t i);
void dtype_set_bits(enum dtype dtype, void *array, size_t i, uint32_t bits);

/* n numbers of any type as floats, exactly.  Freed by free(). */
float *widen(const void *x, enum dtype dtype, size_t n);
