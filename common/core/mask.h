/* mask.h: which keys a query sees.  Part of harness.h.
 *
 * Every variant, kernel, cost model and the reference ask here, so a mask has one
 * definition.  A query sees one range of keys, and both its ends only grow with the query:
 * so the keys of a tile of queries follow from its first and its last query. */
#pragma once

#include "problem.h"

/* Keys first .. end - 1; none when first == end. */
struct key_range { size_t first, end; };

/* The mask as numbers that a kernel can carry in its parameters.  Query i sees key j when
 * i + first <= j <= i + last, and no key below 0 or from seqlen_k on exists. */
struct mask {
    ptrdiff_t seqlen_k;
    ptrdiff_t first; /* window: seqlen_k - seqlen_q - window_left; no limit: -seqlen_q */
    ptrdiff_t last;  /* causal: seqlen_k - seqlen_q; no limit: seqlen_k */
};

/* The mask of a sequence of these lengths, as p says: of a packed batch each sequence has
 * its own. */
static inline HOST_DEVICE struct mask mask_of_lengths(const struct problem *p,
                                                      size_t seqlen_q, size_t seqlen_k)
{
    struct mask m = {(ptrdiff_t)seqlen_k, -(ptrdiff_t)seqlen_q, (ptrdiff_t)seqlen_k};
    size_t i_0 = seqlen_k - seqlen_q + (size_t)p->shift; /* unsigned: no size overflows */
    ptrdiff_t left = p->window_left, right = p->window_right;
    if (p->has_window && left >= 0) m.first = (ptrdiff_t)(i_0 - (size_t)left);
    if (p->has_window && right >= 0) m.last = (ptrdiff_t)(i_0 + (size_t)right);
    if (p->causal) m.last = (ptrdiff_t)i_0;
    return m;
}

static inline HOST_DEVICE struct mask problem_mask(const struct problem *p)
{
    return mask_of_lengths(p, p->seqlen_q, p->seqlen_k);
}

/* x, but at least 0 and at most n. */
static inline HOST_DEVICE size_t mask_clamp(ptrdiff_t x, ptrdiff_t n)
{
    return x < 0 ? 0 : (size_t)(x < n ? x : n);
}

/* The keys that query i sees. */
static inline HOST_DEVICE struct key_range mask_keys(struct mask m, size_t i)
{
    struct key_range keys = {mask_clamp((ptrdiff_t)(i + (size_t)m.first), m.seqlen_k),
                             mask_clamp((ptrdiff_t)(i + (size_t)m.last + 1), m.seqlen_k)};
    return keys;
}

/* The same for a function that has the problem at hand. */
static inline HOST_DEVICE struct key_range visible_keys(const struct problem *p, size_t i)
{
    return mask_keys(problem_mask(p), i);
}

/* The keys that at least one of the queries first .. end - 1 sees: what a tile of queries
 * has to load. */
static inline HOST_DEVICE struct key_range some_row_sees(struct mask m, size_t first,
                                                         size_t end)
{
    struct key_range keys = {mask_keys(m, first).first, mask_keys(m, end - 1).end};
    return keys;
}

/* The keys that all of the queries first .. end - 1 see: where a tile needs no mask.  May
 * be empty with first > end. */
static inline HOST_DEVICE struct key_range all_rows_see(struct mask m, size_t first,
                                                        size_t end)
{
    struct key_range keys = {mask_keys(m, end - 1).first, mask_keys(m, first).end};
    return keys;
}
