/* sequences.h: the sequences of a batch, which may differ in length: where each lies in the
 * arrays, and its mask.  What common/core/problem/layout.h says of them, for kernels. */
#pragma once

#include "mask32.h"

/* What tells sequences apart. */
struct sequences {
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* packed; else NULL: all have the same length */
    const int32_t *seqlens_k;                   /* NULL: all have seqlen_k keys */
    int n, seqlen_q, seqlen_k;                  /* their number; the longest */
    int first, last; /* the mask, counted from the query's own key: it sees first ... last */
};

/* One of them. */
struct rows_of_sequence {
    int q, k;           /* its first row in the arrays */
    int batch;          /* its place in the arrays: 0 in packed ones */
    int seqlen_q;
    struct mask32 mask; /* with its seqlen_k */
};

static __device__ __forceinline__ struct rows_of_sequence
find_sequence(const struct sequences &all, int number)
{
    struct rows_of_sequence s = {0, 0, number, all.seqlen_q};
    int seqlen_k = all.seqlen_k;
    if (all.cu_seqlens_q) {
        s.batch = 0;
        s.q = all.cu_seqlens_q[number], s.seqlen_q = all.cu_seqlens_q[number + 1] - s.q;
        s.k = all.cu_seqlens_k[number], seqlen_k = all.cu_seqlens_k[number + 1] - s.k;
    }
    if (all.seqlens_k) seqlen_k = all.seqlens_k[number];
    int own_key = seqlen_k - s.seqlen_q; /* of query 0 */
    s.mask = {seqlen_k, own_key + all.first, own_key + all.last};
    return s;
}

/* ---- the host's side ---- */

static struct sequences sequences_of(const struct problem *p, const struct arrays *a)
{
    const struct mask m = problem_mask(p); /* no limit: so large that it is none for any */
    const ptrdiff_t own_key = m.seqlen_k - (ptrdiff_t)p->seqlen_q;
    return {.cu_seqlens_q = p->packed ? a->cu_seqlens_q : NULL,
            .cu_seqlens_k = p->packed ? a->cu_seqlens_k : NULL,
            .seqlens_k = p->has_lengths ? a->seqlens_k : NULL, .n = (int)p->batch,
            .seqlen_q = (int)p->seqlen_q, .seqlen_k = (int)p->seqlen_k,
            .first = limit32(m.first - own_key), .last = limit32(m.last - own_key)};
}
