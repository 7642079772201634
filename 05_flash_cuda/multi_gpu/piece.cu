/* piece.cu: one call of a kernel: the attention of some queries of a GPU and some keys. */
#include "team.h"

#include "merge.h"
#include "part.h"

static float *lse_of_part(const struct gpu *g)
{
    return g->part + whole.batch * whole.heads_q * g->n_q * whole.head_dim_v;
}

void clear_part(struct gpu *g)
{
    size_t rows = whole.batch * whole.heads_q * g->n_q, d = whole.head_dim_v;
    cudaLaunchConfig_t config = merge_launch(rows, g->compute);
    CUDA_CHECK(cudaLaunchKernelEx(&config, unit_kernel, g->part, lse_of_part(g), rows, d));
    CUDA_CHECK(cudaMemsetAsync(g->o, 0, rows * d * dtype_size(whole.dtype), g->compute));
}

/* The tree gives few queries to split-KV, which merges with nothing. */
static bool is_split(const struct problem *p)
{
    return !strategy->is_ring && !part_split_refuses(p);
}

void fold_piece(struct gpu *g, const struct piece *x, const char *keys, size_t n_keys, bool merges,
                bool keeps)
{
    struct problem p = problem_of_piece(&whole, x);
    size_t size = dtype_size(p.dtype), d = p.head_dim_v, first = x->rows.first;
    const char *values = keys + p.batch * p.heads_kv * n_keys * p.head_dim * size;
    const struct part part = {.q = g->q + first * p.head_dim * size,
                              .k = keys + x->cols.first * p.head_dim * size,
                              .v = values + x->cols.first * d * size,
                              .q_rows = g->n_q, .k_rows = n_keys,
                              .o = (char *)g->o + first * d * size, .answer = g->part + first * d,
                              .lse = lse_of_part(g) + first, .merges = merges, .keeps = keeps,
                              .workspace = g->workspace, .stream = g->compute};
    if (is_split(&p)) part_split(&p, &part);
    else part_tuned(&p, &part);
}

size_t piece_workspace(const struct gpu *g)
{
    const size_t counter = 16; /* of work tiles */
    struct piece x[MOST_PIECES];
    if (strategy->is_ring || !pieces_of(&whole, &g->queries, &g->keys, x)) return counter;
    struct problem p = problem_of_piece(&whole, &x[0]);
    size_t bytes = is_split(&p) ? part_split_workspace(&p) : 0;
    return bytes > counter ? bytes : counter;
}
