/* kernel_call.h: where the rows of a decoding step lie: sequences of different lengths, keys in pages,
 * strides; and what a model adds to the softmax.
 *
 * The queries of all heads that share a key head are the rows of a group: row r is query
 * r % seqlen_q of the group's head number r / seqlen_q.
 *
 * A plain call has contiguous arrays, sequences of one length, no soft cap and no sinks.  Its
 * rows and its key heads follow one another, so a number finds them without a division. */
#pragma once

#include "attention.h"
#include "problem/feature.h"
#include "problem/layout.h"
#include "sequences.h"

/* Elements from batch to batch, or page to page, from head to head, from row to row. */
struct steps { ptrdiff_t batch, head; int row; };

struct call {
    bool is_plain;
    struct sequences sequences;
    struct steps q, k, v, o, bias;
    const int32_t *page_table; /* [sequences, pages_per_sequence], or NULL: no pages */
    int page_size, pages_per_sequence;
    int heads_of_group; /* query heads that share a key head */
    int lse_rows;       /* rows of a head in lse */
    float softcap;      /* 0: none */
    const float *sinks; /* [heads_q], or NULL */
    const float *k_scale, *v_scale; /* [batch, heads_kv], or NULL: 1 */
};

/* The call as a kernel knows it.  PLAIN: what a plain call does not have is a constant, so the
 * compiler leaves out the code for it.  A step takes 20 us, and each instruction before the
 * first copy of keys delays all that follow.  SIMPLE: it may have strides, and that is all. */
template <bool PLAIN, bool SIMPLE = PLAIN>
static __forceinline__ __device__ struct call known_call(const struct call &given)
{
    struct call c = given;
    c.is_plain = PLAIN;
    if (!SIMPLE) return c;
    c.sequences.cu_seqlens_q = c.sequences.cu_seqlens_k = c.sequences.seqlens_k = NULL;
    c.page_table = NULL;
    c.softcap = 0.0f;
    c.sinks = NULL;
    return c;
}

/* The rows of a key head. */
struct head_group {
    struct rows_of_sequence seq;
    int sequence, head_kv, n_rows;
};

/* Group number i: key head i % heads_kv of sequence i / heads_kv.  In a plain call the key
 * heads of all sequences count as those of sequence 0. */
static __forceinline__ __device__ struct head_group group_of(const struct call &call,
                                                             const struct attention &x, int i)
{
    struct head_group g;
    g.sequence = call.is_plain ? 0 : i / x.heads_kv;
    g.head_kv = i - g.sequence * x.heads_kv;
    g.seq = find_sequence(call.sequences, g.sequence);
    g.n_rows = call.heads_of_group * g.seq.seqlen_q;
    return g;
}

/* The number of row r of the group in lse. */
static __forceinline__ __device__ int lse_number(const struct call &call,
                                                 const struct attention &x,
                                                 const struct head_group &g, int r)
{
    if (call.is_plain) return g.head_kv * g.n_rows + r;
    int head = g.head_kv * call.heads_of_group + r / g.seq.seqlen_q;
    return (g.seq.batch * x.heads_q + head) * call.lse_rows + g.seq.q + r % g.seq.seqlen_q;
}

/* The element at which row r of the group begins in q. */
static __forceinline__ __device__ ptrdiff_t q_element(const struct call &call,
                                                      const struct attention &x,
                                                      const struct head_group &g, int r)
{
    if (call.is_plain) return (ptrdiff_t)lse_number(call, x, g, r) * call.q.row;
    int head = g.head_kv * call.heads_of_group + r / g.seq.seqlen_q;
    return g.seq.batch * call.q.batch + head * call.q.head +
           (ptrdiff_t)(g.seq.q + r % g.seq.seqlen_q) * call.q.row;
}

/* The bias of a query and key 0. */
static __forceinline__ __device__ const float *bias_row(const struct call &call,
                                                        const struct attention &x, int sequence,
                                                        int head, int query)
{
    return x.bias + sequence * call.bias.batch + head * call.bias.head +
           (ptrdiff_t)query * call.bias.row;
}

/* The same of row r of the group. */
static __forceinline__ __device__ const float *bias_row(const struct call &call,
                                                        const struct attention &x,
                                                        const struct head_group &g, int r)
{
    int head = call.is_plain ? 0 : g.head_kv * call.heads_of_group + r / g.seq.seqlen_q;
    return bias_row(call, x, g.sequence, head, r % g.seq.seqlen_q);
}

/* Where the result of a row goes. */
struct result_row {
    int number;  /* in lse */
    ptrdiff_t o; /* its first element in o */
    float sink;  /* -INFINITY: none */
};

