/* overlapped.c: stage 2 with the loops of neighbouring rows overlapped.
 *
 * The rescaling of a row waits for stores, the search for the maximum of the next row waits
 * for loads: one loop does both. */
#include "row.h"

/* rescale(y, n, l), and meanwhile the largest of `next` (n): one loop waits for stores,
 * the other for loads. */
static float divide_and_look(float *y, size_t n, float l, const float *next)
{
    float scale = scale_of(l);
    vfloat m[UNROLL_MOST];
    UNROLL(u, 4, m[u] = vset(-INFINITY));
    size_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        UNROLL(u, 4, vstore(y + j + u * LANES, vload(y + j + u * LANES) * scale);
               m[u] = vmax(vload(next + j + u * LANES), m[u]));
    rescale(y + j, n - j, l);
    float rest = largest(next + j, n - j);
    float most = vlargest(vmax(vmax(m[0], m[1]), vmax(m[2], m[3])));
    return most > rest ? most : rest;
}

/* The loops of neighbouring rows overlapped. */
static void softmax_overlapped(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols;
    float m = p->rows > 0 ? largest(x, n) : 0;
    for (size_t i = 0; i < p->rows; i++) {
        float l = exp_store(x + i * n, y + i * n, n, shift_of(m));
        if (i + 1 < p->rows) m = divide_and_look(y + i * n, n, l, x + (i + 1) * n);
        else rescale(y + i * n, n, l);
    }
}

const struct variant safe_overlapped = {
    .name = "overlapped", .idea = "next row's maximum early",
    .group = IN_FAST, SAFE_ON_CPU, .cost = cost_reload,
    .does = {{OP_SOFTMAX, softmax_overlapped}},
};
