/* local.c: what a rank does alone: the kernel of fast/ on a piece of the problem, and the
 * merge of two answers. */
#include "ranks.h"

#include <string.h>

#include "monoid.h"
#include "problem/host_memory.h"

extern const struct variant tiled_all_cores; /* fast/tiled.c */

/* The piece as a problem of its own.  Its causal mask is shifted: local query i and key j are
 * rows.first + i and cols.first + j of the whole. */
static struct problem piece(const struct shard *w, struct key_range rows,
                            struct key_range cols)
{
    struct problem p = w->whole;
    ptrdiff_t whole = (ptrdiff_t)p.seqlen_k - (ptrdiff_t)p.seqlen_q + p.shift;
    p.seqlen_q = range_size(rows);
    p.seqlen_k = range_size(cols);
    ptrdiff_t own = (ptrdiff_t)p.seqlen_k - (ptrdiff_t)p.seqlen_q;
    p.shift = whole + (ptrdiff_t)rows.first - (ptrdiff_t)cols.first - own;
    if (p.causal && p.seqlen_q && visible_keys(&p, 0).end == p.seqlen_k) p.causal = 0;
    if (!p.causal) p.shift = 0;
    return p;
}

int local_attention(const struct shard *w, const float *q, struct key_range rows,
                    const float *k, const float *v, struct key_range cols,
                    const float *bias, float *o, float *lse)
{
    struct problem p = piece(w, rows, cols);
    if (!p.seqlen_q || !p.seqlen_k || visible_keys(&p, p.seqlen_q - 1).end == 0) return 0;
    struct arrays a = {.q = q, .k = k, .v = v, .bias = bias, .o = o, .lse = lse};
    size_t bytes = tiled_all_cores.workspace(&p);
    a.workspace = bytes ? memory_new(bytes) : NULL;
    if (bytes && !a.workspace) return -1;
    variant_call(&tiled_all_cores, &p, &a);
    memory_free(a.workspace);
    return 1;
}

void answer_unit(size_t rows, size_t d, float *o, float *lse)
{
    memset(o, 0, rows * d * sizeof *o);
    for (size_t i = 0; i < rows; i++) lse[i] = -INFINITY;
}

void answer_merge(size_t rows, size_t d, float *o, float *lse, const float *o2,
                  const float *lse2)
{
#pragma omp parallel for schedule(static) if (rows * d > 1 << 14)
    for (size_t i = 0; i < rows; i++) {
        struct aggregate x = {lse[i], 1, o + i * d, d};
        struct aggregate y = {lse2[i], 1, (float *)o2 + i * d, d};
        if (y.m == -INFINITY) continue; /* not a bit of x may change */
        aggregate_merge(&x, &y);
        aggregate_finish(&x, x.o, &lse[i]);
    }
}

void copy_rows(float *to_array, size_t to_rows, size_t to_first, const float *from_array,
               size_t from_rows, size_t from_first, size_t n, size_t heads, size_t d)
{
    for (size_t h = 0; h < heads && n; h++)
        memcpy(to_array + (h * to_rows + to_first) * d,
               from_array + (h * from_rows + from_first) * d, n * d * sizeof *to_array);
}
