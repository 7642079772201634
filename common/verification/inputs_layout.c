/* inputs_layout.c: strides, packed sequences and pages of a case. */
#include "verification/inputs_layout.h"

#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/layout.h"
#include "problem/operation.h"
#include "problem/xcalloc.h"

size_t packed_length(size_t longest, size_t b, int salt)
{
    struct random r = {(uint64_t)(longest * 64 + b) * 8 + (uint64_t)salt};
    if (b == 0) return longest;
    return random_below(&r, 5) == 0 ? 0 : random_below(&r, longest + 1);
}

void packed_totals(struct problem *p)
{
    p->total_q = p->total_k = 0;
    for (size_t b = 0; b < p->batch; b++) {
        p->total_q += packed_length(p->seqlen_q, b, 1);
        p->total_k += packed_length(p->seqlen_k, b, 2);
    }
}

static int32_t *prefix_sums(const struct problem *p, size_t longest, int salt)
{
    int32_t *sums = xcalloc(p->batch + 1, sizeof *sums);
    for (size_t b = 0; b < p->batch; b++)
        sums[b + 1] = sums[b] + (int32_t)packed_length(longest, b, salt);
    return sums;
}

/* Different pages for all sequences, in random order. */
static int32_t *page_table(const struct problem *p, struct random *r)
{
    size_t n = p->batch * p->pages_per_sequence;
    int32_t *pages = xcalloc(p->n_pages, sizeof *pages);
    for (size_t i = 0; i < p->n_pages; i++) pages[i] = (int32_t)i;
    for (size_t i = 0; i < n; i++) {
        size_t other = i + random_below(r, p->n_pages - i);
        int32_t page = pages[i];
        pages[i] = pages[other];
        pages[other] = page;
    }
    return pages;
}

static void *new_array(size_t n, enum dtype dtype)
{
    void *array = xcalloc(n, dtype_size(dtype));
    for (size_t i = 0; i < n; i++) dtypes[dtype].store(array, i, NAN);
    return array;
}

static void move_rows(const struct inputs *in, const struct problem *p,
                      const struct sequence *s, void *q, void *k, void *v)
{
    const struct problem *from = &in->problem;
    size_t size = dtype_size(p->dtype), d = p->head_dim * size, dv = p->head_dim_v * size;
    const char *old_q = in->arrays.q, *old_k = in->arrays.k, *old_v = in->arrays.v;
    for (size_t h = 0; h < p->heads_q; h++)
        for (size_t i = 0; i < s->seqlen_q; i++) {
            size_t row = (s->batch * p->heads_q + h) * from->seqlen_q + i;
            memcpy((char *)q + query_at(p, s, strides_of_q(p), h, i) * size, old_q + row * d,
                   d);
        }
    for (size_t h = 0; h < p->heads_kv; h++)
        for (size_t j = 0; j < s->seqlen_k; j++) {
            size_t row = (s->batch * p->heads_kv + h) * from->seqlen_k + j;
            size_t at_k = key_at(p, &in->arrays, s, strides_of_k(p), h, j);
            size_t at_v = key_at(p, &in->arrays, s, strides_of_v(p), h, j);
            memcpy((char *)k + at_k * size, old_k + row * d, d);
            memcpy((char *)v + at_v * size, old_v + row * dv, dv);
        }
}

void inputs_lay_out(struct inputs *in, const struct test_case *c, struct random *r)
{
    struct problem p = c->problem;
    struct arrays *a = &in->arrays;
    p.dtype = in->problem.dtype;
    struct sizes n = problem_sizes(&p);
    if (p.packed) {
        a->cu_seqlens_q = prefix_sums(&p, p.seqlen_q, 1);
        a->cu_seqlens_k = prefix_sums(&p, p.seqlen_k, 2);
    }
    if (p.page_size) a->page_table = page_table(&p, r);
    void *q = new_array(n.q, p.dtype), *k = new_array(n.k, p.dtype);
    void *v = new_array(n.v, p.dtype);
    for (size_t b = 0; b < p.batch; b++) {
        struct sequence s = sequence_of(&p, a, b);
        move_rows(in, &p, &s, q, k, v);
    }
    free((void *)a->q), free((void *)a->k), free((void *)a->v);
    a->q = q, a->k = k, a->v = v;
    in->problem = p;
}
