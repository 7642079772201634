/* describe.c: the caller's problem as the harness describes one, checked.  What is written but
 * asks for nothing is left out, so that every kernel can take it: a window without limits,
 * strides of contiguous arrays. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "library/backend.h"
#include "library/request.h"
#include "problem/feature.h"
#include "problem/layout.h"

static const size_t FAR = (size_t)1 << 40; /* no sequence is longer */

/* One line, whatever a caller's name of a kernel holds. */
int fail(struct request *r, int code, const char *format, ...)
{
    if (!r->error) return code;
    char *text = r->error->message;
    va_list arguments;
    va_start(arguments, format);
    r->error->code = code;
    vsnprintf(text, sizeof r->error->message, format, arguments);
    va_end(arguments);
    for (; *text; text++)
        if ((unsigned char)*text < ' ') *text = '?';
    return code;
}

int describe_begin(struct request *r, const size_t *sizes)
{
    static const enum dtype types[] = {
        [FIVE_STEPS_F32] = F32, [FIVE_STEPS_F16] = F16, [FIVE_STEPS_BF16] = BF16};
    const struct { size_t size; int device, type; } *p = r->problem; /* so all problems begin */
    const char *why = NULL;
    const size_t newest = *sizes;
    if (r->error) *r->error = (struct five_steps_error){.code = FIVE_STEPS_OK};
    if (!p) return fail(r, FIVE_STEPS_INVALID, "problem: is NULL");
    while (*sizes && *sizes != p->size) sizes++;
    if (!*sizes)
        return fail(r, FIVE_STEPS_INVALID, "size: is %zu, but the problem of this library (version "
                    "%s) has %zu bytes", p->size, FIVE_STEPS_VERSION, newest);
    if (p->type < 0 || p->type >= (int)(sizeof types / sizeof *types))
        return fail(r, FIVE_STEPS_INVALID, "type: %d is none of FIVE_STEPS_F32, "
                    "FIVE_STEPS_F16, FIVE_STEPS_BF16", p->type);
    if (p->device != FIVE_STEPS_CPU && p->device != FIVE_STEPS_GPU)
        return fail(r, FIVE_STEPS_INVALID, "device: %d is neither FIVE_STEPS_CPU nor "
                    "FIVE_STEPS_GPU", p->device);
    r->given.dtype = types[p->type];
    r->on_gpu = p->device == FIVE_STEPS_GPU;
    if (r->on_gpu && !(r->arch = backend_arch(&why)))
        return fail(r, FIVE_STEPS_NO_GPU, "device: no GPU: %s", why);
    return FIVE_STEPS_OK;
}

/* No array, and no float copy of one, has more bytes than memory has addresses. */
static int check_bytes(struct request *r)
{
    size_t sum = 0;
    for (unsigned set = all_of(&r->given); set;)
        sum = size_plus(sum, size_times(array_count(&r->given, next_array(&set)), 2 * sizeof(float)));
    return sum <= PTRDIFF_MAX ? FIVE_STEPS_OK :
        fail(r, FIVE_STEPS_INVALID, "sizes: the arrays have more bytes than memory has addresses");
}

/* ---- Attention. ---- */

static int check_sizes(struct request *r, const struct five_steps_attention_problem *p)
{
    const struct { const char *name; size_t value, least, most; } all[] = {
        {"head_dim", p->head_dim, 1, SIZE_MAX}, {"head_dim_v", p->head_dim_v, 1, SIZE_MAX},
        {"seqlen_q", p->seqlen_q, 0, FAR}, {"seqlen_k", p->seqlen_k, 0, FAR}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].value < all[i].least || all[i].value > all[i].most)
            return fail(r, FIVE_STEPS_INVALID, "%s: is %zu; give %s", all[i].name, all[i].value,
                        all[i].least ? "at least 1" : "at most 2^40");
    if (p->heads_kv ? p->heads_q % p->heads_kv != 0 : p->heads_q != 0)
        return fail(r, FIVE_STEPS_INVALID, "heads_q: %zu is no multiple of heads_kv %zu",
                    p->heads_q, p->heads_kv);
    return FIVE_STEPS_OK;
}

/* Without limits it is no mask, and without one at the left and 0 at the right the causal one. */
static int describe_scores(struct request *r, const struct five_steps_attention_problem *p)
{
    struct problem *g = &r->given;
    ptrdiff_t left = p->window_left, right = p->window_right;
    size_t most = p->seqlen_q + p->seqlen_k;
    g->causal = p->causal != 0;
    g->scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)p->head_dim);
    g->softcap = p->softcap;
    g->has_sinks = p->sinks != NULL;
    g->has_bias = p->bias != NULL;
    g->has_bias_strides = g->has_bias && p->bias_is_strided;
    g->bias_strides = (struct strides){p->bias_strides.batch, p->bias_strides.head,
                                       p->bias_strides.row};
    if (!(p->scale - p->scale == 0)) return fail(r, FIVE_STEPS_INVALID, "scale: is not finite");
    if (!(p->softcap >= 0 && p->softcap - p->softcap == 0))
        return fail(r, FIVE_STEPS_INVALID, "softcap: is not a finite number from 0");
    if (!p->window) return FIVE_STEPS_OK;
    if (left < -1 || right < -1)
        return fail(r, FIVE_STEPS_INVALID, "window: %td, %td; give -1 for no limit, or numbers "
                    "of keys", left, right);
    if (left >= 0 && (size_t)left >= most) left = -1;
    if (right >= 0 && (size_t)right >= most) right = -1;
    if (left < 0 && right == 0) g->causal = 1;
    if (g->causal) right = -1;
    g->has_window = left >= 0 || right >= 0;
    g->window_left = left, g->window_right = right;
    return FIVE_STEPS_OK;
}

