/* call.c: what may be asked: sizes from shapes, scores, and the numbers in arrays of integers. */
#include "problem/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "problem/feature.h"
#include "problem/layout.h"
#include "problem/operation.h"

static const size_t MOST_ROWS = (size_t)1 << 40; /* no sequence is longer */

/* Writes the text, printf style; 1. */
__attribute__((format(printf, 3, 4)))
static int wrong(struct fault *f, int array, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    f->array = array;
    vsnprintf(f->text, sizeof f->text, format, arguments);
    va_end(arguments);
    return 1;
}

/* ---- Shapes. ---- */

/* "[2, 5, 8]" into text (n), which may be too short. */
static const char *list(char *text, size_t n, const size_t *size, size_t rank)
{
    size_t at = (size_t)snprintf(text, n, "[");
    for (size_t t = 0; t < rank && at < n; t++)
        at += (size_t)snprintf(text + at, n - at, "%s%zu", t ? ", " : "", size[t]);
    if (at < n) snprintf(text + at, n - at, "]");
    return text;
}

size_t call_shape_of(const struct problem *p, const struct given *given, enum array i,
                     size_t *size)
{
    const struct given *like = &given[on_heads(p) ? ARRAY_Q : ARRAY_X];
    struct extents e = array_extents(p, i);
    size_t skip = array_has_rows(i) ? 4 - like->rank : 0, rank = e.rank - skip;
    memcpy(size, e.size + skip, rank * sizeof *size);
    if (on_heads(p)) return rank;
    memcpy(size, like->size, like->rank * sizeof *size);
    if (e.rank == 2) size[like->rank - 1] = e.size[1];
    return like->rank - (e.rank < 2);
}

/* Has array i the shape that follows from those of q, k and v, or of x? */
static int check_shape(const struct problem *p, const struct given *given, enum array i,
                       struct fault *f)
{
    const struct given *a = &given[i];
    const struct given *like = &given[on_heads(p) ? ARRAY_Q : ARRAY_X];
    size_t size[like->rank + MOST_DIMENSIONS], rank = call_shape_of(p, given, i, size);
    const enum dimension *d = array_list[i].dimensions;
    char names[100] = "", is[100], wanted[100];
    if (a->rank == rank && !memcmp(a->size, size, rank * sizeof *size)) return 0;
    if (array_has_rows(i)) d += 4 - like->rank;
    for (size_t t = 0, n = 0; t < rank; t++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", t ? ", " : "",
                              dimension_name(d[t]));
    return wrong(f, i, "is %s; give [%s] = %s", list(is, sizeof is, a->size, a->rank), names,
                 list(wanted, sizeof wanted, size, rank));
}

/* Prefix sums of `batch` sequences: 0 first, never falling, `total` last; none is longer than *most,
 * which becomes the length of the longest. */
static int check_sums(enum array i, const int32_t *sums, size_t batch, size_t total, size_t *most,
                      struct fault *f)
{
    size_t longest = 0;
    if (sums[0] != 0) return wrong(f, i, "begins with %d; give prefix sums, 0 first", sums[0]);
    for (size_t b = 0; b < batch; b++) {
        size_t n = (size_t)sums[b + 1] - (size_t)sums[b];
        if (sums[b + 1] < sums[b])
            return wrong(f, i, "falls from %d to %d at element %zu; give prefix sums", sums[b],
                         sums[b + 1], b + 1);
        if (n > *most) return wrong(f, i, "sequence %zu has %zu rows, the longest %zu", b, n, *most);
        if (n > longest) longest = n;
    }
    *most = longest;
    if ((size_t)sums[batch] == total) return 0;
    return wrong(f, i, "ends with %d, but %s has %zu rows", sums[batch],
                 i == ARRAY_CU_SEQLENS_Q ? "q" : "k", total);
}

