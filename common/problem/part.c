/* part.c: gather a sequence, scatter its answer. */
#include "problem/part.h"

#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/execute.h"
#include "problem/host_memory.h"
#include "problem/operation.h"

enum { Q, K, V, BIAS, O, LSE };

struct problem problem_without_layout(const struct problem *p)
{
    struct problem plain = *p;
    plain.packed = 0;
    plain.total_q = plain.total_k = 0;
    plain.page_size = plain.n_pages = plain.pages_per_sequence = 0;
    plain.q_strides = plain.k_strides = (struct strides){0, 0, 0};
    plain.v_strides = plain.o_strides = (struct strides){0, 0, 0};
    return plain;
}

/* n elements of `size` bytes with GUARD bytes on both sides; NULL without memory. */
static void *allocate(struct part *part, int which, size_t n, size_t size)
{
    char *memory = memory_new(size_plus(size_times(n, size), 2 * GUARD));
    part->memory[which] = memory;
    return memory ? memory + GUARD : NULL;
}

static void copy_row(char *to, size_t row, const void *from, size_t at, size_t bytes,
                     size_t size)
{
    memcpy(to + row * bytes, (const char *)from + at * size, bytes);
}

static void gather(const struct part *part, const struct problem *p, const struct arrays *a,
                   char *q, char *k, char *v)
{
    const struct sequence *s = &part->s;
    size_t size = dtype_size(p->dtype), d = p->head_dim * size, dv = p->head_dim_v * size;
    for (size_t h = 0; h < p->heads_q; h++)
        for (size_t i = 0; i < s->seqlen_q; i++)
            copy_row(q, h * s->seqlen_q + i, a->q, query_at(p, s, strides_of_q(p), h, i), d,
                     size);
    for (size_t h = 0; h < p->heads_kv; h++)
        for (size_t j = 0; j < s->seqlen_k; j++) {
            size_t row = h * s->seqlen_k + j;
            copy_row(k, row, a->k, key_at(p, a, s, strides_of_k(p), h, j), d, size);
            copy_row(v, row, a->v, key_at(p, a, s, strides_of_v(p), h, j), dv, size);
        }
}

/* bias [seqlen_q, seqlen_k] of the longest sequences; the part has its own lengths. */
static float *gather_bias(struct part *part, const struct problem *p, const float *bias)
{
    size_t n = part->s.seqlen_k;
    float *own = allocate(part, BIAS, part->s.seqlen_q * n, sizeof *own);
    for (size_t i = 0; own && i < part->s.seqlen_q; i++)
        memcpy(own + i * n, bias + i * p->seqlen_k, n * sizeof *own);
    return own;
}

const char *part_new(struct part *part, const struct problem *p, const struct arrays *a,
                     size_t b)
{
    *part = (struct part){.p = problem_without_layout(p), .a = *a,
                          .s = sequence_of(p, a, b)};
    part->p.batch = 1;
    part->p.seqlen_q = part->s.seqlen_q;
    part->p.seqlen_k = part->s.seqlen_k;
    struct sizes n = problem_sizes(&part->p);
    size_t size = dtype_size(p->dtype);
    char *q = allocate(part, Q, n.q, size), *k = allocate(part, K, n.k, size);
    char *v = allocate(part, V, n.v, size);
    const float *bias = p->has_bias ? gather_bias(part, p, a->bias) : NULL;
    void *o = allocate(part, O, n.o, size), *lse = allocate(part, LSE, n.lse, sizeof(float));
    if (!q || !k || !v || !o || !lse || (p->has_bias && !bias)) {
        part_free(part);
        return "no memory for a copy of one sequence";
    }
    gather(part, p, a, q, k, v);
    part->a.q = q, part->a.k = k, part->a.v = v, part->a.bias = bias;
    part->a.o = o, part->a.lse = lse;
    return NULL;
}

void part_without_keys(const struct part *part)
{
    struct sizes n = problem_sizes(&part->p);
    memset(part->a.o, 0, n.o * dtype_size(part->p.dtype));
    for (size_t i = 0; i < n.lse; i++) part->a.lse[i] = -INFINITY;
}

void part_add_sinks(const struct part *part)
{
    const struct problem *p = &part->p;
    const struct dtype_entry *type = &dtypes[p->dtype];
    for (size_t row = 0; row < p->heads_q * p->seqlen_q; row++) {
        float sink = part->a.sinks[row / p->seqlen_q], *lse = part->a.lse + row;
        if (sink == -INFINITY) continue;
        float m = *lse > sink ? *lse : sink;
        float l = expf(*lse - m) + (sink < INFINITY ? expf(sink - m) : NAN);
        float weight = expf(*lse - m) / l;
        *lse = m + logf(l);
        for (size_t i = row * p->head_dim_v; i < (row + 1) * p->head_dim_v; i++)
            type->store(part->a.o, i, type->load(part->a.o, i) * weight);
    }
}

void part_deliver(const struct part *part, const struct problem *p, const struct arrays *a)
{
    const struct sequence *s = &part->s;
    size_t size = dtype_size(p->dtype), bytes = p->head_dim_v * size;
    for (size_t h = 0; h < p->heads_q; h++)
        for (size_t i = 0; i < s->seqlen_q; i++) {
            size_t row = h * s->seqlen_q + i, at = query_at(p, s, strides_of_o(p), h, i);
            memcpy((char *)a->o + at * size, (const char *)part->a.o + row * bytes, bytes);
            if (a->lse) a->lse[lse_at(p, s, h, i)] = part->a.lse[row];
        }
}

void part_free(struct part *part)
{
    for (int i = 0; i < 6; i++) memory_free(part->memory[i]);
}
