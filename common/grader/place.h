/* place.h: the memory that the judge shares with a worker for timed runs: the shared file, or
 * memory of the GPU, for which the worker inherits a descriptor (gpu_share.h).
 *
 * The judge reads its clock after look(): what the worker, its threads or its kernels write
 * later is then seen as a change. */
#ifndef PLACE_H
#define PLACE_H

#include "worker_process.h"

struct place {
    const struct place_kind *kind;
    char *base;             /* where it lies in this process, or on the GPU */
    size_t gpu_bytes;       /* for the request (protocol.h); 0 in the file */
    void *own;              /* of the kind: what no worker can reach */
};

struct place_kind {
    /* Makes a place of n bytes, for workers that start after this.  0: there is not that much
     * memory. */
    int (*make)(struct place *place, struct worker *w, size_t n);
    void (*write)(struct place *place, size_t at, const void *from, size_t n);
    void (*read)(struct place *place, void *to, size_t at, size_t n);
    /* n words of 4 bytes: seen[i] is what lies at at[i]. */
    void (*look)(struct place *place, const size_t *at, int n, uint32_t *seen);
    /* Seconds that copying the first n bytes takes, by the same clock; 0: not known. */
    double (*copy)(struct place *place, size_t n);
};

extern const struct place_kind in_shared_file;
/* NULL where this program was built without GPU code, or there is no GPU. */
const struct place_kind *on_gpu(void);

#endif
