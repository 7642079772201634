/* run_shape.c: which problem the shapes and types of the input files describe. */
#include <math.h>

#include "problem/dtype.h"
#include "problem/operation.h"
#include "program/run.h"

static int softmax_shape(struct run *r)
{
    const struct npy *x = &r->in[X];
    if (x->ndim == 0)
        return bad(r, "--x: %s: a single number without dimensions; give [rows, cols]",
                   r->path[X]);
    r->p.op = r->opt->log ? OP_LOGSOFTMAX : OP_SOFTMAX;
    r->p.cols = x->shape[x->ndim - 1];
    r->p.rows = r->p.cols ? x->count / r->p.cols : 0;
    return OK;
}

/* The dimension `from_end` places before the last, 1 where the array has none. */
static size_t dim(const struct npy *a, size_t from_end)
{
    return from_end < a->ndim ? a->shape[a->ndim - 1 - from_end] : 1;
}

static int attention_ranks(const struct run *r)
{
    static const char *const names[] = {"--q", "--k", "--v"};
    for (int i = Q; i <= V; i++) {
        size_t n = r->in[i].ndim;
        if (n < 2 || n > 4)
            return bad(r, "%s: %s: %s has %zu dimensions; give [seqlen, head_dim], [heads, "
                       "seqlen, head_dim] or [batch, heads, seqlen, head_dim]", names[i],
                       r->path[i], npy_describe(&r->in[i]), n);
        if (n != r->in[Q].ndim)
            return bad(r, "%s: %s: %s has %zu dimensions, q %s has %zu; give them alike",
                       names[i], r->path[i], npy_describe(&r->in[i]), n,
                       npy_describe(&r->in[Q]), r->in[Q].ndim);
    }
    return OK;
}

/* The prefix sums of --cu-seqlens-q or -k: 0 first, never falling, `total` last.  Sets the
 * number of sequences and the longest. */
static int packed_lengths(const struct run *r, int which, size_t total, size_t *batch,
                          size_t *longest)
{
    const struct npy *a = &r->in[which];
    const char *option = which == CU_SEQLENS_Q ? "--cu-seqlens-q" : "--cu-seqlens-k";
    const int32_t *sums = a->data;
    if (a->ndim != 1 || a->count == 0)
        return bad(r, "%s: %s: is %s; give one dimension, [sequences + 1]", option,
                   r->path[which], npy_describe(a));
    if (sums[0] != 0)
        return bad(r, "%s: %s: begins with %d; give prefix sums, 0 first", option,
                   r->path[which], sums[0]);
    *longest = 0;
    for (size_t b = 0; b + 1 < a->count; b++) {
        if (sums[b + 1] < sums[b])
            return bad(r, "%s: %s: falls from %d to %d at element %zu; give prefix sums",
                       option, r->path[which], sums[b], sums[b + 1], b + 1);
        size_t n = (size_t)(sums[b + 1] - sums[b]);
        if (n > *longest) *longest = n;
    }
    *batch = a->count - 1;
    if ((size_t)sums[*batch] == total) return OK;
    return bad(r, "%s: %s: ends with %d, but the sequences of --%c have %zu rows", option,
               r->path[which], sums[*batch], which == CU_SEQLENS_Q ? 'q' : 'k', total);
}

/* q, k and v hold several sequences, one after another: p's lengths become the longest. */
static int packed_shape(struct run *r)
{
    struct problem *p = &r->p;
    size_t batch_k;
    if (!r->path[CU_SEQLENS_Q]) return OK;
    if (r->in[Q].ndim > 3)
        return bad(r, "--q: %s: %s has 4 dimensions; packed sequences have [heads, total, "
                   "head_dim]", r->path[Q], npy_describe(&r->in[Q]));
    p->packed = 1;
    p->total_q = p->seqlen_q, p->total_k = p->seqlen_k;
    int status = packed_lengths(r, CU_SEQLENS_Q, p->total_q, &p->batch, &p->seqlen_q);
    if (!status)
        status = packed_lengths(r, CU_SEQLENS_K, p->total_k, &batch_k, &p->seqlen_k);
    if (status || batch_k == p->batch) return status;
    return bad(r, "--cu-seqlens-k: %s: has %zu sequences, --cu-seqlens-q has %zu; give them "
               "alike", r->path[CU_SEQLENS_K], batch_k, p->batch);
}

