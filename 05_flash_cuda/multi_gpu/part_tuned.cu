/* arch: sm_90a */
/* part_tuned.cu: the last rung on a part of a longer problem.  The kernel is rung 14's; what differs
 * is how it is launched:
 *   - a tile ends by merging with the answer to the keys before (answer.h), so the instances
 *     are those with `PART` = true
 *   - q, k and v are some rows of each head in memory, which the tensor maps express
 *   - tiles are always taken from a counter.  NCCL's kernels occupy some multiprocessors
 *     while keys travel; blocks that start late on those must not own a fixed share */
#define PART_OF_THE_KEYS
#include "hopper/14_tuned.cu"

#include "part.h"

/* `rows` rows of each head, of all_rows in memory; beyond them the map has zeros. */
static CUtensorMap piece_map(const void *array, const struct problem *p, size_t heads,
                             size_t rows, size_t all_rows, size_t columns, int box_rows)
{
    const struct shape4 shape = {p->batch, heads, rows, columns};
    const struct strides strides = {columns * all_rows * heads, columns * all_rows, columns};
    return tensor_map(array, p->dtype, shape, strides, box_rows);
}

template <class C> static void launch_piece(const struct problem *p, const struct part *x)
{
    struct problem taken = *p; /* a mask that hides nothing, for the counter */
    taken.causal = 1;
    if (!p->causal) taken.shift = (ptrdiff_t)p->seqlen_q;
    const struct arrays a = {.q = x->q, .k = x->k, .v = x->v, .o = x->o, .lse = x->lse,
                             .workspace = x->workspace, .stream = x->stream};
    struct params params = params_of(&taken, &a, C::Br, C::Bc);
    params.q = piece_map(x->q, p, p->heads_q, p->seqlen_q, x->q_rows, p->head_dim, C::Br);
    params.k = piece_map(x->k, p, p->heads_kv, p->seqlen_k, x->k_rows, p->head_dim, C::Bc);
    params.v = piece_map(x->v, p, p->heads_kv, p->seqlen_k, x->k_rows, p->head_dim_v, C::Bc);
    params.o = piece_map(x->o, p, p->heads_q, p->seqlen_q, x->q_rows, p->head_dim_v, 64);
    params.o_strides.head = (ptrdiff_t)(x->q_rows * p->head_dim_v);
    params.o_strides.batch = (ptrdiff_t)p->heads_q * params.o_strides.head;
    const struct scheduler s = scheduler_of(params, &taken, &a);
    int blocks = persistent_blocks(s.n_tiles);
    const struct answer answer = {x->answer, (int)x->q_rows, x->merges, x->keeps};
    start(tuned_kernel<C>, blocks, C::THREADS, sizeof(memory<C>), x->stream, params, s, answer);
}

/* The instances for long sequences: only those are cut between GPUs. */
template <class T, int D>
static void launch_part(const struct problem *p, const struct part *x)
{
    if constexpr (D == 64) launch_piece<config<T, 64, 64, 3, 128, 3, true>>(p, x);
    else launch_piece<config<T, D, D, 2, D == 256 ? 64 : 128, 2, true>>(p, x);
}

void part_tuned(const struct problem *p, const struct part *x)
{
    LAUNCH_FOR(launch_part, p, x);
}
