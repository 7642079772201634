/* leaf_fold.h: the fold of the kernel `general` where the bits of a query depend on its keys alone:
 * leaf after leaf, in the order of leaves.h. */
#pragma once

#include "general_step.h"

/* total . leaf: the new total, also as x's state.  The part of a thread's o that is in shared memory,
 * `kept`, belongs to this thread alone. */
template <class C>
static __device__ __forceinline__ void merge_leaf(consumer<C> &x, struct rows &total, float4 *kept)
{
    struct join j[2];
    for (int i = 0; i < 2; i++) {
        j[i] = join_of(total.m[i], x.rows.m[i], x.unit);
        total.l[i] = joined(j[i], total.l[i], quad_sum(x.rows.l[i]));
        total.m[i] = j[i].m, total.mc[i] = reference_of(j[i].m, x.unit);
    }
#pragma unroll
    for (int i = 0; i < DV<C> / 8; i++) {
        const float4 a = kept[i * C::Br * 2];
        float (&b)[4] = *(float (*)[4])(x.o + 4 * i);
        b[0] = joined(j[0], a.x, b[0]), b[1] = joined(j[0], a.y, b[1]);
        b[2] = joined(j[1], a.z, b[2]), b[3] = joined(j[1], a.w, b[3]);
        kept[i * C::Br * 2] = make_float4(b[0], b[1], b[2], b[3]);
    }
    x.rows = total;
}

/* The blocks that a consumer sees, leaf after leaf; the last one's output and leaf are still open. */
template <class C>
static __device__ __forceinline__ void
fold_leaves(consumer<C> &x, kv_pipeline<C> &kv, const struct general_scores &scores, struct rows &total,
            float4 *kept, struct blocks seen, struct blocks open, int w)
{
    total = x.rows; /* empty */
#pragma unroll
    for (int i = 0; i < DV<C> / 8; i++) kept[i * C::Br * 2] = make_float4(0, 0, 0, 0);
    for (int n = seen.first; n < seen.end; n++) {
        const bool is_cut = n < open.first || n >= open.end;
        if (n > seen.first && n % (LEAF / C::Bc)) {
            step<C, GROWING>(x, kv, scores, w, n, is_cut);
            continue;
        }
        if (n > seen.first) {
            last_pv(x, kv);
            merge_leaf(x, total, kept);
            clear(x.rows, x.o);
        }
        step<C, FIRST_BLOCK>(x, kv, scores, w, n, is_cut);
    }
}
