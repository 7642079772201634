/* describe.c: the caller's problem as the harness describes one, checked.  What is written but
 * asks for nothing is left out, so that every kernel can take it: a window without limits,
 * strides of contiguous arrays. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "library/backend.h"
#include "library/request.h"
#include "problem/call.h"
#include "problem/feature.h"
#include "problem/layout.h"

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

int is_optional(const struct problem *p, enum array i)
{
    return (i == ARRAY_LSE || i == ARRAY_DSINKS) && array_role(p, i) == OUTPUT;
}

/* An input that may be NULL. */
static int may_lack(enum array i)
{
    return i == ARRAY_Q_SCALE || i == ARRAY_K_SCALE || i == ARRAY_V_SCALE;
}

/* The array's name in C, cu_seqlens_q for the program's --cu-seqlens-q; lives until the second next
 * call. */
static const char *name_of(enum array i)
{
    static _Thread_local char names[2][32];
    static _Thread_local int next;
    char *name = strcpy(names[next ^= 1], i == ARRAY_DO ? "d_o" : array_list[i].name);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    return name;
}

/* Passes on what the harness says. */
static int relay(struct request *r, const struct fault *f)
{
    if (f->array == N_ARRAYS) return fail(r, FIVE_STEPS_INVALID, "%s", f->text);
    return fail(r, FIVE_STEPS_INVALID, "%s: %s", name_of((enum array)f->array), f->text);
}

int describe_begin(struct request *r, const size_t *sizes)
{
    static const enum dtype types[] = {
        [FIVE_STEPS_F32] = F32, [FIVE_STEPS_F16] = F16, [FIVE_STEPS_BF16] = BF16,
        [FIVE_STEPS_E4M3] = E4M3, [FIVE_STEPS_INT8] = INT8};
    const struct { size_t size; int device, type; } *p = r->problem; /* so all problems begin */
    const char *why = NULL;
    const size_t newest = *sizes;
    if (r->error) *r->error = (struct five_steps_error){.code = FIVE_STEPS_OK};
    if (!p) return fail(r, FIVE_STEPS_INVALID, "problem: is NULL");
    while (*sizes && *sizes != p->size) sizes++;
    if (!*sizes)
        return fail(r, FIVE_STEPS_INVALID, "size: is %zu, but the problem of this library (version "
                    "%s) has %zu bytes", p->size, FIVE_STEPS_VERSION, newest);
    if (p->type < 0 || p->type > (on_heads(&r->given) ? FIVE_STEPS_INT8 : FIVE_STEPS_BF16))
        return fail(r, FIVE_STEPS_INVALID, "type: %d is none of FIVE_STEPS_F32, FIVE_STEPS_F16, "
                    "FIVE_STEPS_BF16%s", p->type,
                    on_heads(&r->given) ? ", FIVE_STEPS_E4M3, FIVE_STEPS_INT8" : "");
    if (p->device != FIVE_STEPS_CPU && p->device != FIVE_STEPS_GPU)
        return fail(r, FIVE_STEPS_INVALID, "device: %d is neither FIVE_STEPS_CPU nor "
                    "FIVE_STEPS_GPU", p->device);
    r->given.dtype = types[p->type];
    r->on_gpu = p->device == FIVE_STEPS_GPU;
    if (r->on_gpu && !(r->arch = backend_arch(&why)))
        return fail(r, FIVE_STEPS_NO_GPU, "device: no GPU: %s", why);
    return FIVE_STEPS_OK;
}

/* Which arrays are there.  None, and no float copy of one, has more bytes than memory has addresses. */
static int describe_arrays(struct request *r)
{
    size_t sum = 0;
    for (int i = 0; i < N_ARRAYS; i++) {
        enum role role = array_role(&r->given, i);
        if (role == ABSENT) continue;
        *(role == INPUT ? &r->inputs : &r->outputs) |= HAS(i);
        r->count[i] = array_count(&r->given, (enum array)i);
        sum = size_plus(sum, size_times(r->count[i], 2 * sizeof(float)));
    }
    return sum <= PTRDIFF_MAX ? FIVE_STEPS_OK :
        fail(r, FIVE_STEPS_INVALID, "sizes: the arrays have more bytes than memory has addresses");
}

