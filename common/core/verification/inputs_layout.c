/* inputs_layout.c: strides, packed sequences and pages of a case, its problem and its arrays. */
#include "verification/case_list.h"

#include <stdlib.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "verification/standard.h"
#include "problem/random.h"

/* Queries (salt 1) or keys (salt 2) of sequence b of a packed case: the first is the
 * longest, others have fewer, some none. */
static size_t packed_length(size_t longest, size_t b, int salt)
{
    struct random r = {(uint64_t)(longest * 64 + b) * 8 + (uint64_t)salt};
    if (b == 0) return longest;
    return random_below(&r, 5) == 0 ? 0 : random_below(&r, longest + 1);
}

void lay_out(struct problem *p, enum rows_lie lie)
{
    size_t row_q = p->heads_q * p->head_dim, row_k = p->heads_kv * p->head_dim;
    size_t row_v = p->heads_kv * p->head_dim_v, row_o = p->heads_q * p->head_dim_v;
    for (size_t b = 0; p->packed && b < p->batch; b++) {
        p->total_q += packed_length(p->seqlen_q, b, 1);
        p->total_k += packed_length(p->seqlen_k, b, 2);
    }
    if (p->page_size) {
        p->pages_per_sequence = (p->seqlen_k + p->page_size - 1) / p->page_size;
        p->n_pages = p->batch * p->pages_per_sequence + 2;
    }
    if (lie == CONTIGUOUS) return;
    if (lie == QKV_SLICES) row_q = row_k = row_v = row_q + row_k + row_v, row_o += 8;
    size_t keys = p->page_size ? p->page_size : p->seqlen_k;
    p->q_strides = (struct strides){p->seqlen_q * row_q, p->head_dim, row_q};
    p->k_strides = (struct strides){keys * row_k, p->head_dim, row_k};
    p->v_strides = (struct strides){keys * row_v, p->head_dim_v, row_v};
    p->o_strides = (struct strides){p->seqlen_q * row_o, p->head_dim_v, row_o};
}

void give_bias(struct problem *p, enum bias_form of)
{
    size_t row = p->seqlen_k, matrix = p->seqlen_q * row;
    p->has_bias_strides = of != BIAS_FOR_ALL;
    if (of == BIAS_PER_BATCH) p->bias_strides = (struct strides){row, 0, 0};
    if (of == BIAS_PER_HEAD) p->bias_strides = (struct strides){0, matrix, row};
    if (of == BIAS_PER_BOTH)
        p->bias_strides = (struct strides){p->heads_q * matrix, matrix, row};
    if (of == BIAS_TOEPLITZ)
        p->bias_strides = (struct strides){0, p->seqlen_q + p->seqlen_k - 1, SIZE_MAX};
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

/* Array i of the layout's problem p, filled with the rows of in's plain one; NaN between. */
static void move_array(struct inputs *in, const struct problem *p, enum array i)
{
    enum dtype type = array_dtype(p, i);
    char *to = xcalloc(array_count(p, i), dtype_size(type));
    for (size_t e = 0, n = array_count(p, i); e < n; e++) dtype_set_bits(type, to, e, dtypes[type].filling);
    for (size_t b = 0; b < p->batch; b++) {
        struct rows laid_out = {p, &in->arrays, sequence_of(p, &in->arrays, b)};
        struct sequence plain = {b, 0, 0, laid_out.s.seqlen_q, laid_out.s.seqlen_k};
        struct rows from = {&in->problem, &in->arrays, plain};
        rows_copy(i, dtype_size(type), to, &laid_out, array_of(&in->arrays, i), &from);
    }
    free(array_of(&in->arrays, i));
    array_set(&in->arrays, i, to);
}

void inputs_lay_out(struct inputs *in, const struct test_case *c, struct random *r)
{
    struct problem p = c->problem;
    p.dtype = in->problem.dtype;
    if (p.packed) {
        in->arrays.cu_seqlens_q = prefix_sums(&p, p.seqlen_q, 1);
        in->arrays.cu_seqlens_k = prefix_sums(&p, p.seqlen_k, 2);
    }
    if (p.has_lengths) {
        int32_t *lengths = xcalloc(p.batch, sizeof *lengths);
        for (size_t b = 0; b < p.batch; b++)
            lengths[b] = (int32_t)packed_length(p.seqlen_k, b, 2);
        in->arrays.seqlens_k = lengths;
    }
    if (p.page_size) in->arrays.page_table = page_table(&p, r);
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_has_rows(i) && array_of(&in->arrays, i)) move_array(in, &p, i);
    in->problem = p;
}
