/* request.h: one call of the library on its way to a stage's function. */
#ifndef REQUEST_H
#define REQUEST_H

#include <stddef.h>

#include "five_steps.h"
#include "problem/host_memory.h"
#include "problem/variant.h"
#include "harness.h"

/* Where the parts of the workspace begin, counted from its first multiple of 1024 bytes. */
struct layout { size_t lse, q, k, v, o, end, total; };

struct request {
    struct five_steps_error *error; /* or NULL */
    int on_gpu, arch;
    enum dtype type;         /* of the caller's arrays */
    int isolate_v;
    struct problem p;        /* as the kernel gets it: 16-bit numbers are widened on the CPU */
    struct arrays a;
    const struct variant *v; /* NULL for a problem without elements */
    struct layout layout;
    char *memory;            /* the workspace */
    size_t scratch;          /* bytes that the kernel itself wants */
    double bytes_moved;
    const char *choice;      /* the kernel's, in words */
};

/* Writes the code and a line, printf style, into the caller's error; returns the code. */
int fail(struct request *r, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The first checks: is there a problem, and of a size that this library knows: that of its
 * version, or of the oldest? */
int request_begin(struct request *r, const void *problem, size_t size, size_t oldest,
                  size_t known);

/* The device and the type: fills in on_gpu, arch, type and p.dtype. */
int request_place(struct request *r, int device, int type);

/* Bytes of all arrays together, with the float copies of 16-bit ones; saturates. */
size_t request_bytes(const struct request *r);

/* Has the output no elements? */
int request_is_empty(const struct request *r);

/* The kernel of that name, or (NULL) the last listed one that supports the problem. */
int request_choose(struct request *r, const char *name);

/* The parts of the workspace.  own_lse: the caller wants no lse. */
int request_layout(struct request *r, int own_lse);
int request_workspace(struct request *r, void *workspace, size_t bytes);

/* The array that the kernel reads or writes: the caller's, or its float copy at `at`. */
const void *request_input(struct request *r, size_t at, const void *array, size_t n);
void *request_output(struct request *r, size_t at, void *array);

/* Rounds the kernel's output to the caller's, where they differ: y [n]; and the rows of o,
 * without what lies between them. */
void request_deliver(struct request *r, const void *from, void *to, size_t n);
void request_deliver_rows(struct request *r, const void *from, void *to);

/* The merge on the CPU. */
void merge_rows(enum dtype type, const struct five_steps_merge_problem *p);

#endif
