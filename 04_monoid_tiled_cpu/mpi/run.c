/* run.c: attention of real data on several ranks.  Each rank reads its own rows of the files, and
 * rank 0 writes the output slice by slice as it comes from the ranks. */
#include <stdio.h>
#include <string.h>

#include "problem/host_memory.h"
#include "program.h"
#include "shard.h"
#include "slices.h"

/* Do all ranks see the same sizes? */
static const char *same_everywhere(const struct team *t, const struct problem *p)
{
    unsigned long long mine[7] = {p->batch, p->heads_q, p->heads_kv, p->seqlen_q, p->seqlen_k,
                                  p->head_dim, p->head_dim_v}, first[7];
    memcpy(first, mine, sizeof mine);
    MPI_Bcast(first, 7, MPI_UNSIGNED_LONG_LONG, 0, t->comm);
    return memcmp(first, mine, sizeof mine) ? "its files have other shapes than those of rank 0"
                                            : NULL;
}

/* Fills the shard from the files; for the tree only the rank's columns of the bias stay. */
static const char *read_shard(const struct options *o, struct shard *w, enum strategy s)
{
    const struct problem *p = &w->whole;
    const char *why = slices_read(o->file[ARRAY_Q], &w->queries, p->batch * p->heads_q, p->head_dim,
                                  (float *)w->q);
    size_t hk = p->batch * p->heads_kv, all = p->seqlen_k;
    if (!why) why = slices_read(o->file[ARRAY_K], &w->keys, hk, p->head_dim, (float *)w->k);
    if (!why) why = slices_read(o->file[ARRAY_V], &w->keys, hk, p->head_dim_v, (float *)w->v);
    if (why || !o->file[ARRAY_BIAS]) return why;
    if (s == RING || s == RING_UNBALANCED)
        return slices_read(o->file[ARRAY_BIAS], &w->queries, 1, all, (float *)w->bias);
    size_t n = chunks_size(&w->keys);
    float *row = memory_new((all ? all : 1) * sizeof *row);
    if (!row) return "no memory for a row of the bias";
    for (size_t i = 0; i < p->seqlen_q && !why; i++) {
        struct chunks one = {{{i, i + 1}, {0, 0}}};
        why = slices_read(o->file[ARRAY_BIAS], &one, 1, all, row);
        if (!why) copy_rows((float *)w->bias + i * n, n, 0, row, all, w->keys.at[FRONT].first,
                            n, 1, 1);
    }
    memory_free(row);
    return why;
}

/* The answer of all ranks as a stream of slices. */
struct answer { const struct shard *w; enum strategy s; int is_lse; };

static struct chunks answer_chunks(void *context, int rank)
{
    const struct answer *a = context;
    int ranks;
    MPI_Comm_size(a->w->ranks, &ranks);
    return strategy_queries(a->s, &a->w->whole, rank, ranks);
}

static void answer_fetch(void *context, int rank, size_t head, int chunk, float *to)
{
    const struct answer *a = context;
    shard_fetch(a->w, a->s, rank, head, chunk, a->is_lse, to);
}

static struct slices slices_of(struct answer *a, int ranks)
{
    const struct problem *p = &a->w->whole;
    return (struct slices){.fetch = answer_fetch, .context = a, .chunks = answer_chunks,
                           .ranks = a->s == TREE || a->s == TREE_FIXED_ORDER ? 1 : ranks,
                           .heads = p->batch * p->heads_q,
                           .width = a->is_lse ? 1 : p->head_dim_v};
}

/* Writes o and lse: all appear, or none.  Rank 0 writes; the others send, also what a full disk
 * does not take any more. */
static const char *write_answer(const struct team *t, const struct shard *w, enum strategy s,
                                const struct npy *q, struct npy_writer writer[2])
{
    size_t n = t->opt->file[ARRAY_LSE] ? 2 : 1;
    struct answer answer[2] = {{w, s, 0}, {w, s, 1}};
    struct slices slices[2];
    const char *why = NULL;
    const float *ignored;
    for (size_t i = 0; i < n; i++) {
        slices[i] = slices_of(&answer[i], t->ranks);
        const char *here = slices_new(&slices[i]);
        if (here) why = here;
        if (!t->me) slices_write(&writer[i], &slices[i], q, i == 1, w->whole.head_dim_v);
    }
    int failed = why != NULL, any;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, t->comm);
    if (!any && !t->me) why = npy_writer_commit(writer, n);
    else if (!t->me) npy_writer_abort(writer, n);
    for (size_t i = 0; i < n; i++) {
        while (!any && slices_next(&slices[i], &ignored)) continue;
        slices_free(&slices[i]);
    }
    return why;
}

int run_ranks(const struct team *t)
{
    const struct options *o = t->opt;
    enum strategy s = TREE;
    struct npy head[N_FILES] = {{0}};
    struct npy_writer writer[2];
    struct problem p = {0};
    struct shard w;
    while (o->strategy && strcmp(o->strategy, strategy_names[s])) s++;
    const char *why = !o->file[ARRAY_Q] ? "run: give --q, --k, --v and --o" : slices_problem(o, head, &p);
    int status = agree(t, why, BAD);
    if (!status) status = agree(t, same_everywhere(t, &p), BAD);
    if (!status && !o->strategy) s = p.seqlen_q < 64 ? TREE : RING;
    if (!status) status = agree(t, t->me ? NULL : slices_begin(o, writer), BAD);
    if (status) return status;
    status = agree(t, shard_new(&w, &p, s, t->comm), BAD);
    if (!status) status = agree(t, read_shard(o, &w, s), BAD);
    if (!status) status = agree(t, shard_attention(&w, s), FAILED);
    if (status && !t->me) npy_writer_abort(writer, o->file[ARRAY_LSE] ? 2 : 1);
    if (!status) {
        if (!t->me)
            printf("%s: %s on %d ranks, %s\n", mpi_stage.name, strategy_names[s], t->ranks,
                   strategy_ideas[s]);
        status = agree(t, write_answer(t, &w, s, &head[Q], writer), FAILED);
    }
    shard_free(&w);
    for (int i = 0; i < N_FILES; i++) npy_free(&head[i]);
    return status;
}
