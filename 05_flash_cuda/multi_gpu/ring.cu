/* ring.cu: queries stay on their GPU, keys and values travel round the GPUs.
 *
 *     for step 0 ... R - 1:
 *         copy stream:     send the keys in hand to the next rank, receive those of the last
 *         compute stream:  answer = answer . attention(own queries, keys in hand)
 *
 * Liu, Zaharia and Abbeel 2023, "Ring Attention"; stage 4's mpi/ring.c is the same in C.
 * The copies run under the kernels.  An event after each copy and after each step keeps the two
 * streams in order: keys are used after they have arrived, and a place is overwritten
 * after the kernel that read it.  NCCL's copies are kernels too and need some
 * multiprocessors, so they are enqueued before the attention kernel, in a stream of higher
 * priority. */
#include "team.h"

#include "merge.h"
#include "part.h"

static size_t heads_q(const struct problem *p) { return p->batch * p->heads_q; }

/* Bytes of the keys and values of a rank. */
static size_t bytes_of_keys(const struct team *t, int rank)
{
    const struct problem *p = &t->p;
    struct chunks keys = keys_of(t->strategy, p, rank, t->world->ranks);
    return p->batch * p->heads_kv * chunks_size(&keys) * (p->head_dim + p->head_dim_v) *
           dtype_size(p->dtype);
}

/* Enqueues the exchange of one step on all GPUs of this process. */
static void exchange(struct team *t, int step)
{
    int ranks = t->world->ranks;
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        if (step >= 2) CUDA_CHECK(cudaStreamWaitEvent(g->copy, g->computed[step - 1], 0));
        CUDA_CHECK(cudaEventRecord(g->copy_began[step], g->copy));
    }
    NCCL_CHECK(t, ncclGroupStart());
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        int now = owner_of(g->rank, step, ranks), next = owner_of(g->rank, step + 1, ranks);
        NCCL_CHECK(t, ncclSend(g->keys_at[place_of_step(step)], bytes_of_keys(t, now),
                               ncclUint8, (g->rank + 1) % ranks, g->comm, g->copy));
        NCCL_CHECK(t, ncclRecv(g->keys_at[place_of_step(step + 1)], bytes_of_keys(t, next),
                               ncclUint8, (g->rank - 1 + ranks) % ranks, g->comm, g->copy));
    }
    NCCL_CHECK(t, ncclGroupEnd());
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        CUDA_CHECK(cudaEventRecord(g->arrived[step + 1], g->copy));
    }
}

/* The answer becomes the unit. */
static void clear_answer(struct team *t, struct gpu *g)
{
    size_t rows = heads_q(&t->p) * g->n_q, d = t->p.head_dim_v;
    cudaLaunchConfig_t config = merge_launch(rows, g->compute);
    CUDA_CHECK(cudaLaunchKernelEx(&config, unit_kernel, g->answer, g->answer + rows * d, rows,
                                  d));
}

/* Computes one piece and merges it into the answer.  is_first: it is the answer. */
static void add_piece(struct team *t, struct gpu *g, const struct piece *x, const char *keys,
                      size_t n_keys, bool is_first)
{
    struct problem p = problem_of_piece(&t->p, x);
    size_t size = dtype_size(p.dtype), heads = heads_q(&p), n = p.seqlen_q, d = p.head_dim_v;
    float *answer_lse = g->answer + heads * g->n_q * d;
    struct part part = {};
    part.q = g->q + x->rows.first * p.head_dim * size;
    part.k = keys + x->cols.first * p.head_dim * size;
    part.v = keys + p.batch * p.heads_kv * n_keys * p.head_dim * size +
             x->cols.first * d * size;
    part.q_rows = g->n_q;
    part.k_rows = n_keys;
    part.o = is_first ? g->answer : g->part;
    part.lse = is_first ? answer_lse : g->part + heads * n * d;
    part.workspace = g->workspace;
    part.stream = g->compute;
    part_tuned(&p, &part);
    if (is_first) return;
    cudaLaunchConfig_t config = merge_launch(heads * n, g->compute);
    CUDA_CHECK(cudaLaunchKernelEx(&config, merge_kernel, g->answer, answer_lse, part.o,
                                  part.lse, heads, g->n_q, x->rows.first, n, d));
}

/* Enqueues what one GPU computes in a step. */
static void compute(struct team *t, struct gpu *g, int step)
{
    int owner = owner_of(g->rank, step, t->world->ranks);
    struct chunks keys = keys_of(t->strategy, &t->p, owner, t->world->ranks);
    struct piece pieces[MOST_PIECES];
    int n = pieces_of(&t->p, &g->queries, &keys, pieces);
    CUDA_CHECK(cudaSetDevice(g->device));
    if (step > 0) CUDA_CHECK(cudaStreamWaitEvent(g->compute, g->arrived[step], 0));
    CUDA_CHECK(cudaEventRecord(g->compute_began[step], g->compute));
    bool whole = n > 0 && range_size(pieces[0].rows) == g->n_q;
    if (step == 0 && !whole && g->n_q) clear_answer(t, g);
    for (int i = 0; i < n; i++)
        add_piece(t, g, &pieces[i], g->keys_at[place_of_step(step)], chunks_size(&keys),
                  step == 0 && i == 0 && whole);
    CUDA_CHECK(cudaEventRecord(g->computed[step], g->compute));
}

template <class T> static void round_answer(const struct gpu *g, size_t n)
{
    cudaLaunchConfig_t config =
        launch_of((n + 8 * MERGE_ROWS * WARP - 1) / (8 * MERGE_ROWS * WARP),
                  MERGE_ROWS * WARP, 0, g->compute);
    CUDA_CHECK(cudaLaunchKernelEx(&config, round_kernel<T>, (T *)g->o, g->answer, n));
}

/* The answer in the problem's type. */
static void finish(struct team *t, struct gpu *g)
{
    size_t rows = heads_q(&t->p) * g->n_q, n = rows * t->p.head_dim_v;
    CUDA_CHECK(cudaSetDevice(g->device));
    if (n == 0) return;
    if (t->p.dtype == BF16) round_answer<__nv_bfloat16>(g, n);
    else round_answer<__half>(g, n);
    CUDA_CHECK(cudaMemcpyAsync(g->lse, g->answer + n, 4 * rows, cudaMemcpyDeviceToDevice,
                               g->compute));
}

void ring_attention(struct team *t)
{
    int ranks = t->world->ranks;
    for (int step = 0; step < ranks; step++) {
        if (step + 1 < ranks) exchange(t, step);
        for (int i = 0; i < t->world->local; i++) compute(t, &t->gpu[i], step);
    }
    for (int i = 0; i < t->world->local; i++) finish(t, &t->gpu[i]);
}

void team_attention(struct team *t)
{
    for (int i = 0; i < t->world->local; i++) {
        struct gpu *g = &t->gpu[i];
        CUDA_CHECK(cudaSetDevice(g->device));
        CUDA_CHECK(cudaEventRecord(g->began, g->compute));
        CUDA_CHECK(cudaStreamWaitEvent(g->copy, g->began, 0));
    }
    if (is_tree(t->strategy)) tree_attention(t);
    else ring_attention(t);
    for (int i = 0; i < t->world->local; i++) {
        CUDA_CHECK(cudaSetDevice(t->gpu[i].device));
        CUDA_CHECK(cudaEventRecord(t->gpu[i].ended, t->gpu[i].compute));
    }
}
