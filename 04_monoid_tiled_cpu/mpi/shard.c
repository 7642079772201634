/* shard.c: the memory of a shard, and answers brought together on rank 0. */
#include "shard.h"

#include <stdio.h>
#include <string.h>

#include "problem/host_memory.h"

struct chunks strategy_queries(enum strategy s, const struct problem *whole, int rank,
                               int ranks)
{
    if (s == TREE || s == TREE_FIXED_ORDER)
        return (struct chunks){{{0, whole->seqlen_q}, {0, 0}}};
    return chunks_of(whole->seqlen_q, (size_t)rank, (size_t)ranks, s == RING);
}

struct chunks strategy_keys(enum strategy s, const struct problem *whole, int rank, int ranks)
{
    return chunks_of(whole->seqlen_k, (size_t)rank, (size_t)ranks, s == RING);
}

static int is_tree(enum strategy s)
{
    return s == TREE || s == TREE_FIXED_ORDER;
}

static size_t bias_columns(const struct shard *w, enum strategy s)
{
    return is_tree(s) ? chunks_size(&w->keys) : w->whole.seqlen_k;
}

static float *floats(size_t a, size_t b, size_t c)
{
    size_t n = size_times(size_times(a, b), c);
    return memory_new(size_times(n ? n : 1, sizeof(float)));
}

const char *shard_new(struct shard *w, const struct problem *whole, enum strategy s,
                      MPI_Comm ranks)
{
    int me, n, any;
    MPI_Comm_rank(ranks, &me);
    MPI_Comm_size(ranks, &n);
    *w = (struct shard){.whole = *whole, .ranks = ranks};
    w->queries = strategy_queries(s, whole, me, n);
    w->keys = strategy_keys(s, whole, me, n);
    size_t n_q = chunks_size(&w->queries), n_k = chunks_size(&w->keys);
    size_t hq = whole->batch * whole->heads_q, hk = whole->batch * whole->heads_kv;
    w->q = floats(hq, n_q, whole->head_dim);
    w->k = floats(hk, n_k, whole->head_dim);
    w->v = floats(hk, n_k, whole->head_dim_v);
    w->o = floats(hq, n_q, whole->head_dim_v);
    w->lse = floats(hq, n_q, 1);
    if (whole->has_bias) w->bias = floats(n_q, bias_columns(w, s), 1);
    int failed = !w->q || !w->k || !w->v || !w->o || !w->lse || (whole->has_bias && !w->bias);
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, ranks);
    if (any) shard_free(w);
    return failed ? "its part of the arrays does not fit into memory" : any ? "" : NULL;
}

void shard_free(struct shard *w)
{
    const void *owned[] = {w->q, w->k, w->v, w->bias, w->o, w->lse};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) memory_free((void *)owned[i]);
    w->q = w->k = w->v = w->bias = w->o = w->lse = NULL;
}

/* Rows of both chunks of every head, out of an array of the whole. */
static void cut(const struct chunks *c, const float *from, size_t all, float *to, size_t heads,
                size_t d)
{
    size_t row = 0, n = chunks_size(c);
    for (int i = 0; i < CHUNKS; row += range_size(c->at[i++]))
        copy_rows(to, n, row, from, all, c->at[i].first, range_size(c->at[i]), heads, d);
}

void shard_cut(struct shard *w, enum strategy s, const struct arrays *a)
{
    const struct problem *p = &w->whole;
    size_t hq = p->batch * p->heads_q, hk = p->batch * p->heads_kv;
    cut(&w->queries, a->q, p->seqlen_q, (float *)w->q, hq, p->head_dim);
    cut(&w->keys, a->k, p->seqlen_k, (float *)w->k, hk, p->head_dim);
    cut(&w->keys, a->v, p->seqlen_k, (float *)w->v, hk, p->head_dim_v);
    if (!p->has_bias) return;
    size_t columns = bias_columns(w, s), row = 0;
    for (int i = 0; i < CHUNKS; i++)
        for (size_t r = w->queries.at[i].first; r < w->queries.at[i].end; r++, row++)
            copy_rows((float *)w->bias + row * columns, columns, 0, a->bias + r * p->seqlen_k,
                      p->seqlen_k, is_tree(s) ? w->keys.at[FRONT].first : 0, columns, 1, 1);
}

const char *shard_attention(const struct shard *w, enum strategy s)
{
    return is_tree(s) ? tree_attention(w, s == TREE_FIXED_ORDER) : ring_attention(w, s);
}

/* Sends or receives n floats, in pieces that an int can count. */
static void send_floats(const float *x, size_t n, int to, MPI_Comm ranks)
{
    for (size_t at = 0, most = 1u << 28; at < n; at += most)
        MPI_Send(x + at, (int)(n - at < most ? n - at : most), MPI_FLOAT, to, 3, ranks);
}

static void receive_floats(float *x, size_t n, int from, MPI_Comm ranks)
{
    for (size_t at = 0, most = 1u << 28; at < n; at += most)
        MPI_Recv(x + at, (int)(n - at < most ? n - at : most), MPI_FLOAT, from, 3, ranks,
                 MPI_STATUS_IGNORE);
}

void shard_fetch(const struct shard *w, enum strategy s, int rank, size_t head, int chunk,
                 int is_lse, float *to)
{
    int me, ranks;
    MPI_Comm_rank(w->ranks, &me);
    MPI_Comm_size(w->ranks, &ranks);
    struct chunks c = strategy_queries(s, &w->whole, rank, ranks);
    size_t d = is_lse ? 1 : w->whole.head_dim_v, n = range_size(c.at[chunk]) * d;
    size_t row = head * chunks_size(&c) + (chunk == BACK ? range_size(c.at[FRONT]) : 0);
    const float *from = is_lse ? w->lse : w->o;
    if (me == rank && me == 0) memcpy(to, from + row * d, n * sizeof *to);
    else if (me == rank) send_floats(from + row * d, n, 0, w->ranks);
    else if (me == 0) receive_floats(to, n, rank, w->ranks);
}

void shard_gather(const struct shard *w, enum strategy s, float *o, float *lse)
{
    int ranks;
    const struct problem *p = &w->whole;
    MPI_Comm_size(w->ranks, &ranks);
    for (int r = 0; r < (is_tree(s) ? 1 : ranks); r++)
        for (size_t i = 0; i < CHUNKS * p->batch * p->heads_q; i++) {
            struct chunks c = strategy_queries(s, p, r, ranks);
            size_t row = i / CHUNKS * p->seqlen_q + c.at[i % CHUNKS].first;
            int chunk = (int)(i % CHUNKS);
            if (range_size(c.at[chunk]) == 0) continue;
            shard_fetch(w, s, r, i / CHUNKS, chunk, 0, o + row * p->head_dim_v);
            shard_fetch(w, s, r, i / CHUNKS, chunk, 1, lse + row);
        }
}

int ranks_complain(const char *why, char *text, size_t size, MPI_Comm ranks)
{
    int me, n, mine, first;
    MPI_Comm_rank(ranks, &me);
    MPI_Comm_size(ranks, &n);
    mine = why && *why ? me : n;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, ranks);
    if (first == n) return 0;
    memset(text, 0, size);
    if (me == first) snprintf(text, size, "rank %d: %s", me, why);
    MPI_Bcast(text, (int)size, MPI_CHAR, first, ranks);
    return 1;
}