/* ---- Attention. ---- */

/* Do the strides of the bias say what a bias without them is? */
static int serves_all(const struct five_steps_attention_problem *p)
{
    struct five_steps_strides s = p->bias_strides;
    return (!s.batch || p->batch <= 1) && (!s.head || p->heads_q <= 1) &&
           (s.row == p->seqlen_k || p->seqlen_q <= 1);
}

static int describe_scores(struct request *r, const struct five_steps_attention_problem *p)
{
    struct problem *g = &r->given;
    struct fault f;
    g->causal = p->causal != 0;
    g->scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)p->head_dim);
    g->softcap = p->softcap;
    g->dropout = p->dropout, g->seed = p->seed;
    g->has_sinks = p->sinks != NULL;
    g->has_bias = p->bias != NULL;
    g->has_bias_strides = g->has_bias && p->bias_is_strided && !serves_all(p);
    g->bias_strides = (struct strides){p->bias_strides.batch, p->bias_strides.head,
                                       p->bias_strides.row};
    g->has_bias_gradient = g->has_bias && p->dbias && g->op == OP_BACKWARD;
    g->has_window = p->window != 0;
    g->window_left = p->window_left, g->window_right = p->window_right;
    return call_scores(g, &f) ? relay(r, &f) : FIVE_STEPS_OK;
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

static int describe_eight_bits(struct request *r, const struct five_steps_attention_problem *p)
{
    static const enum dtype types[] = {[FIVE_STEPS_E4M3] = E4M3, [FIVE_STEPS_INT8] = INT8};
    int of_q = dtype_size(r->given.dtype) == 1;
    const char *extra = p->q_scale && !of_q ? "q" : of_q || p->kv_type ? NULL
                        : p->k_scale ? "k" : p->v_scale ? "v" : NULL;
    if (extra)
        return fail(r, FIVE_STEPS_INVALID, "%s_scale: is given, but %s has no 8 bits", extra, extra);
    if (p->kv_type && p->kv_type != FIVE_STEPS_E4M3 && p->kv_type != FIVE_STEPS_INT8)
        return fail(r, FIVE_STEPS_INVALID, "kv_type: %d is none of 0, FIVE_STEPS_E4M3, "
                    "FIVE_STEPS_INT8", p->kv_type);
    if (r->given.dtype == E4M3 && p->kv_type == FIVE_STEPS_INT8)
        return fail(r, FIVE_STEPS_UNSUPPORTED, "kv_type: v in int8 with q and k in e4m3");
    if (!of_q && !p->kv_type) return FIVE_STEPS_OK;
    if (r->given.op == OP_BACKWARD)
        return fail(r, FIVE_STEPS_UNSUPPORTED, "%s: numbers of 8 bits have no gradient",
                    of_q ? "type" : "kv_type");
    if (of_q && p->page_table)
        return fail(r, FIVE_STEPS_UNSUPPORTED, "type: q in 8 bits with keys in pages");
    if (p->kv_type) r->given.cache = types[p->kv_type];
    if (r->given.cache == r->given.dtype) r->given.cache = F32;
    return FIVE_STEPS_OK;
}

/* The strides of array i, [batches, heads, rows, width]; 0 where it is contiguous.  The stride of
 * a dimension of one element says nothing. */
