/* part.c: gather a sequence, scatter its answer. */
#include "problem/part.h"

#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"

struct problem problem_without_layout(const struct problem *p)
{
    struct problem plain = *p;
    plain.packed = plain.has_lengths = 0;
    plain.total_q = plain.total_k = 0;
    plain.page_size = plain.n_pages = plain.pages_per_sequence = 0;
    plain.q_strides = plain.k_strides = (struct strides){0, 0, 0};
    plain.v_strides = plain.o_strides = (struct strides){0, 0, 0};
    return plain;
}

/* Where row i of head h begins. */
static size_t row_at(const struct rows *r, enum array array, struct strides by, size_t h,
                     size_t i)
{
    return array_is_of_keys(array) ? key_at(r->p, r->a, &r->s, by, h, i)
                                   : query_at(r->p, &r->s, by, h, i);
}

void rows_copy(enum array i, size_t size, void *to, const struct rows *rows_to,
               const void *from, const struct rows *rows_from)
{
    struct extents e = array_extents(rows_to->p, i);
    struct strides by_to = array_strides(rows_to->p, i);
    struct strides by_from = array_strides(rows_from->p, i);
    const struct sequence *s = &rows_to->s;
    size_t rows = array_is_of_keys(i) ? s->seqlen_k : s->seqlen_q;
    size_t bytes = (e.rank > 3 ? e.size[3] : 1) * size;
    for (size_t h = 0; h < e.size[1]; h++)
        for (size_t row = 0; row < rows; row++)
            memcpy((char *)to + row_at(rows_to, i, by_to, h, row) * size,
                   (const char *)from + row_at(rows_from, i, by_from, h, row) * size, bytes);
}

/* The bias is that of the longest sequences; the part has its own lengths. */
static void gather_bias(const struct part *part, const struct problem *p, const float *bias,
                        float *own)
{
    size_t heads = p->has_bias_strides ? p->heads_q : 1, n = part->s.seqlen_k;
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < part->s.seqlen_q; i++)
            memcpy(own + bias_at(&part->p, 0, h, i), bias + bias_at(p, part->s.batch, h, i),
                   n * sizeof *own);
}

static struct rows rows_of(const struct part *part)
{
    struct sequence s = {0, 0, 0, part->s.seqlen_q, part->s.seqlen_k};
    return (struct rows){&part->p, &part->a, s};
}

/* Gives the part an array i of its own; 0 without memory. */
static int part_array(struct part *part, const struct problem *p, const struct arrays *a,
                      enum array i)
{
    struct rows of_part = rows_of(part), whole = {p, a, part->s};
    char *memory = memory_new(size_plus(array_bytes(&part->p, i), 2 * GUARD));
    if (!memory) return 0;
    part->memory[i] = memory;
    array_set(&part->a, i, memory + GUARD);
    if (i == ARRAY_BIAS) gather_bias(part, p, a->bias, (float *)(void *)(memory + GUARD));
    else if (array_role(p, i) == INPUT)
        rows_copy(i, array_element(p, i), memory + GUARD, &of_part, array_of(a, i), &whole);
    return 1;
}

const char *part_new(struct part *part, const struct problem *p, const struct arrays *a,
                     size_t b)
{
    *part = (struct part){.p = problem_without_layout(p), .a = *a,
                          .s = sequence_of(p, a, b)};
    part->p.batch = 1;
    part->p.seqlen_q = part->s.seqlen_q;
    part->p.seqlen_k = part->s.seqlen_k;
    part->p.bias_strides = (struct strides){0, part->s.seqlen_q * part->s.seqlen_k,
                                            part->s.seqlen_k};
    for (int i = 0; i < N_ARRAYS; i++) {
        if (array_role(&part->p, i) == ABSENT) continue;
        if ((array_has_rows(i) || i == ARRAY_BIAS || i == ARRAY_DSINKS) &&
            !part_array(part, p, a, i)) {
            part_free(part);
            return "no memory for a copy of one sequence";
        }
    }
    return NULL;
}

void part_without_rows(const struct part *part)
{
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_role(&part->p, i) == OUTPUT && array_of(&part->a, i))
            memset(array_of(&part->a, i), 0, array_bytes(&part->p, i));
    for (size_t i = 0; array_role(&part->p, ARRAY_LSE) == OUTPUT &&
                       i < array_count(&part->p, ARRAY_LSE); i++)
        part->a.lse[i] = -INFINITY;
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
    struct rows of_part = rows_of(part), whole = {p, a, part->s};
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_role(p, i) == OUTPUT && array_of(a, i) && array_has_rows(i))
            rows_copy(i, array_element(p, i), array_of(a, i), &whole, array_of(&part->a, i),
                      &of_part);
    int adds = array_role(p, ARRAY_DSINKS) == OUTPUT && a->dsinks;
    for (size_t h = 0; adds && h < p->heads_q; h++) a->dsinks[h] += part->a.dsinks[h];
}

void part_free(struct part *part)
{
    for (int i = 0; i < N_ARRAYS; i++) memory_free(part->memory[i]);
}
