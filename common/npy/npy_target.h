/* npy_target.h: the file behind the path of an output, and the temporaries beside it. */
#ifndef NPY_TARGET_H
#define NPY_TARGET_H

#include "npy/npy.h"

/* Removes the temporaries that killed runs of this user left for this target: those that
 * no process holds a lock on. */
void target_remove_stale(const struct npy_writer *w);

/* A name beside w->target that no file has yet, for try number `try`. */
char *target_beside(const struct npy_writer *w, int try);

/* Creates a new empty file beside w->target, named in w->temporary and locked.  Returns its
 * descriptor or -1 (errno). */
int temporary_create(struct npy_writer *w);

void temporary_remove(struct npy_writer *w);

/* Fills in w->target, mode and direct. */
const char *target_find(struct npy_writer *w);

#endif
