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
 * where D_i = sum_j p_ij dp_ij.  Look at that sum before you write a loop for it: it is the product
 * of two vectors that are there, do_i and o_i.
 * Task: fill gradients_of_row(), in one loop over the keys: compute each score where it is needed, by score().
 * h->lse[i] and o_row(h, i) hold what the forward pass left.
 * May be assumed: a query that sees no key has lse = -INFINITY and adds nothing.  A key whose score()
 * is -INFINITY takes no part, whatever its rows of k and v hold.
 * dq_i, dk and dv are 0 or hold what other queries added: add to them.
 *
 * Point: cases ascending, shift_200, mask_first, nan_k, nan_v.
 * Time: 3 hours.
 * Hint: one query at a time: p_ij, dp_ij and ds_ij are three numbers in the loop over j.
 * Hint: sum_j p_ij (do_i . v_j) = do_i . (sum_j p_ij v_j).  What is the sum in brackets?
 * Hint: check one gradient by hand: one query, one key.  Then p = 1 and ds = 0; why?
 * Right or wrong:  make exercise 4 EX=gradient */
#include "stage.h"
#include "course/exercise.h"

/* What belongs to one query head.  Several of them may share k and v, and then dk and dv. */
struct gradients {
    const float *d_o; /* (seqlen_q, head_dim_v): "do" is a word of C */
    float *dq;        /* (seqlen_q, head_dim) */
    float *dk, *dv;   /* (seqlen_k, head_dim) (seqlen_k, head_dim_v) */
};

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

/* The score of query i and key j; -INFINITY where the key is masked. */
static float score(const struct head *h, size_t i, size_t j)
{
    /* solution begin */
    float bias = bias_of(h, i, j);
    return bias == -INFINITY ? -INFINITY : h->scale * dot(q_row(h, i), k_row(h, j), h->head_dim) + bias;
    /* skeleton
    return 0;
    solution end */
}

/* Adds what query i contributes to g->dq, dk and dv. */
static void gradients_of_row(const struct head *h, size_t i, const struct gradients *g)
{
    /* solution begin */
    size_t d = h->head_dim, d_v = h->head_dim_v;
    const float *do_i = g->d_o + i * d_v;
    float D = dot(do_i, o_row(h, i), d_v), lse = h->lse[i];
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

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = head_of(c);
    size_t n_q = h.seqlen_q * h.head_dim, n_k = h.seqlen_k * h.head_dim, n_v = h.seqlen_k * h.head_dim_v;
    struct gradients g = {c->x[5], c->y[0], c->y[1], c->y[2]};
    h.o = (float *)c->x[6], h.lse = (float *)c->x[7];
    for (size_t e = 0; e < n_q; e++) g.dq[e] = 0;
    for (size_t e = 0; e < n_k; e++) g.dk[e] = 0;
    for (size_t e = 0; e < n_v; e++) g.dv[e] = 0;
    for (size_t i = 0; i < h.seqlen_q; i++) gradients_of_row(&h, i, &g);
}