/* q, k and v hold several sequences, one after another: p's lengths become the longest. */
static int packed_shapes(struct problem *p, const struct given *given, struct fault *f)
{
    size_t *const most[] = {&p->seqlen_q, &p->seqlen_k};
    if (given[ARRAY_Q].rank > 3)
        return wrong(f, ARRAY_Q, "has 4 dimensions; packed sequences have [heads, total, head_dim]");
    p->packed = 1;
    p->total_q = p->seqlen_q, p->total_k = p->seqlen_k;
    p->batch = given[ARRAY_CU_SEQLENS_Q].size[0] - 1;
    for (int t = 0; t < 2; t++) {
        enum array i = t ? ARRAY_CU_SEQLENS_K : ARRAY_CU_SEQLENS_Q;
        const struct given *a = &given[i];
        char is[100];
        if (a->rank != 1 || a->size[0] == 0)
            return wrong(f, i, "is %s; give one dimension, [sequences + 1]",
                         list(is, sizeof is, a->size, a->rank));
        if (a->size[0] != p->batch + 1)
            return wrong(f, i, "has %zu sequences, cu_seqlens_q has %zu; give them alike",
                         a->size[0] - 1, p->batch);
        if (check_sums(i, a->data, p->batch, *most[t], most[t], f)) return 1;
    }
    return 0;
}

static int check_sizes(const struct problem *p, struct fault *f)
{
    const struct { enum array array; const char *name; size_t value, least, most; } all[] = {
        {ARRAY_Q, "head_dim", p->head_dim, 1, SIZE_MAX},
        {ARRAY_V, "head_dim_v", p->head_dim_v, 1, SIZE_MAX},
        {ARRAY_Q, "seqlen_q", p->seqlen_q, 0, MOST_ROWS},
        {ARRAY_K, "seqlen_k", p->seqlen_k, 0, MOST_ROWS}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].value < all[i].least || all[i].value > all[i].most)
            return wrong(f, all[i].array, "%s is %zu; give %s", all[i].name, all[i].value,
                         all[i].least ? "at least 1" : "at most 2^40");
    if (p->heads_kv ? p->heads_q % p->heads_kv == 0 : p->heads_q == 0) return 0;
    return wrong(f, ARRAY_K, "heads_q %zu is no multiple of heads_kv %zu", p->heads_q, p->heads_kv);
}

/* The dimension `from_end` places before the last, 1 where the array has none. */
static size_t dimension(const struct given *a, size_t from_end)
{
    return from_end < a->rank ? a->size[a->rank - 1 - from_end] : 1;
}

static int shapes_on_heads(struct problem *p, const struct given *given, struct fault *f)
{
    const struct given *q = &given[ARRAY_Q], *k = &given[ARRAY_K], *v = &given[ARRAY_V];
    for (int i = ARRAY_Q; i <= ARRAY_V; i++) {
        if (given[i].rank < 2 || given[i].rank > 4)
            return wrong(f, i, "has %zu dimensions; give [seqlen, head_dim], [heads, seqlen, "
                         "head_dim] or [batch, heads, seqlen, head_dim]", given[i].rank);
        if (given[i].rank != q->rank)
            return wrong(f, i, "has %zu dimensions, q has %zu; give them alike", given[i].rank,
                         q->rank);
    }
    p->batch = dimension(q, 3), p->heads_q = dimension(q, 2), p->heads_kv = dimension(k, 2);
    p->seqlen_q = dimension(q, 1), p->seqlen_k = dimension(k, 1);
    p->head_dim = dimension(q, 0), p->head_dim_v = dimension(v, 0);
    p->has_bias = given[ARRAY_BIAS].size != NULL;
    p->has_sinks = given[ARRAY_SINKS].size != NULL;
    if (check_shape(p, given, ARRAY_K, f) || check_shape(p, given, ARRAY_V, f)) return 1;
    if (check_sizes(p, f)) return 1;
    return given[ARRAY_CU_SEQLENS_Q].size ? packed_shapes(p, given, f) : 0;
}

