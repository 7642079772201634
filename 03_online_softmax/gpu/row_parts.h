/* row_parts.h: how the kernels of one_pass.cu see a row: the part made of whole, aligned
 * packs, and the edges; and the running pair (m, l) of a thread.
 *
 * A row starts anywhere: row i of cols floats starts at element i * cols, which is a
 * multiple of 4 only if cols is.  So it has a head of less than a pack, packs, and a
 * tail of less than a pack.  x and y themselves are 16-byte aligned. */
#ifndef ROW_PARTS_H
#define ROW_PARTS_H

#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

/* head elements, then `packs` packs of WIDTH elements, then tail elements. */
struct parts { int head, packs, tail; };

template <int WIDTH>
static __device__ inline struct parts parts_of(size_t row, int cols)
{
    struct parts r;
    r.head = (int)((0 - row * (size_t)cols) & (WIDTH - 1));
    if (r.head > cols) r.head = cols;
    r.packs = (cols - r.head) / WIDTH;
    r.tail = (cols - r.head) % WIDTH;
    return r;
}

/* Which edge element is number i's: 0 .. head - 1 take the head, WARP .. WARP + tail - 1
 * the tail; -1 for the others. */
static __device__ inline int edge_of(struct parts r, int cols, int i)
{
    if (i < r.head) return i;
    if (i >= WARP && i - WARP < r.tail) return cols - r.tail + i - WARP;
    return -1;
}

/* The denominator of what a thread has seen: l = sum of exp(x - shift_of(m)). */
struct running { float m, l; };

static __device__ inline struct running nothing_seen(void)
{
    struct running r;
    r.m = -INFINITY;
    r.l = 0.0f;
    return r;
}

/* Takes N more scores: one comparison for all of them, and a rescale only when the
 * maximum rises.  Four sums at a time, so that additions do not wait for each other.
 *     m_new = max(m, x_0, ...),  l = l exp(m - m_new) + sum_e exp(x_e - m_new) */
template <int N>
static __device__ inline void push(struct running *r, const float (&x)[N])
{
    float m_new = x[0];
    for (int e = 1; e < N; e++) m_new = fmaxf(m_new, x[e]);
    if (m_new > r->m) {
        r->l *= exp_minus(r->m, m_new);
        r->m = m_new;
    }
    const float shift = shift_of(r->m);
    float sum[4] = {r->l, 0.0f, 0.0f, 0.0f};
    for (int e = 0; e < N; e++) sum[e % 4] += exp_minus(x[e], shift);
    r->l = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The pair of two parts. */
static __device__ inline struct running merge(struct running a, struct running b)
{
    struct running all;
    all.m = fmaxf(a.m, b.m);
    const float shift = shift_of(all.m);
    all.l = a.l * exp_minus(a.m, shift) + b.l * exp_minus(b.m, shift);
    return all;
}

/* The merged pair of all lanes of a warp, the same bits in each. */
static __device__ inline struct running lanes_merge(struct running r)
{
    struct running all;
    all.m = lanes_max<WARP>(r.m);
    all.l = lanes_sum<WARP>(r.l * exp_minus(r.m, shift_of(all.m)));
    return all;
}

/* From the pair of the row to its results: softmax is exp(x - shift) * scale, logsoftmax
 * is (x - shift) * 1 - log_l.  A row that is all -inf has l = 0: 0, or -inf. */
struct finish { float shift, scale, log_l; int log; };

static __device__ inline struct finish finish_of(struct running r, int log)
{
    struct finish f;
    f.log = log;
    f.shift = shift_of(r.m);
    f.scale = r.l == 0.0f ? 0.0f : 1.0f / r.l;
    f.log_l = log && r.l != 0.0f ? logf(r.l) : 0.0f;
    return f;
}

static __device__ inline float finished(struct finish f, float x)
{
    return f.log ? x - f.shift - f.log_l : exp_minus(x, f.shift) * f.scale;
}

#endif