static struct strides described_strides(const struct problem *p, enum array i,
                                        struct five_steps_strides s)
{
    const struct strides none = {0, 0, 0};
    if (!s.batch && !s.head && !s.row) return none;
    struct extents n = array_extents(p, i);
    struct strides given = {s.batch, s.head, s.row};
    struct strides contiguous = strides_or(none, n.size[1], n.size[2], n.size[3]);
    if (!n.size[0] || !n.size[1] || !n.size[2] || !n.size[3]) return none;
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
    g->deterministic = p->deterministic != 0, g->invariant = p->invariant != 0;
    r->isolate_v = p->isolate_v;
    r->theirs = (struct arrays){
        .q = p->q, .k = p->k, .v = p->v, .bias = p->bias, .sinks = p->sinks,
        .cu_seqlens_q = p->cu_seqlens_q, .cu_seqlens_k = p->cu_seqlens_k,
        .seqlens_k = p->seqlens_k, .page_table = p->page_table, .o = p->o, .lse = p->lse,
        .d_o = p->d_o, .dq = p->dq, .dk = p->dk, .dv = p->dv, .dsinks = p->dsinks,
        .dbias = p->dbias,
        .q_scale = p->q_scale, .k_scale = p->k_scale, .v_scale = p->v_scale, .stream = p->stream};
    int status = describe_scores(r, p);
    if (!status) status = describe_packed(r, p);
    if (!status) status = describe_pages(r, p);
    if (!status) status = describe_eight_bits(r, p);
    if (!status && g->has_bias_gradient && array_start(g, &r->theirs, ARRAY_BIAS) != (const void *)p->bias)
        status = fail(r, FIVE_STEPS_UNSUPPORTED, "dbias: of a bias whose rows run backwards");
    if (status) return status;
    g->q_strides = described_strides(g, ARRAY_Q, p->q_strides);
    g->k_strides = described_strides(g, ARRAY_K, p->k_strides);
    g->v_strides = described_strides(g, ARRAY_V, p->v_strides);
    g->o_strides = described_strides(g, ARRAY_O, p->o_strides);
    return describe_arrays(r);
}

int five_steps_attention_shapes(struct five_steps_attention_problem *p, const size_t *ranks,
                                const size_t *sizes, struct five_steps_error *error)
{
    struct request r = {.given.op = OP_ATTENTION, .error = error};
    struct problem *g = &r.given;
    struct given given[N_ARRAYS] = {{0}};
    struct fault f;
    if (error) *error = (struct five_steps_error){.code = FIVE_STEPS_OK};
    for (int i = ARRAY_Q; i <= ARRAY_V; sizes += *ranks++, i++)
        given[i] = (struct given){sizes, *ranks, NULL};
    if (call_shapes(g, given, &f)) return relay(&r, &f);
    p->batch = g->batch, p->heads_q = g->heads_q, p->heads_kv = g->heads_kv;
    p->seqlen_q = g->seqlen_q, p->seqlen_k = g->seqlen_k;
    p->head_dim = g->head_dim, p->head_dim_v = g->head_dim_v;
    return FIVE_STEPS_OK;
}

int describe_softmax(struct request *r, const struct five_steps_softmax_problem *p)
{
    r->given.op = p->log ? OP_LOGSOFTMAX : OP_SOFTMAX;
    r->given.rows = p->rows, r->given.cols = p->cols;
    r->theirs = (struct arrays){.x = p->x, .y = p->y, .stream = p->stream};
    return describe_arrays(r);
}

/* ---- The arrays themselves, when it is about to be computed. ---- */

int check_pointer(struct request *r, const char *name, const void *array, size_t count,
                  size_t alignment)
{
    if (count == 0 || (array && (uintptr_t)array % alignment == 0)) return FIVE_STEPS_OK;
    if (!array) return fail(r, FIVE_STEPS_INVALID, "%s: is NULL", name);
    return fail(r, FIVE_STEPS_INVALID, "%s: starts at no multiple of %zu bytes", name, alignment);
}

/* Where an array lies: rows of `width` bytes, n of them `stride` bytes apart in each of three dimensions;
 * n = 1 where there is none. */
struct place { uintptr_t start; size_t width, n[3], stride[3]; };

static struct place place_of(const struct request *r, enum array i)
{
    const struct problem *p = &r->given;
    int strided_bias = i == ARRAY_BIAS && p->has_bias_strides;
    size_t element = array_element(p, i);
    struct strides s = strided_bias ? p->bias_strides : array_given_strides(p, i);
    struct extents e = {4, {p->batch, p->heads_q, p->seqlen_q, p->seqlen_k}};
    struct place x = {(uintptr_t)array_start(p, &r->theirs, i), r->count[i] * element, {1, 1, 1}, {0, 0, 0}};
    const size_t stride[] = {s.batch, s.head, s.row};
    if (!strided_bias && !s.batch && !s.head && !s.row) return x;
    if (!strided_bias) e = array_extents(p, i);
    x.width = e.size[3] * element;
    for (int t = 0; t < 3; t++) { /* backwards is forwards from the lowest row */
        x.n[t] = e.size[t];
        x.stride[t] = (stride[t] > PTRDIFF_MAX ? 0 - stride[t] : stride[t]) * element;
    }
    return x;
}