static int shapes_on_rows(struct problem *p, const struct given *x, struct fault *f)
{
    if (x->rank == 0)
        return wrong(f, ARRAY_X, "is a single number without dimensions; give [rows, cols]");
    p->cols = dimension(x, 0), p->rows = p->cols != 0;
    for (size_t t = 1; t < x->rank; t++) p->rows *= dimension(x, t);
    return 0;
}

int call_shapes(struct problem *p, const struct given *given, struct fault *f)
{
    if (on_heads(p) ? shapes_on_heads(p, given, f) : shapes_on_rows(p, &given[ARRAY_X], f)) return 1;
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_role(p, i) == INPUT && given[i].size && check_shape(p, given, i, f)) return 1;
    return 0;
}

/* ---- Scores. ---- */

int call_scores(struct problem *p, struct fault *f)
{
    ptrdiff_t left = p->window_left, right = p->window_right;
    size_t most = p->seqlen_q + p->seqlen_k;
    if (check_sizes(p, f)) return 1;
    if (!isfinite(p->scale)) return wrong(f, N_ARRAYS, "scale: is %g; give a finite number", p->scale);
    if (!(p->softcap >= 0) || !isfinite(p->softcap))
        return wrong(f, N_ARRAYS, "softcap: is %g; give a finite number above 0, or 0 for none",
                     p->softcap);
    if (!(p->dropout >= 0 && p->dropout < 1))
        return wrong(f, N_ARRAYS, "dropout: is %g; give a probability below 1", p->dropout);
    if (!p->has_window) return 0;
    if (left < -1 || right < -1)
        return wrong(f, N_ARRAYS, "window: is %td, %td; give -1 for no limit, or numbers of keys",
                     left, right);
    if (left >= 0 && (size_t)left >= most) left = -1;
    if (right >= 0 && (size_t)right >= most) right = -1;
    if (left < 0 && right == 0) p->causal = 1;
    if (p->causal) right = -1;
    p->has_window = left >= 0 || right >= 0;
    p->window_left = left, p->window_right = right;
    return 0;
}

/* ---- Numbers. ---- */

/* The pages that some query's keys lie in; of a window earlier ones may be anything. */
static int check_pages(const struct problem *p, const struct arrays *a, struct fault *f)
{
    for (size_t b = 0; b < p->batch; b++) {
        struct sequence s = sequence_of(p, a, b);
        const int32_t *pages = a->page_table + b * p->pages_per_sequence;
        if (s.seqlen_q == 0) continue;
        struct mask mask = mask_of_lengths(p, s.seqlen_q, s.seqlen_k);
        struct key_range seen = some_row_sees(mask, 0, s.seqlen_q);
        for (size_t j = seen.first; j < seen.end; j += p->page_size - j % p->page_size) {
            int page = pages[j / p->page_size];
            if (page < 0 || (size_t)page >= p->n_pages)
                return wrong(f, ARRAY_PAGE_TABLE, "sequence %zu has page %d, there are %zu", b, page,
                             p->n_pages);
        }
    }
    return 0;
}

int call_numbers(const struct problem *p, const struct arrays *a, struct fault *f)
{
    size_t most_q = p->seqlen_q, most_k = p->seqlen_k;
    if (p->packed &&
        (check_sums(ARRAY_CU_SEQLENS_Q, a->cu_seqlens_q, p->batch, p->total_q, &most_q, f) ||
         check_sums(ARRAY_CU_SEQLENS_K, a->cu_seqlens_k, p->batch, p->total_k, &most_k, f)))
        return 1;
    for (size_t b = 0; p->has_lengths && b < p->batch; b++)
        if (a->seqlens_k[b] < 0 || (size_t)a->seqlens_k[b] > p->seqlen_k)
            return wrong(f, ARRAY_SEQLENS_K, "sequence %zu has %d keys, the longest %zu", b,
                         a->seqlens_k[b], p->seqlen_k);
    return p->page_size ? check_pages(p, a, f) : 0;
}
