/* request.h: one call of the library on its way to a stage's function. */
#pragma once

#include <stddef.h>

#include "five_steps.h"
#include "problem/operation.h"
#include "problem/variant.h"

struct request {
    struct five_steps_error *error; /* or NULL */
    const void *problem;     /* the caller's */
    void *workspace;         /* his, of `bytes` bytes; or the question how many, in *asked */
    size_t bytes, *asked;
    int on_gpu, arch;
    int isolate_v;
    struct problem given;    /* what the caller asks, and how his arrays lie */
    struct arrays theirs;    /* his arrays */
    unsigned inputs, outputs; /* sets of those that `given` has; operations[given.op] lists all */
    size_t count[N_ARRAYS];  /* of each, its elements from the first to the last */
    const struct variant *v; /* the kernel; NULL for a problem without elements */
    struct problem p;        /* what the kernel is asked: `given`, or the same in float */
    struct arrays a;
    size_t at[N_ARRAYS];     /* where the arrays of p that are not the caller's lie in the */
    size_t at_scratch;       /* workspace, and where the kernel's own part does */
    size_t total;            /* bytes of all */
};

/* Writes the code and a line, printf style, into the caller's error; returns the code. */
int fail(struct request *r, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* describe.c: the caller's problem, checked, becomes r->given and r->theirs. */
int describe_attention(struct request *r, const struct five_steps_attention_problem *p);
int describe_softmax(struct request *r, const struct five_steps_softmax_problem *p);

/* The first checks of every call: a problem of a size that this library knows (`sizes`, ended by
 * 0), the device and the type. */
int describe_begin(struct request *r, const size_t *sizes);

/* Is an array of `count` elements there, at a multiple of `alignment` bytes? */
int check_pointer(struct request *r, const char *name, const void *array, size_t count,
                  size_t alignment);

/* Does an output share memory with another array, of those that are given? */
int check_overlap(struct request *r);

/* Are the arrays there, do they overlap, are prefix sums and page numbers what they say? */
int check_arrays(struct request *r);

/* The arrays of a set, one after another:  for (unsigned set = ...; set;) { i = next_array(&set); */
static inline enum array next_array(unsigned *set)
{
    int i = __builtin_ctz(*set);
    *set &= *set - 1;
    return (enum array)i;
}

/* Have the outputs no elements? */
int request_is_empty(const struct request *r);

/* May the caller give NULL for an output that he does not want? */
int is_optional(const struct problem *p, enum array i);

/* The kernel of that name, or (NULL) the best that supports the problem. */
int request_choose(struct request *r, const char *name);

/* Bytes of workspace: r->total. */
int request_layout(struct request *r);

/* Binds the kernel's arrays, computes, and brings the results into the caller's arrays. */
int request_run(struct request *r);
