/* part_split.cu: split-KV on a part of the keys, for decoding.  The kernels are those of
 * split_kv/split_kv.cu.  Their parts are float32 anyway, so the merge of a GPU's parts
 * is launched in the form that writes float32. */
#define PART_OF_A_PROBLEM
#include "split_kv/split_kv.cu"

#include "part.h"

/* At least two parts: one alone would be written in 16 bits by the kernel itself. */
static struct parts plan_part(const struct problem *p)
{
    struct parts parts = plan(p);
    if (parts.n > 1) return parts;
    parts.n = 2;
    parts.keys = (int)(p->seqlen_k / 2 + 64) / 64 * 64; /* whole tiles, at least one */
    return parts;
}

template <enum dtype T, int D>
static void launch_part(const struct problem *p, const struct arrays *a)
{
    struct parts parts = plan_part(p);
    launch_parts<F32>(parts.warps == MOST_WARPS ? split_kv_kernel<T, D, MOST_WARPS>
                                                : split_kv_kernel<T, D, 4>,
                      parts.warps * sizeof(struct ring<D>), ROWS, parts, p, a);
}

template <enum dtype T>
static void part_in(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    if (d <= 64) launch_part<T, 64>(p, a);
    else if (d <= 128) launch_part<T, 128>(p, a);
    else launch_part<T, 256>(p, a);
}

void part_split(const struct problem *p, const struct part *x)
{
    struct arrays a = {};
    a.q = x->q;
    a.k = x->k;
    a.v = x->v;
    a.o = x->o;
    a.lse = x->lse;
    a.workspace = x->workspace;
    a.stream = x->stream;
    if (p->dtype == F16) part_in<F16>(p, &a);
    else part_in<BF16>(p, &a);
}

size_t part_split_workspace(const struct problem *p)
{
    return workspace_of(p, plan_part(p));
}

const char *part_split_refuses(const struct problem *p)
{
    if (p->has_bias || p->dtype == F32) return "a bias or f32";
    if (p->head_dim > 256 || p->head_dim_v > 256 || p->head_dim % 8 || p->head_dim_v % 8)
        return "such a head_dim";
    return split_refuses(p, MOST_ROWS);
}