static int describe_packed(struct request *r, const struct five_steps_attention_problem *p)
{
    struct problem *g = &r->given;
    if (!p->cu_seqlens_q != !p->cu_seqlens_k)
        return fail(r, FIVE_STEPS_INVALID, "cu_seqlens_%c: is NULL, but the other is not",
                    p->cu_seqlens_q ? 'k' : 'q');
    g->packed = p->cu_seqlens_q != NULL;
    g->has_lengths = p->seqlens_k != NULL;
    if (g->packed && g->has_lengths)
        return fail(r, FIVE_STEPS_INVALID, "seqlens_k: is given, but cu_seqlens_k says the same");
    if (!g->packed) return FIVE_STEPS_OK;
    g->total_q = p->total_q, g->total_k = p->total_k;
    if (p->seqlen_q <= p->total_q && (p->page_table || p->seqlen_k <= p->total_k))
        return FIVE_STEPS_OK;
    return fail(r, FIVE_STEPS_INVALID, "seqlen_%c: the longest sequence is longer than all "
                "together", p->seqlen_q > p->total_q ? 'q' : 'k');
}

static int describe_pages(struct request *r, const struct five_steps_attention_problem *p)
{
    if (!p->page_table) return FIVE_STEPS_OK;
    if (p->page_size == 0)
        return fail(r, FIVE_STEPS_INVALID, "page_size: is 0; give at least 1");
    if (size_times(p->pages_per_sequence, p->page_size) < p->seqlen_k)
        return fail(r, FIVE_STEPS_INVALID, "pages_per_sequence: %zu pages of %zu keys are fewer "
                    "than seqlen_k %zu", p->pages_per_sequence, p->page_size, p->seqlen_k);
    r->given.page_size = p->page_size, r->given.n_pages = p->n_pages;
    r->given.pages_per_sequence = p->pages_per_sequence;
    return FIVE_STEPS_OK;
}

/* The strides of array i, [batches, heads, rows, width]; 0 where it is contiguous.  The stride of
 * a dimension of one element says nothing. */
static struct strides described_strides(const struct problem *p, enum array i,
                                        struct five_steps_strides s)
{
    const struct strides none = {0, 0, 0};
    struct extents n = array_extents(p, i);
    struct strides given = {s.batch, s.head, s.row};
    struct strides contiguous = strides_or(none, n.size[1], n.size[2], n.size[3]);
    if ((!s.batch && !s.head && !s.row) || array_dense_count(p, i) == 0) return none;
    if (n.size[2] <= 1) given.row = contiguous.row;
    if (n.size[1] <= 1) given.head = contiguous.head;
    if (n.size[0] <= 1) given.batch = contiguous.batch;
    int same = given.row == contiguous.row && given.head == contiguous.head &&
               given.batch == contiguous.batch;
    return same ? none : given;
}

int describe_attention(struct request *r, const struct five_steps_attention_problem *p)
{
    struct problem *g = &r->given;
    g->batch = p->batch, g->heads_q = p->heads_q, g->heads_kv = p->heads_kv;
    g->seqlen_q = p->seqlen_q, g->seqlen_k = p->seqlen_k;
    g->head_dim = p->head_dim, g->head_dim_v = p->head_dim_v;
    r->isolate_v = p->isolate_v;
    r->theirs = (struct arrays){
        .q = p->q, .k = p->k, .v = p->v, .bias = p->bias, .sinks = p->sinks,
        .cu_seqlens_q = p->cu_seqlens_q, .cu_seqlens_k = p->cu_seqlens_k,
        .seqlens_k = p->seqlens_k, .page_table = p->page_table, .o = p->o, .lse = p->lse,
        .d_o = p->d_o, .dq = p->dq, .dk = p->dk, .dv = p->dv, .dsinks = p->dsinks,
        .stream = p->stream};
    int status = check_sizes(r, p);
    if (!status) status = describe_scores(r, p);
    if (!status) status = describe_packed(r, p);
    if (!status) status = describe_pages(r, p);
    if (status) return status;
    g->q_strides = described_strides(g, ARRAY_Q, p->q_strides);
    g->k_strides = described_strides(g, ARRAY_K, p->k_strides);
    g->v_strides = described_strides(g, ARRAY_V, p->v_strides);
    g->o_strides = described_strides(g, ARRAY_O, p->o_strides);
    return check_bytes(r);
}

