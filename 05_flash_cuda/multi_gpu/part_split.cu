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

void part_split(const struct problem *p, const struct part *x)
{
    const struct arrays a = {.q = x->q, .k = x->k, .v = x->v, .o = x->answer, .lse = x->lse,
                             .workspace = x->workspace, .stream = x->stream};
    if (p->dtype == F16) launch_for<F16, true, F32>(plan_part(p), p, &a);
    else launch_for<BF16, true, F32>(plan_part(p), p, &a);
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
