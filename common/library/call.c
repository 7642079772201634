/* call.c: windows, soft caps, sinks, packed sequences, pages and strides of a request. */
#include "library/call.h"

#include "problem/feature.h"
#include "problem/layout.h"

/* Without limits it is no mask, and without one at the left and 0 at the right the causal one. */
static int call_window(struct request *r, const struct five_steps_attention_problem *p)
{
    ptrdiff_t left = p->window_left, right = p->window_right;
    if (!p->window) return FIVE_STEPS_OK;
    if (left < -1 || right < -1)
        return fail(r, FIVE_STEPS_INVALID, "window: %td, %td; give -1 for no limit, or numbers "
                    "of keys", left, right);
    size_t most = size_plus(p->seqlen_q, p->seqlen_k);
    if (left >= 0 && (size_t)left >= most) left = -1;
    if (right >= 0 && (size_t)right >= most) right = -1;
    if (left < 0 && right == 0) r->p.causal = 1;
    if (r->p.causal) right = -1;
    r->p.has_window = left >= 0 || right >= 0;
    r->p.window_left = left, r->p.window_right = right;
    return FIVE_STEPS_OK;
}

static int call_packed(struct request *r, const struct five_steps_attention_problem *p)
{
    if (!p->cu_seqlens_q != !p->cu_seqlens_k)
        return fail(r, FIVE_STEPS_INVALID, "cu_seqlens_%c: is NULL, but the other is not",
                    p->cu_seqlens_q ? 'k' : 'q');
    r->p.packed = p->cu_seqlens_q != NULL;
    if (!r->p.packed) return FIVE_STEPS_OK;
    r->p.total_q = p->total_q, r->p.total_k = p->total_k;
    if (p->seqlen_q <= p->total_q && (p->page_table || p->seqlen_k <= p->total_k))
        return FIVE_STEPS_OK;
    return fail(r, FIVE_STEPS_INVALID, "seqlen_%c: the longest sequence is longer than all "
                "together", p->seqlen_q > p->total_q ? 'q' : 'k');
}

static int call_pages(struct request *r, const struct five_steps_attention_problem *p)
{
    if (!p->page_table) return FIVE_STEPS_OK;
    if (p->page_size == 0)
        return fail(r, FIVE_STEPS_INVALID, "page_size: is 0; give at least 1");
    if (size_times(p->pages_per_sequence, p->page_size) < p->seqlen_k)
        return fail(r, FIVE_STEPS_INVALID, "pages_per_sequence: %zu pages of %zu keys are fewer "
                    "than seqlen_k %zu", p->pages_per_sequence, p->page_size, p->seqlen_k);
    r->p.page_size = p->page_size, r->p.n_pages = p->n_pages;
    r->p.pages_per_sequence = p->pages_per_sequence;
    return FIVE_STEPS_OK;
}

/* Strides of an array [batches, heads, rows, width]; 0 where it is contiguous.  The stride of
 * a dimension of one element says nothing. */
static struct strides call_strides(struct five_steps_strides s, size_t batches, size_t heads,
                                   size_t rows, size_t width)
{
    struct strides given = {s.batch, s.head, s.row}, none = {0, 0, 0};
    struct strides contiguous = strides_or(none, heads, rows, width);
    if (!s.batch && !s.head && !s.row) return none;
    if (rows <= 1) given.row = contiguous.row;
    if (heads <= 1) given.head = contiguous.head;
    if (batches <= 1) given.batch = contiguous.batch;
    int same = given.row == contiguous.row && given.head == contiguous.head &&
               given.batch == contiguous.batch;
    return same ? none : given;
}

