/* push_tile.cu: exercise of stage 5, 20 points: the online softmax inside a kernel.
 *
 *     m_new = max(m, max_j s_j)
 *     l     = l * exp(m - m_new) + sum_j exp(s_j - m_new)
 *     o     = o * exp(m - m_new) + sum_j exp(s_j - m_new) v_j
 *
 * Task: fill push_tile(), which the kernel calls for each tile: one maximum
 * and one correction for all of it.  Each thread has its own query, so there is nothing to wait for
 * and nothing to exchange.
 * May be assumed: head_dim_v <= MAX_COLS.  Any of the scores may be -INFINITY, all of
 * them too, also in the first tile; the rows of v that belong to them may hold anything.
 * A NaN score makes l and o NaN.
 *
 * Point: cases ascending, shift_200, low, mask_row, mask_first.
 * Time: 60 minutes.
 * Hint: the same step as in stage 3, with the maximum of a whole tile.
 * Hint: a tile of masked scores only must leave m as it is: then the factor is 1, not
 *       exp(infinity - infinity).
 * Right or wrong:  make exercise 5 EX=push_tile      (without a GPU: on the CPU) */
#include "harness.h"
#include "course/kernel.h"

enum {
    Br = 32,       /* queries of a block: one for each thread */
    Bc = 16,       /* keys of a tile */
    MAX_COLS = 64  /* largest head_dim_v */
};

/* The running state of a query; empty: m = -INFINITY, l = 0. */
struct state { float m, l; };

/* Takes a tile into the state of the thread's query.
 *   s (Bc)  scores; -INFINITY: masked, or behind the end of the keys
 *   v (Bc, MAX_COLS)  the tile's values      o (head_dim_v)  un-normalised so far */
static __device__ void push_tile(struct state *x, float *o, const float *s,
                                 const float (*v)[MAX_COLS], int head_dim_v)
{
    /* solution begin */
    float m_new = x->m;
    for (int j = 0; j < Bc; j++) m_new = s[j] > m_new ? s[j] : m_new;
    float correction = m_new == x->m ? 1.0f : expf(x->m - m_new);
    x->m = m_new;
    x->l *= correction;
    for (int d = 0; d < head_dim_v; d++) o[d] *= correction;
    for (int j = 0; j < Bc; j++) {
        if (s[j] == -INFINITY) continue;
        float weight = expf(s[j] - m_new);
        x->l += weight;
        for (int d = 0; d < head_dim_v; d++) o[d] = fmaf(weight, v[j][d], o[d]);
    }
    /* skeleton
    x->l = -1;
    solution end */
}

static __global__ void kernel(const float *s, const float *v, float *o_out, float *lse, int n_q, int n_k, int d_v)
{
    int i = blockIdx.x * Br + threadIdx.x;
    if (i >= n_q) return;
    struct state x = {-INFINITY, 0.0f};
    float o[MAX_COLS] = {}, tile_s[Bc], tile_v[Bc][MAX_COLS];
    for (int j_0 = 0; j_0 < n_k; j_0 += Bc) {
        for (int j = 0; j < Bc; j++) tile_s[j] = j_0 + j < n_k ? s[i * n_k + j_0 + j] : -INFINITY;
        for (int j = 0; j < Bc; j++)
            for (int d = 0; d < d_v; d++) tile_v[j][d] = j_0 + j < n_k ? v[(j_0 + j) * d_v + d] : NAN;
        push_tile(&x, o, tile_s, tile_v, d_v);
    }
    for (int d = 0; d < d_v; d++) o_out[i * d_v + d] = x.l == 0.0f ? 0.0f : o[d] / x.l;
    lse[i] = x.m + logf(x.l);
}

/* The judge's call. */
void answer(const struct call *c)
{
    launch((unsigned)(c->n[0] + Br - 1) / Br, Br, 0, kernel, c->x[0], c->x[1], c->y[0], c->y[1], (int)c->n[0],
           (int)c->n[1], (int)c->n[2]);
}