/* The row with this number in lse. */
static __forceinline__ __device__ struct result_row
result_row(const struct call &call, const struct attention &x, int number)
{
    if (call.is_plain) return {number, (ptrdiff_t)number * call.o.row, -INFINITY};
    int head = number / call.lse_rows, query = number - head * call.lse_rows;
    int batch = head / x.heads_q;
    head -= batch * x.heads_q;
    return {number, batch * call.o.batch + head * call.o.head + (ptrdiff_t)query * call.o.row,
            call.sinks ? call.sinks[head] : -INFINITY};
}

/* Where a key lies: row `row` of a page, or without pages of the sequence. */
struct key_place { int page, row; };

/* The place of key j; of a key from `end` on any place. */
static __forceinline__ __device__ struct key_place
place_of_key(const struct call &call, const struct head_group &g, int j, int end)
{
    if (!call.page_table) return {0, j};
    if (j >= end) return {0, 0};
    int page = j / call.page_size;
    const int32_t *pages = call.page_table + (ptrdiff_t)g.sequence * call.pages_per_sequence;
    return {pages[page], j - page * call.page_size};
}

/* Row 0 of the head's keys, or values: of the sequence, or of page 0. */
template <class ELEMENT>
static __forceinline__ __device__ const ELEMENT *first_key(const struct call &call,
                                                           const struct head_group &g,
                                                           const ELEMENT *array,
                                                           const struct steps &s)
{
    array += g.head_kv * s.head;
    return call.page_table ? array : array + g.seq.batch * s.batch + (ptrdiff_t)g.seq.k * s.row;
}

/* ---- the host's side ---- */

static struct steps steps_of(struct strides s)
{
    return {(ptrdiff_t)s.batch, (ptrdiff_t)s.head, (int)s.row};
}

static bool is_plain(const struct problem *p)
{
    return !(problem_features(p) &
             (WITH_PACKED | WITH_PAGES | WITH_STRIDES | WITH_SOFTCAP | WITH_SINKS |
              WITH_BIAS_STRIDES | WITH_LENGTHS));
}

[[maybe_unused]] static bool is_simple(const struct problem *p)
{
    return !(problem_features(p) &
             (WITH_PACKED | WITH_PAGES | WITH_SOFTCAP | WITH_SINKS | WITH_LENGTHS));
}

/* Query heads that share a key head. */
static size_t heads_of_group(const struct problem *p)
{
    return p->heads_kv ? p->heads_q / p->heads_kv : 0;
}

static struct call call_of(const struct problem *p, const struct arrays *a)
{
    return {.is_plain = is_plain(p), .sequences = sequences_of(p, a),
            .q = steps_of(strides_of_q(p)), .k = steps_of(strides_of_k(p)),
            .v = steps_of(strides_of_v(p)), .o = steps_of(strides_of_o(p)),
            .bias = steps_of(p->has_bias_strides ? p->bias_strides : strides{0, 0, p->seqlen_k}),
            .page_table = p->page_size ? a->page_table : NULL, .page_size = (int)p->page_size,
            .pages_per_sequence = (int)p->pages_per_sequence,
            .heads_of_group = (int)heads_of_group(p), .lse_rows = (int)stored_queries(p),
            .softcap = p->softcap, .sinks = p->has_sinks ? a->sinks : NULL,
            .k_scale = a->k_scale, .v_scale = a->v_scale};
}

/* Whether rows are a multiple of 16 bytes apart: those of k and v have `bytes` a number, q's have 2. */
[[maybe_unused]] static bool copies_of_16_bytes(const struct problem *p, size_t bytes = 2)
{
    const struct strides q_o[] = {p->q_strides, p->o_strides}, k_v[] = {p->k_strides, p->v_strides};
    size_t any = 0;
    for (const struct strides &s : q_o) any |= 2 * (s.batch | s.head | s.row);
    for (const struct strides &s : k_v) any |= bytes * (s.batch | s.head | s.row);
    return any % 16 == 0;
}

/* Rows of o and lse, of all heads. */
[[maybe_unused]] static size_t all_rows_of(const struct problem *p)
{
    return p->heads_q * (p->packed ? p->total_q : p->batch * p->seqlen_q);
}

/* The most keys that the queries of a sequence see together. */
[[maybe_unused]] static size_t most_keys(const struct problem *p)
{
    const struct mask m = problem_mask(p);
    return mask_clamp(m.last - m.first + (ptrdiff_t)p->seqlen_q, m.seqlen_k);
}
