/* part.c: gathers a sequence. */
#include "verification/part.h"

#include <stdlib.h>
#include <string.h>

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

struct part part_new(const struct problem *p, const struct arrays *a, size_t b)
{
    struct part part = {.p = problem_without_layout(p), .a = *a, .s = sequence_of(p, a, b)};
    struct rows whole = {p, a, part.s}, of_part = {&part.p, &part.a, part.s};
    of_part.s.batch = of_part.s.q_first = of_part.s.k_first = 0;
    part.p.batch = 1;
    part.p.seqlen_q = part.s.seqlen_q;
    part.p.seqlen_k = part.s.seqlen_k;
    part.p.bias_strides = (struct strides){0, part.s.seqlen_q * part.s.seqlen_k, part.s.seqlen_k};
    for (int i = 0; i < N_ARRAYS; i++) {
        if (array_role(&part.p, i) != INPUT || !(array_has_rows(i) || i == ARRAY_BIAS)) continue;
        void *own = part.memory[i] = xcalloc(array_bytes(&part.p, i), 1);
        array_set(&part.a, i, own);
        if (i == ARRAY_BIAS) gather_bias(&part, p, a->bias, own);
        else rows_copy(i, array_element(p, i), own, &of_part, array_of(a, i), &whole);
    }
    return part;
}

void part_free(struct part *part)
{
    for (int i = 0; i < N_ARRAYS; i++) free(part->memory[i]);
}
