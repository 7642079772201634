/* protocol.h: what judge and worker say to each other.
 *
 * A worker is one exercise linked with worker.c: a process that holds the code under test
 * and nothing else of the harness, neither the reference nor the cases.  The judge makes
 * the inputs, has the worker compute, and compares; the verdict is the judge's.
 *
 * They share one file in memory, of REGION bytes or, for TIMED, more, where the judge puts the inputs and takes the
 * outputs, and a socket, over which a request goes and a reply comes back.  A page of
 * memory takes the place of what clang's OpenMP opens for writing when it starts. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include "harness.h"

enum { REGION_FD = 3, SOCKET_FD = 4, PAGE_FD = 5, GPU_FD = 6, PAGE_BYTES = 4096 };
#define REGION ((size_t)1 << 25)

enum request_kind { DESCRIBE, REFUSES, COMPUTE, TIMED };

/* The arrays that travel, in this order; the last three are outputs. */
enum {
    AT_X, AT_W, AT_Q, AT_K, AT_V, AT_BIAS, AT_INDEX, AT_K_NEW, AT_V_NEW,
    AT_Y, AT_O, AT_LSE,
    N_ARRAYS
};

/* Where an array lies in the shared file.  Of an output: with `guard` bytes before it and
 * after it, counted in bytes. */
struct span { size_t offset, bytes; };

struct request {
    enum request_kind kind;
    size_t gpu_bytes;       /* TIMED on a GPU: the spans lie in so many bytes of the GPU's memory,
                             * which GPU_FD opens, not in the file */
    struct problem problem;
    struct span span[N_ARRAYS];
    size_t guard;
};

struct reply {
    int ok;               /* COMPUTE: done; REFUSES: not refused */
    enum device device;   /* DESCRIBE, from here on */
    unsigned types, supports, ops;  /* ops: bit 1 << op */
    float max_score;
    int masked_rows, isolates_v;
};

#endif
