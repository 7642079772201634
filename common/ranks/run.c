/* slices.c: the part of a .npy file that one rank holds, and an output file written in slices,
 * so that no rank ever holds the whole. */
#include "slices.h"

#include <stdio.h>
#include <string.h>

#include "problem/host_memory.h"

/* Size `from_end` places before the last of a file's shape; 1 where it has none. */
static size_t dim(const struct npy *a, size_t from_end)
{
    if (from_end == 1) return a->rows_there;
    return from_end < a->ndim ? a->shape[a->ndim - 1 - from_end] : 1;
}

const char *slices_problem(const struct options *o, struct npy head[N_FILES],
                           struct problem *p)
{
    static char text[1024];
    const char *path[N_FILES] = {o->file[ARRAY_Q], o->file[ARRAY_K], o->file[ARRAY_V], o->file[ARRAY_BIAS]};
    const char *why = NULL;
    if (o->score.has_window || o->score.softcap != 0 || o->file[ARRAY_SINKS] || o->file[ARRAY_CU_SEQLENS_Q] || o->file[ARRAY_CU_SEQLENS_K])
        return "several ranks do not support --window, --softcap, --sinks or --cu-seqlens";
    for (int i = 0; i < N_FILES && !why; i++)
        if (path[i]) why = npy_read_rows(path[i], 0, 0, &head[i]);
    if (why) return why;
    const struct npy *q = &head[Q], *k = &head[K], *v = &head[V];
    *p = (struct problem){.op = OP_ATTENTION, .batch = dim(q, 3), .heads_q = dim(q, 2),
                          .heads_kv = dim(k, 2), .seqlen_q = dim(q, 1), .seqlen_k = dim(k, 1),
                          .head_dim = dim(q, 0), .head_dim_v = dim(v, 0),
                          .causal = o->score.causal, .has_bias = o->file[ARRAY_BIAS] != NULL};
    p->scale = o->has_scale ? o->score.scale : 1 / sqrtf((float)p->head_dim);
    int heads = p->heads_kv ? p->heads_q % p->heads_kv == 0 : p->heads_q == 0;
    int ok = q->ndim == k->ndim && k->ndim == v->ndim && q->ndim <= 4 && p->head_dim &&
             p->head_dim_v && dim(k, 0) == p->head_dim && dim(k, 3) == p->batch &&
             dim(v, 3) == p->batch && dim(v, 2) == p->heads_kv && dim(v, 1) == p->seqlen_k &&
             heads && (!o->file[ARRAY_BIAS] || (head[BIAS].ndim == 2 && dim(&head[BIAS], 1) == p->seqlen_q &&
                                    dim(&head[BIAS], 0) == p->seqlen_k));
    if (ok) return NULL;
    snprintf(text, sizeof text, "shapes do not fit: --q %s has %zu rows, --k %s %zu, --v %s "
             "%zu; give [.., heads, seqlen, head_dim] alike", o->file[ARRAY_Q], dim(q, 1), o->file[ARRAY_K], dim(k, 1),
             o->file[ARRAY_V], dim(v, 1));
    return text;
}

const char *slices_read(const char *path, const struct chunks *c, size_t heads, size_t d,
                        float *to)
{
    size_t row = 0, n = chunks_size(c);
    for (int i = 0; i < CHUNKS; row += range_size(c->at[i++])) {
        struct npy part;
        size_t size = range_size(c->at[i]);
        if (!size) continue;
        const char *why = npy_read_rows(path, c->at[i].first, c->at[i].end, &part);
        if (why) return why;
        float *wide = part.dtype == F32 ? part.data : memory_new(part.count * sizeof *wide);
        if (!wide) return "no memory to widen float16";
        if (part.dtype != F32) npy_widen(&part, wide);
        for (size_t h = 0; h < heads; h++)
            memcpy(to + (h * n + row) * d, wide + h * size * d, size * d * sizeof *to);
        if (part.dtype != F32) memory_free(wide);
        npy_free(&part);
    }
    return NULL;
}

const char *slices_begin(const struct options *o, struct npy_writer writer[2])
{
    const char *why = npy_writer_begin(&writer[0], o->file[ARRAY_O]);
    if (why || !o->file[ARRAY_LSE]) return why;
    why = npy_writer_begin(&writer[1], o->file[ARRAY_LSE]);
    if (why) npy_writer_abort(writer, 1);
    return why;
}

/* --- the output --- */

/* Chunk `at` of a head in the order of the rows: front chunks of all ranks, then the back
 * chunks from the last rank to the first. */
static struct key_range rows_at(struct slices *s, size_t at, int *rank, int *chunk)
{
    size_t ranks = (size_t)s->ranks;
    *chunk = at < ranks ? FRONT : BACK;
    *rank = (int)(at < ranks ? at : 2 * ranks - 1 - at);
    struct chunks c = s->chunks(s->context, *rank);
    return c.at[*chunk];
}

const char *slices_new(struct slices *s)
{
    size_t longest = 1;
    int rank, chunk;
    for (size_t at = 0; at < 2 * (size_t)s->ranks; at++) {
        size_t n = range_size(rows_at(s, at, &rank, &chunk));
        if (n > longest) longest = n;
    }
    s->head = s->at = 0;
    s->memory = memory_new(size_times(size_times(longest, s->width), sizeof *s->memory));
    return s->memory ? NULL : "no memory for a slice of the output";
}

size_t slices_next(void *slices, const float **data)
{
    struct slices *s = slices;
    for (; s->head < s->heads; s->head++, s->at = 0)
        while (s->at < 2 * (size_t)s->ranks) {
            int rank, chunk;
            size_t n = range_size(rows_at(s, s->at++, &rank, &chunk));
            if (n == 0) continue;
            s->fetch(s->context, rank, s->head, chunk, s->memory);
            *data = s->memory;
            return n * s->width;
        }
    return 0;
}

void slices_free(struct slices *s)
{
    memory_free(s->memory);
    s->memory = NULL;
}

void slices_write(struct npy_writer *w, struct slices *s, const struct npy *q, int is_lse,
                  size_t head_dim_v)
{
    size_t shape[NPY_MAX_DIMS];
    memcpy(shape, q->shape, sizeof shape);
    shape[q->ndim - 2] = q->rows_there;
    shape[q->ndim - 1] = head_dim_v;
    npy_writer_stream(w, q->ndim - (size_t)is_lse, shape, slices_next, s);
}
