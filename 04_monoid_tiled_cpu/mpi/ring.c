/* ring.c: queries stay, keys and values travel round the ranks.
 *
 *     for step 0 .. R - 1:
 *         send the keys and values in hand to the next rank, receive those of the last one
 *         meanwhile: answer = answer . attention(own queries, keys in hand)
 *
 * Liu, Zaharia and Abbeel 2023, "Ring Attention".  A rank holds 1/R of the queries and two
 * buffers of 1/R of the keys and values, so the memory of each falls as 1/R.  A step computes
 * for a time that grows with the square of the length and moves bytes that grow with the
 * length: on long sequences the copy hides behind the products.
 *
 * Under a causal mask the rank of the first queries would have nothing to do in most steps.
 * With zigzag chunks (ranks.h) every rank has the same number of visible pairs in each step;
 * the striped and zigzag orders were published with later ring attention implementations. */
#include "ranks.h"

#include "problem/host_memory.h"

/* Keys and values of one rank as they travel: for each chunk k, then v, every head. */
struct parcel { float *k[CHUNKS], *v[CHUNKS]; float *memory; };

/* Where the chunks of a parcel lie, and how many floats there are in all. */
static size_t parcel_lay(const struct problem *p, const struct chunks *keys,
                         struct parcel *parcel)
{
    size_t heads = p->batch * p->heads_kv, at = 0;
    for (int c = 0; c < CHUNKS; c++) {
        size_t n = range_size(keys->at[c]);
        parcel->k[c] = parcel->memory + at;
        parcel->v[c] = parcel->k[c] + heads * n * p->head_dim;
        at += heads * n * (p->head_dim + p->head_dim_v);
    }
    return at;
}

/* The longest parcel of any rank, in floats. */
static size_t parcel_room(const struct shard *w, enum strategy s, int ranks)
{
    size_t most = 0;
    for (int r = 0; r < ranks; r++) {
        struct chunks keys = strategy_keys(s, &w->whole, r, ranks);
        size_t n = chunks_size(&keys) * w->whole.batch * w->whole.heads_kv *
                   (w->whole.head_dim + w->whole.head_dim_v);
        if (n > most) most = n;
    }
    return most;
}

/* Memory of one rank beside its shard: a piece's queries and answer, and its bias. */
struct scratch { float *q, *o, *lse, *bias; float *answer_o[CHUNKS], *answer_lse[CHUNKS]; };

static float *carve(float **memory, size_t n)
{
    float *at = *memory;
    *memory += n;
    return at;
}

/* Bias of the piece as an array of its own: rows of this rank's chunk, columns `cols`. */
static const float *piece_bias(const struct shard *w, size_t first_row, size_t n_rows,
                               struct key_range cols, float *to)
{
    if (!w->whole.has_bias) return NULL;
    size_t n = range_size(cols), all = w->whole.seqlen_k;
    for (size_t i = 0; i < n_rows; i++)
        copy_rows(to + i * n, n, 0, w->bias + (first_row + i) * all, all, cols.first, n, 1, 1);
    return to;
}

/* Folds the parcel into the answers of both query chunks. */
static int fold_parcel(const struct shard *w, const struct parcel *parcel,
                       const struct chunks *keys, const struct scratch *m,
                       MPI_Request *pending)
{
    const struct problem *p = &w->whole;
    size_t heads = p->batch * p->heads_q, row = 0, n_q = chunks_size(&w->queries);
    for (int c = 0; c < CHUNKS; row += range_size(w->queries.at[c++])) {
        size_t n = range_size(w->queries.at[c]);
        copy_rows(m->q, n, 0, w->q, n_q, row, n, heads, p->head_dim);
        for (int b = 0; b < CHUNKS; b++) {
            const float *bias = piece_bias(w, row, n, keys->at[b], m->bias);
            int done = local_attention(w, m->q, w->queries.at[c], parcel->k[b], parcel->v[b],
                                       keys->at[b], bias, m->o, m->lse);
            if (done < 0) return -1;
            if (done) answer_merge(heads * n, p->head_dim_v, m->answer_o[c], m->answer_lse[c],
                                   m->o, m->lse);
            int ignored; /* lets MPI move the travelling parcels on */
            if (pending) MPI_Testall(2, pending, &ignored, MPI_STATUSES_IGNORE);
        }
    }
    return 0;
}

