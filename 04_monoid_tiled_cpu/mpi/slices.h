/* slices.h: the part of a .npy file that one rank holds.  Nobody reads the rest. */
#ifndef SLICES_H
#define SLICES_H

#include "chunks.h"
#include "npy/npy.h"
#include "program/options.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { Q, K, V, BIAS, N_FILES };

/* The problem that the headers of --q, --k, --v and --bias describe, of type F32, with causal
 * and scale as given.  NULL, or what does not fit. */
const char *slices_problem(const struct options *o, struct npy head[N_FILES],
                           struct problem *p);

/* Reads the rows of both chunks, every head, as floats [heads, rows, d].  NULL or why not. */
const char *slices_read(const char *path, const struct chunks *c, size_t heads, size_t d,
                        float *to);

/* Begins --o and --lse.  NULL, or why they cannot be written. */
const char *slices_begin(const struct options *o, struct npy_writer writer[2]);

/* Rows of the output in the order of the file: head by head, and in a head chunk by chunk.
 * Each is one call of `fetch` on every rank, which on rank 0 fills `to` [rows, width]. */
struct slices {
    void (*fetch)(void *context, int rank, size_t head, int chunk, float *to);
    void *context;
    struct chunks (*chunks)(void *context, int rank); /* of the queries */
    int ranks;                    /* that hold queries */
    size_t heads, width;          /* width: head_dim_v, or 1 for lse */
    float *memory;                /* room for the longest chunk */
    size_t head, at;              /* where we are: chunk `at` of 2 ranks in that head */
};

/* Starts at the first row.  NULL, or "no memory ...". */
const char *slices_new(struct slices *s);

/* Fetches the next rows: their number times width, and where they are; 0 at the end. */
size_t slices_next(void *slices, const float **data);
void slices_free(struct slices *s);

/* What the writer needs: its shape is that of q with the last size replaced, or removed. */
void slices_write(struct npy_writer *w, struct slices *s, const struct npy *q, int is_lse,
                  size_t head_dim_v);

#ifdef __cplusplus
}
#endif
#endif
