/* chunks.h: which rows of a sequence lie on which rank.  Plain arithmetic, used by the ranks of
 * stage 4 (processes) and of stage 5 (GPUs). */
#ifndef CHUNKS_H
#define CHUNKS_H

#include "harness.h"

/* Where `part` of `parts` equal parts of n begins and ends: n may be less than parts, and
 * then some parts are empty. */
static inline struct key_range part_of(size_t n, size_t part, size_t parts)
{
    struct key_range range = {n / parts * part, n / parts * (part + 1)};
    size_t rest = n % parts; /* the first `rest` parts are longer by one */
    range.first += part < rest ? part : rest;
    range.end += part + 1 < rest ? part + 1 : rest;
    return range;
}

static inline size_t range_size(struct key_range r)
{
    return r.end - r.first;
}

/* Rows and keys that lie together on a rank: front and back chunk, or one and an empty one. */
enum { FRONT, BACK, CHUNKS };
struct chunks { struct key_range at[CHUNKS]; };

/* The chunks of n rows that `rank` of `ranks` holds.
 * zigzag: chunks rank and 2 ranks - 1 - rank of 2 ranks equal ones.  Under a causal mask late
 * queries see many keys and early ones few; a front and a back chunk together see the same
 * number on every rank.  Without zigzag: one contiguous part. */
static inline struct chunks chunks_of(size_t n, size_t rank, size_t ranks, int zigzag)
{
    struct chunks c = {{part_of(n, rank, ranks), {0, 0}}};
    if (zigzag) {
        c.at[FRONT] = part_of(n, rank, 2 * ranks);
        c.at[BACK] = part_of(n, 2 * ranks - 1 - rank, 2 * ranks);
    }
    return c;
}

static inline size_t chunks_size(const struct chunks *c)
{
    return range_size(c->at[FRONT]) + range_size(c->at[BACK]);
}

#endif