int describe_softmax(struct request *r, const struct five_steps_softmax_problem *p)
{
    r->given.op = p->log ? OP_LOGSOFTMAX : OP_SOFTMAX;
    r->given.rows = p->rows, r->given.cols = p->cols;
    r->theirs = (struct arrays){.x = p->x, .y = p->y, .stream = p->stream};
    return check_bytes(r);
}

/* ---- The arrays themselves, when it is about to be computed. ---- */

int check_pointer(struct request *r, const char *name, const void *array, size_t count,
                  size_t alignment)
{
    if (count == 0 || (array && (uintptr_t)array % alignment == 0)) return FIVE_STEPS_OK;
    if (!array) return fail(r, FIVE_STEPS_INVALID, "%s: is NULL", name);
    return fail(r, FIVE_STEPS_INVALID, "%s: starts at no multiple of %zu bytes", name, alignment);
}

/* The program's option for d_o is --do. */
static const char *name_of(enum array i) { return i == ARRAY_DO ? "d_o" : array_list[i].name; }

/* Do input i and output `out` share memory?  With strides one may lie between the rows of the other:
 * then only the first elements are compared. */
static int overlap(const struct request *r, enum array i, enum array out)
{
    const char *a = array_of(&r->theirs, i), *b = array_of(&r->theirs, out);
    if (has_strides(&r->given) || r->given.has_bias_strides) return a == b;
    return a && b && a < b + array_bytes(&r->given, out) && b < a + array_bytes(&r->given, i);
}

static int check_pointers(struct request *r)
{
    const struct problem *p = &r->given;
    for (unsigned set = all_of(p); set;) {
        enum array array = next_array(&set);
        const void *here = array_of(&r->theirs, array);
        if (!here && is_optional(p, array)) continue;
        size_t alignment = array_element(p, array);
        if (r->on_gpu && array_list[array].number == OF_PROBLEM) alignment = 16;
        int status = check_pointer(r, name_of(array), here, array_count(p, array), alignment);
        if (status) return status;
        if (!here || array_role(p, array) != INPUT) continue;
        for (unsigned out = outputs_of(p); out;) {
            enum array other = next_array(&out);
            if (overlap(r, array, other))
                return fail(r, FIVE_STEPS_INVALID, "%s: overlaps the output %s", name_of(array),
                            name_of(other));
        }
    }
    return FIVE_STEPS_OK;
}

/* Do two rows of o share an element?  The stride of each dimension leads past what the dimensions
 * with smaller strides reach. */
static int check_output_rows(struct request *r)
{
    struct extents n = array_extents(&r->given, ARRAY_O);
    struct strides o = r->given.o_strides;
    struct { size_t stride, size; } d[] = {{o.batch, n.size[0]}, {o.head, n.size[1]},
                                           {o.row, n.size[2]}};
    size_t reach = n.size[3];
    if (!has_strides(&r->given) || !(o.batch || o.head || o.row)) return FIVE_STEPS_OK;
    for (int done = 0; done < 3; done++) {
        int least = -1;
        for (int i = 0; i < 3; i++)
            if (d[i].size > 1 && (least < 0 || d[i].stride < d[least].stride)) least = i;
        if (least < 0) break;
        if (d[least].stride < reach)
            return fail(r, FIVE_STEPS_INVALID, "o_strides: rows of o overlap");
        reach += d[least].stride * (d[least].size - 1);
        d[least].size = 0;
    }
    return FIVE_STEPS_OK;
}

static int check_sums(struct request *r, const char *name, const int *sums, size_t total,
                      size_t longest)
{
    size_t batch = r->given.batch;
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

static int check_lengths(struct request *r)
{
    for (size_t b = 0; b < r->given.batch; b++) {
        int n = r->theirs.seqlens_k[b];
        if (n < 0 || (size_t)n > r->given.seqlen_k)
            return fail(r, FIVE_STEPS_INVALID, "seqlens_k: sequence %zu has %d keys, the longest %zu",
                        b, n, r->given.seqlen_k);
    }
    return FIVE_STEPS_OK;
}

/* The pages that some query's keys lie in; of a window earlier ones may be anything. */
static int check_pages(struct request *r)
{
    const struct problem *p = &r->given;
    for (size_t b = 0; b < p->batch; b++) {
        struct sequence s = sequence_of(p, &r->theirs, b);
        const int *pages = r->theirs.page_table + b * p->pages_per_sequence;
        if (s.seqlen_q == 0) continue;
        struct mask mask = mask_of_lengths(p, s.seqlen_q, s.seqlen_k);
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

int check_arrays(struct request *r)
{
    const struct problem *p = &r->given;
    int status = check_pointers(r);
    if (!status && p->op == OP_ATTENTION) status = check_output_rows(r);
    if (status || r->on_gpu) return status;
    if (p->packed)
        status = check_sums(r, "cu_seqlens_q", r->theirs.cu_seqlens_q, p->total_q, p->seqlen_q);
    if (p->packed && !status)
        status = check_sums(r, "cu_seqlens_k", r->theirs.cu_seqlens_k, p->total_k, p->seqlen_k);
    if (p->has_lengths && !status) status = check_lengths(r);
    if (p->page_size && !status) status = check_pages(r);
    return status;
}