static void all_strides(struct request *r, const struct five_steps_attention_problem *given)
{
    struct problem *p = &r->p;
    size_t batches = p->packed ? 1 : p->batch, of_kv = p->page_size ? p->n_pages : batches;
    size_t n_q = stored_queries(p), n_k = stored_keys(p);
    p->q_strides = call_strides(given->q_strides, batches, p->heads_q, n_q, p->head_dim);
    p->o_strides = call_strides(given->o_strides, batches, p->heads_q, n_q, p->head_dim_v);
    p->k_strides = call_strides(given->k_strides, of_kv, p->heads_kv, n_k, p->head_dim);
    p->v_strides = call_strides(given->v_strides, of_kv, p->heads_kv, n_k, p->head_dim_v);
}

int request_call(struct request *r, const struct five_steps_attention_problem *p)
{
    if (!(p->softcap >= 0 && p->softcap - p->softcap == 0))
        return fail(r, FIVE_STEPS_INVALID, "softcap: is not a finite number from 0");
    r->p.softcap = p->softcap;
    r->p.has_sinks = p->sinks != NULL;
    int status = call_window(r, p);
    if (!status) status = call_packed(r, p);
    if (!status) status = call_pages(r, p);
    if (status) return status;
    all_strides(r, p);
    if (r->on_gpu && p->seqlen_k == 0 && (r->p.has_sinks || has_strides(&r->p)))
        return fail(r, FIVE_STEPS_UNSUPPORTED, "seqlen_k: is 0 with sinks or strides on a GPU");
    return FIVE_STEPS_OK;
}

static int prefix_sums(struct request *r, const char *name, const int *sums, size_t total,
                       size_t longest)
{
    size_t batch = r->p.batch;
    for (size_t b = 0; b < batch; b++) {
        int from = sums[b], to = sums[b + 1];
        if (from < 0 || to < from || (size_t)(to - from) > longest)
            return fail(r, FIVE_STEPS_INVALID, "%s: sequence %zu has the rows %d to %d, the "
                        "longest %zu rows", name, b, from, to, longest);
    }
    if (sums[0] == 0 && (size_t)sums[batch] == total) return FIVE_STEPS_OK;
    return fail(r, FIVE_STEPS_INVALID, "%s: goes from %d to %d; give 0 first and the total %zu "
                "last", name, sums[0], sums[batch], total);
}

/* The pages that some query's keys lie in; of a window earlier ones may be anything. */
static int page_numbers(struct request *r, const struct five_steps_attention_problem *p)
{
    struct arrays a = {.cu_seqlens_q = p->cu_seqlens_q, .cu_seqlens_k = p->cu_seqlens_k};
    for (size_t b = 0; b < r->p.batch; b++) {
        struct sequence s = sequence_of(&r->p, &a, b);
        const int *pages = p->page_table + b * p->pages_per_sequence;
        if (s.seqlen_q == 0) continue;
        struct mask mask = mask_of_lengths(&r->p, s.seqlen_q, s.seqlen_k);
        struct key_range seen = some_row_sees(mask, 0, s.seqlen_q);
        for (size_t j = seen.first; j < seen.end; j += p->page_size - j % p->page_size) {
            int page = pages[j / p->page_size];
            if (page < 0 || (size_t)page >= p->n_pages)
                return fail(r, FIVE_STEPS_INVALID, "page_table: sequence %zu has page %d, there "
                            "are %zu", b, page, p->n_pages);
        }
    }
    return FIVE_STEPS_OK;
}

int request_indices(struct request *r, const struct five_steps_attention_problem *p)
{
    int status = FIVE_STEPS_OK;
    if (r->p.packed)
        status = prefix_sums(r, "cu_seqlens_q", p->cu_seqlens_q, p->total_q, p->seqlen_q);
    if (r->p.packed && !status)
        status = prefix_sums(r, "cu_seqlens_k", p->cu_seqlens_k, p->total_k, p->seqlen_k);
    if (r->p.page_size && !status) status = page_numbers(r, p);
    return status;
}

int request_has_no_keys(const struct request *r)
{
    return r->p.op == OP_ATTENTION && r->p.seqlen_k == 0 && r->on_gpu;
}