/* Can no byte of one be a byte of the other?  Dimensions with strides below `least` are taken for solid.
 * Then all begins are those of `a` or `b` but for a multiple of the other strides' common divisor. */
static int are_apart(const struct place *a, const struct place *b, size_t least)
{
    const struct place *const both[] = {a, b};
    size_t width[] = {a->width, b->width}, step = 0;
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < 3; t++) {
            size_t stride = both[i]->n[t] > 1 ? both[i]->stride[t] : 0, rest;
            if (stride < least) width[i] += stride * (both[i]->n[t] - 1);
            else for (; stride; stride = rest) rest = step % stride, step = stride;
        }
    if (!step) return a->start + width[0] <= b->start || b->start + width[1] <= a->start;
    size_t gap = (b->start % step + step - a->start % step) % step; /* from an a to the next b */
    return width[0] <= gap && width[1] <= step - gap;
}

static int overlap(const struct place *a, const struct place *b)
{
    int apart = are_apart(a, b, SIZE_MAX);
    for (int t = 0; t < 3 && !apart; t++)
        apart = are_apart(a, b, a->stride[t]) || are_apart(a, b, b->stride[t]);
    return !apart;
}

int check_overlap(struct request *r)
{
    struct place places[N_ARRAYS];
    unsigned given = 0;
    for (unsigned all = r->inputs | r->outputs; all;) {
        enum array i = next_array(&all);
        if (!array_of(&r->theirs, i) || !r->count[i]) continue;
        places[i] = place_of(r, i);
        given |= HAS(i);
    }
    for (unsigned out = r->outputs & given; out;) {
        enum array o = next_array(&out);
        for (unsigned others = (r->inputs & given) | out; others;) { /* `out`: the outputs after o */
            enum array i = next_array(&others);
            if (overlap(&places[i], &places[o]))
                return fail(r, FIVE_STEPS_INVALID, "%s: overlaps the output %s", name_of(i), name_of(o));
        }
    }
    return FIVE_STEPS_OK;
}

static int check_pointers(struct request *r)
{
    const struct problem *p = &r->given;
    for (unsigned set = r->inputs | r->outputs; set;) {
        enum array array = next_array(&set);
        const void *here = array_of(&r->theirs, array);
        if (!here && (is_optional(p, array) || may_lack(array))) continue;
        size_t alignment = array_element(p, array);
        if (r->on_gpu && array_list[array].number == OF_PROBLEM) alignment = 16;
        int status = check_pointer(r, name_of(array), here, r->count[array], alignment);
        if (status) return status;
    }
    return FIVE_STEPS_OK;
}

/* Do two rows of o share an element?  The stride of each dimension leads past what the dimensions
 * with smaller strides reach. */
static int check_output_rows(struct request *r)
{
    struct place o = place_of(r, ARRAY_O);
    size_t reach = o.width;
    for (int done = 0; done < 3; done++) {
        int least = -1;
        for (int t = 0; t < 3; t++)
            if (o.n[t] > 1 && (least < 0 || o.stride[t] < o.stride[least])) least = t;
        if (least < 0) break;
        if (o.stride[least] < reach)
            return fail(r, FIVE_STEPS_INVALID, "o_strides: rows of o overlap");
        reach += o.stride[least] * (o.n[least] - 1);
        o.n[least] = 1;
    }
    return FIVE_STEPS_OK;
}

int check_arrays(struct request *r)
{
    struct fault f;
    int status = check_pointers(r);
    if (!status) status = check_overlap(r);
    if (!status && r->given.op == OP_ATTENTION) status = check_output_rows(r);
    if (status || r->on_gpu) return status;
    return call_numbers(&r->given, &r->theirs, &f) ? relay(r, &f) : FIVE_STEPS_OK;
}
