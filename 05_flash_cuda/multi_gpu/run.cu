/* run.cu: attention of real data on several GPUs.  Each process reads the rows of its GPUs and
 * nothing else, and the output is written slice by slice: nobody holds the whole. */
#include <string.h>

extern "C" {
#include "problem/host_memory.h"
#include "problem/variant.h"
}
#include "mpi/slices.h"
#include "part.h"
#include "verbs.h"

/* Rows of a file as numbers of the problem's type, on a GPU: [heads, rows, d]. */
static const char *upload(const char *path, const struct chunks *c, size_t heads, size_t d,
                          enum dtype dtype, void *to)
{
    size_t n = size_times(size_times(heads, chunks_size(c)), d), size = dtype_size(dtype);
    float *wide = (float *)memory_new(size_times(n, sizeof *wide));
    char *narrow = (char *)memory_new(size_times(n, size));
    const char *why = wide && narrow ? slices_read(path, c, heads, d, wide)
                                     : "no memory for its rows";
    for (size_t i = 0; i < n && !why; i++) dtypes[dtype].store(narrow, i, wide[i]);
    if (!why) CUDA_CHECK(cudaMemcpy(to, narrow, n * size, cudaMemcpyHostToDevice));
    memory_free(wide);
    memory_free(narrow);
    return why;
}

static const char *read_shards(struct team *t, const struct options *o)
{
    const struct problem *p = &t->p;
    size_t hq = p->batch * p->heads_q, hk = p->batch * p->heads_kv;
    const char *why = NULL;
    for (int i = 0; i < t->world->local && !why; i++) {
        struct gpu *g = &t->gpu[i];
        char *v = g->keys_at[0] + hk * g->n_k * p->head_dim * dtype_size(p->dtype);
        CUDA_CHECK(cudaSetDevice(g->device));
        why = upload(o->file[ARRAY_Q], &g->queries, hq, p->head_dim, p->dtype, g->q);
        if (!why) why = upload(o->file[ARRAY_K], &g->keys, hk, p->head_dim, p->dtype, g->keys_at[0]);
        if (!why) why = upload(o->file[ARRAY_V], &g->keys, hk, p->head_dim_v, p->dtype, v);
    }
    return why;
}

/* The answer as a stream of slices (mpi/slices.h). */
struct answer { struct team *team; bool is_lse; };

static struct chunks answer_chunks(void *context, int rank)
{
    const struct team *t = ((struct answer *)context)->team;
    return queries_of(t->strategy, &t->p, rank, t->world->ranks);
}

static void answer_fetch(void *context, int rank, size_t head, int chunk, float *to)
{
    struct answer *a = (struct answer *)context;
    shard_fetch(a->team, rank, head, chunk, a->is_lse ? NULL : to, a->is_lse ? to : NULL);
}

static struct slices slices_of(struct answer *a)
{
    const struct team *t = a->team;
    struct slices s = {};
    s.fetch = answer_fetch;
    s.context = a;
    s.chunks = answer_chunks;
    s.ranks = is_tree(t->strategy) ? 1 : t->world->ranks;
    s.heads = t->p.batch * t->p.heads_q;
    s.width = a->is_lse ? 1 : t->p.head_dim_v;
    return s;
}

/* Process 0 writes both files, the others send their rows. */
static int write_answer(struct team *t, const struct options *o, const struct npy *q,
                        struct npy_writer writer[2])
{
    size_t n = o->file[ARRAY_LSE] ? 2 : 1;
    struct answer answer[2] = {{t, false}, {t, true}};
    struct slices slices[2];
    const char *why = NULL;
    const float *ignored;
    bool writes = t->world->first == 0;
    for (size_t i = 0; i < n; i++) {
        slices[i] = slices_of(&answer[i]);
        const char *here = slices_new(&slices[i]);
        if (here) why = here;
        if (writes) slices_write(&writer[i], &slices[i], q, i == 1, t->p.head_dim_v);
    }
    int status = world_agree(t->world, why, FAILED);
    why = NULL;
    if (writes && status) npy_writer_abort(writer, n);
    else if (writes) why = npy_writer_commit(writer, n);
    for (size_t i = 0; i < n; i++) {
        while (!status && slices_next(&slices[i], &ignored)) continue;
        slices_free(&slices[i]);
    }
    return status ? status : world_agree(t->world, why, FAILED);
}

/* The type: --dtype, else that of the file of q; f32 is not rounded unasked. */
static const char *choose_type(const struct options *o, const struct npy *q, struct problem *p)
{
    static char text[200];
    p->dtype = o->has_dtype ? o->dtype : q->dtype;
    const char *refused = variant_refuses(&tuned_cuda, p);
    if (!refused) return NULL;
    snprintf(text, sizeof text, "several GPUs do not support %s%s", refused,
             p->dtype == F32 ? "; --dtype bf16 or f16 rounds it" : "");
    return text;
}

int run_on_gpus(struct team *t, const struct options *o)
{
    const struct world *w = t->world;
    struct npy head[N_FILES] = {};
    struct npy_writer writer[2];
    struct problem p = {}, first;
    const char *why = o->file[ARRAY_Q] ? slices_problem(o, head, &p) : "run: give --q, --k, --v and --o";
    if (!why) why = choose_type(o, &head[Q], &p);
    int s = p.seqlen_q < 64 ? TREE : RING, status = world_agree(w, why, BAD);
    for (int i = 0; o->strategy && i < N_STRATEGIES; i++)
        if (is_wanted(o, (enum strategy)i)) s = i;
    if (status) return status;
    first = p;
    world_share(&first, sizeof first);
    why = memcmp(&first, &p, sizeof p) ? "its files have other shapes than those of rank 0" : NULL;
    status = world_agree(w, why, BAD);
    if (!status) status = world_agree(w, w->first ? NULL : slices_begin(o, writer), BAD);
    if (status) return status;
    status = world_agree(w, shards_new(t, &p, (enum strategy)s), BAD);
    if (!status) status = world_agree(w, read_shards(t, o), BAD);
    if (status && w->first == 0) npy_writer_abort(writer, o->file[ARRAY_LSE] ? 2 : 1);
    if (!status) {
        team_attention(t);
        team_wait(t);
        if (w->first == 0)
            printf("%s: %s on %d GPU%s, %s\n", w->stage->name, strategy_names[s], w->ranks,
                   w->ranks == 1 ? "" : "s", strategy_ideas[s]);
        status = write_answer(t, o, &head[Q], writer);
    }
    shards_free(t);
    for (int i = 0; i < N_FILES; i++) npy_free(&head[i]);
    return status;
}