static size_t scratch_floats(const struct shard *w, int ranks, enum strategy s)
{
    const struct problem *p = &w->whole;
    size_t n = chunks_size(&w->queries), heads = p->batch * p->heads_q, widest = 0;
    for (int r = 0; r < ranks; r++) {
        struct chunks keys = strategy_keys(s, p, r, ranks);
        for (int c = 0; c < CHUNKS; c++)
            if (range_size(keys.at[c]) > widest) widest = range_size(keys.at[c]);
    }
    size_t answer = heads * n * (p->head_dim_v + 1);
    return heads * n * p->head_dim + 2 * answer + (p->has_bias ? n * widest : 0);
}

static struct scratch scratch_at(const struct shard *w, float *memory)
{
    const struct problem *p = &w->whole;
    size_t n = chunks_size(&w->queries), heads = p->batch * p->heads_q;
    struct scratch m = {0};
    m.q = carve(&memory, heads * n * p->head_dim);
    m.o = carve(&memory, heads * n * p->head_dim_v);
    m.lse = carve(&memory, heads * n);
    for (int c = 0; c < CHUNKS; c++) {
        size_t rows = heads * range_size(w->queries.at[c]);
        m.answer_o[c] = carve(&memory, rows * p->head_dim_v);
        m.answer_lse[c] = carve(&memory, rows);
        answer_unit(rows, p->head_dim_v, m.answer_o[c], m.answer_lse[c]);
    }
    m.bias = memory;
    return m;
}

/* R steps; at[0] and at[1] take turns as the parcel in hand and the one that arrives. */
static int turn_the_ring(const struct shard *w, enum strategy s, struct parcel at[2],
                         const struct scratch *m)
{
    enum { TAG = 2 };
    int me, ranks, failed = 0;
    MPI_Comm_rank(w->ranks, &me);
    MPI_Comm_size(w->ranks, &ranks);
    for (int step = 0; step < ranks; step++) {
        struct parcel *now = &at[step % 2], *next = &at[1 - step % 2];
        int owner = (me - step + ranks) % ranks, last = step + 1 == ranks;
        struct chunks keys = strategy_keys(s, &w->whole, owner, ranks);
        struct chunks coming = strategy_keys(s, &w->whole, (owner - 1 + ranks) % ranks, ranks);
        MPI_Request pending[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        size_t n = parcel_lay(&w->whole, &keys, now);
        if (!last) {
            size_t arriving = parcel_lay(&w->whole, &coming, next);
            MPI_Irecv(next->memory, (int)arriving, MPI_FLOAT, (me - 1 + ranks) % ranks, TAG,
                      w->ranks, &pending[0]);
            MPI_Isend(now->memory, (int)n, MPI_FLOAT, (me + 1) % ranks, TAG, w->ranks,
                      &pending[1]);
        }
        if (!failed) failed = fold_parcel(w, now, &keys, m, last ? NULL : pending);
        MPI_Waitall(2, pending, MPI_STATUSES_IGNORE);
    }
    return failed;
}

const char *ring_attention(const struct shard *w, enum strategy s)
{
    const struct problem *p = &w->whole;
    int me, ranks;
    MPI_Comm_rank(w->ranks, &me);
    MPI_Comm_size(w->ranks, &ranks);
    size_t room = parcel_room(w, s, ranks), heads = p->batch * p->heads_kv, row = 0;
    size_t own = scratch_floats(w, ranks, s), n_k = chunks_size(&w->keys);
    float *memory = memory_new(size_times(size_plus(size_times(2, room), own), sizeof *memory));
    int failed = memory == NULL || room > 1u << 30, any;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, w->ranks);
    if (any) {
        memory_free(memory);
        return failed ? "no memory for two parcels of keys and values" : "";
    }
    struct parcel at[2] = {{.memory = memory}, {.memory = memory + room}};
    struct scratch m = scratch_at(w, memory + 2 * room);
    parcel_lay(p, &w->keys, &at[0]);
    for (int c = 0; c < CHUNKS; row += range_size(w->keys.at[c++])) {
        size_t n = range_size(w->keys.at[c]);
        copy_rows(at[0].k[c], n, 0, w->k, n_k, row, n, heads, p->head_dim);
        copy_rows(at[0].v[c], n, 0, w->v, n_k, row, n, heads, p->head_dim_v);
    }
    failed = turn_the_ring(w, s, at, &m);
    heads = p->batch * p->heads_q;
    row = 0;
    for (int c = 0; c < CHUNKS; row += range_size(w->queries.at[c++])) {
        size_t n = range_size(w->queries.at[c]), n_q = chunks_size(&w->queries);
        copy_rows(w->o, n_q, row, m.answer_o[c], n, 0, n, heads, p->head_dim_v);
        copy_rows(w->lse, n_q, row, m.answer_lse[c], n, 0, n, heads, 1);
    }
    memory_free(memory);
    return failed ? "no memory for a piece of the attention" : NULL;
}
