/* gradient.c: exercise of stage 4, 30 points: the backward pass of attention.
 *
 * Training asks how a loss changes with q, k and v.  It knows how the loss changes with the output:
 * do_i is its gradient with respect to o_i.  With p_ij = exp(s_ij - lse_i), the softmax of row i,
 *
 *     dv_j  = sum_i p_ij do_i                   because o_i = sum_j p_ij v_j
 *     dp_ij = do_i . v_j                        for the same reason
 *     ds_ij = p_ij (dp_ij - D_i)                the gradient of softmax, from its output
 *     dq_i  = scale sum_j ds_ij k_j             because s_ij = scale q_i . k_j + bias_ij
 *     dk_j  = scale sum_i ds_ij q_i
 *
#if TASK == 0
 * where D_i = sum_j p_ij dp_ij.  Look at that sum before you write a loop for it: it is the product
 * of two vectors that are there, do_i and o_i.
 * Task: fill gradients_of_row(), in one loop over the keys: compute a score where it is needed.
 * h->lse[i] and o_row(h, i) hold what the forward pass left.
#else
 * where D_i = sum_j p_ij dp_ij.
 * Task: fill gradients_of_row(): store no row of scores, compute a score where it is needed.
 * The forward pass left h->lse[i], here with the base 2: log2 of sum_j exp(s_ij).  It kept no o:
 * what o_row(h, i) holds is not the output.
#endif
 * May be assumed: a query that sees no key has lse = -INFINITY and adds nothing.  A key whose score()
 * is -INFINITY takes no part, whatever its rows of k and v hold.
 * dq_i, dk and dv are 0 or hold what other queries added: add to them.
 *
 * Half of the points: cases ascending, shift_200, mask_first, nan_k, nan_v.
 * Time: 3 hours.
 * Hint: one query at a time: p_ij, dp_ij and ds_ij are three numbers in the loop over j.
#if TASK == 0
 * Hint: sum_j p_ij (do_i . v_j) = do_i . (sum_j p_ij v_j).  What is the sum in brackets?
#else
 * Hint: two loops over j: the first adds up D_i, the second uses it.
 * Hint: exp(s - lse) with lse = lse2 log 2; M_LN2 is log 2, or work with exp2f() throughout.
#endif
 * Hint: check one gradient by hand: one query, one key.  Then p = 1 and ds = 0; why?
 * Right or wrong:  make exercise 4 EX=gradient */
#include "course/exercise.h"
#include "course/attend.h"
#include "problem/heads.h"

/* What belongs to one query head.  Several of them may share k and v, and then dk and dv. */
struct gradients {
    const float *d_o; /* (seqlen_q, head_dim_v): "do" is a word of C */
    float *dq;        /* (seqlen_q, head_dim) */
    float *dk, *dv;   /* (seqlen_k, head_dim) (seqlen_k, head_dim_v) */
};

/* >>> your part: functions, #include and #define may be added here */
static float dot(const float *x, const float *y, size_t n)
{
    float sum = 0;
    for (size_t t = 0; t < n; t++) sum += x[t] * y[t];
    return sum;
}

/* y += a x, n elements. */
static void add(float *y, float a, const float *x, size_t n)
{
    for (size_t t = 0; t < n; t++) y[t] += a * x[t];
}

/* Adds what query i contributes to g->dq, dk and dv. */
static void gradients_of_row(const struct head *h, size_t i, const struct gradients *g)
{
    /* solution begin */
    size_t d = h->head_dim, d_v = h->head_dim_v;
    const float *do_i = g->d_o + i * d_v;
#if TASK == 0
    float D = dot(do_i, o_row(h, i), d_v), lse = h->lse[i];
#else
    float D = 0, lse = h->lse[i] * 0.693147181f;
    for (size_t j = 0; j < visible(h, i); j++)
        if (score(h, i, j) != -INFINITY)
            D += expf(score(h, i, j) - lse) * dot(do_i, v_row(h, j), d_v);
#endif
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) continue;
        float p = expf(s - lse), ds = p * (dot(do_i, v_row(h, j), d_v) - D);
        add(g->dv + j * d_v, p, do_i, d_v);
        add(g->dq + i * d, h->scale * ds, k_row(h, j), d);
        add(g->dk + j * d, h->scale * ds, q_row(h, i), d);
    }
    /* skeleton
    // Your code.  Rows: q_row(h, i), k_row(h, j), v_row(h, j), g->dv + j * h->head_dim_v, ...
    solution end */
}
/* <<< end of your part */

/* The forward pass. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) attend_row(h, i);
}

static void clear(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = 0;
}

static void backward(const struct problem *p, const struct arrays *a)
{
    clear(a->dq, n_heads(p) * p->seqlen_q * p->head_dim);
    clear(a->dk, p->batch * p->heads_kv * p->seqlen_k * p->head_dim);
    clear(a->dv, p->batch * p->heads_kv * p->seqlen_k * p->head_dim_v);
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
        struct gradients g = {
            .d_o = (const float *)a->d_o + (h.o - (float *)a->o),
            .dq = (float *)a->dq + (h.q - (const float *)a->q),
            .dk = (float *)a->dk + (h.k - (const float *)a->k),
            .dv = (float *)a->dv + (h.v - (const float *)a->v)};
#if TASK == 1
        float lse[h.seqlen_q], nothing[h.seqlen_q * h.head_dim_v];
        for (size_t i = 0; i < h.seqlen_q; i++) lse[i] = h.lse[i] * 1.44269504f;
        for (size_t i = 0; i < h.seqlen_q * h.head_dim_v; i++) nothing[i] = NAN;
        h.lse = lse, h.o = nothing;
#endif
        for (size_t i = 0; i < h.seqlen_q; i++) gradients_of_row(&h, i, &g);
    }
}

PROGRAM(4, gradient, "the gradients of q, k and v, query by query",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}},
        .does = {{OP_BACKWARD, backward}})