/* Window, soft cap and sinks. */
static int score_options(struct run *r)
{
    struct problem *p = &r->p;
    const struct npy *sinks = &r->in[SINKS];
    p->causal = r->opt->causal;
    p->scale = r->opt->has_scale ? r->opt->scale : 1 / sqrtf((float)p->head_dim);
    p->has_window = r->opt->has_window;
    p->window_left = r->opt->window.left, p->window_right = r->opt->window.right;
    p->softcap = r->opt->softcap;
    p->has_sinks = r->path[SINKS] != NULL;
    if (p->has_sinks && (sinks->ndim != 1 || sinks->count != p->heads_q))
        return bad(r, "--sinks: %s: is %s; give [heads_q] = [%zu]", r->path[SINKS],
                   npy_describe(sinks), p->heads_q);
    return OK;
}

static int attention_shape(struct run *r)
{
    const struct npy *q = &r->in[Q], *k = &r->in[K], *v = &r->in[V], *bias = &r->in[BIAS];
    int status = attention_ranks(r);
    if (status) return status;
    struct problem *p = &r->p;
    p->op = OP_ATTENTION;
    p->batch = dim(q, 3), p->heads_q = dim(q, 2), p->heads_kv = dim(k, 2);
    p->seqlen_q = dim(q, 1), p->seqlen_k = dim(k, 1);
    p->head_dim = dim(q, 0), p->head_dim_v = dim(v, 0);
    if (p->head_dim == 0 || p->head_dim_v == 0)
        return bad(r, "--%s: %s: head_dim is 0; give at least 1", p->head_dim ? "v" : "q",
                   r->path[p->head_dim ? V : Q]);
    if (dim(k, 0) != p->head_dim)
        return bad(r, "--k: %s: head_dim is %zu in k %s and %zu in q %s; give them alike",
                   r->path[K], dim(k, 0), npy_describe(k), p->head_dim, npy_describe(q));
    if (dim(k, 3) != p->batch || dim(v, 3) != p->batch)
        return bad(r, "--%s: %s: the batch differs: q %s, k %s, v %s; give them alike",
                   dim(k, 3) != p->batch ? "k" : "v", r->path[dim(k, 3) != p->batch ? K : V],
                   npy_describe(q), npy_describe(k), npy_describe(v));
    if (dim(v, 1) != p->seqlen_k || dim(v, 2) != p->heads_kv)
        return bad(r, "--v: %s: k %s and v %s differ in heads or seqlen; give them alike",
                   r->path[V], npy_describe(k), npy_describe(v));
    if (p->heads_kv == 0 ? p->heads_q != 0 : p->heads_q % p->heads_kv != 0)
        return bad(r, "--k: %s: %zu query heads cannot share %zu key-value heads; heads of q "
                   "must be a multiple of heads of k", r->path[K], p->heads_q, p->heads_kv);
    status = packed_shape(r);
    if (!status) status = score_options(r);
    if (status) return status;
    if (r->path[BIAS] && (bias->ndim != 2 || bias->shape[0] != p->seqlen_q ||
                          bias->shape[1] != p->seqlen_k))
        return bad(r, "--bias: %s: is %s; give [seqlen_q, seqlen_k] = [%zu, %zu]",
                   r->path[BIAS], npy_describe(bias), p->seqlen_q, p->seqlen_k);
    p->has_bias = r->path[BIAS] != NULL;
    return OK;
}

/* The problem's type: --dtype, else what the files have in common. */
static int choose_type(struct run *r)
{
    static const char *const names[] = {"--q", "--k", "--v"};
    int attention = on_heads(&r->p);
    r->p.dtype = r->opt->has_dtype ? r->opt->dtype : r->in[Q].dtype;
    for (int i = K; attention && !r->opt->has_dtype && i <= V; i++)
        if (r->in[i].dtype != r->p.dtype)
            return bad(r, "%s: %s: is %s but q is %s; give them alike or choose with --dtype",
                       names[i], r->path[i], dtype_name(r->in[i].dtype),
                       dtype_name(r->p.dtype));
    return OK;
}

int run_choose_problem(struct run *r)
{
    int status = r->opt->x ? softmax_shape(r) : attention_shape(r);
    return status ? status : choose_type(r);
}
