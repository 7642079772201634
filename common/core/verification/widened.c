/* widened.c: widens, updates and transposes inputs. */
#include "verification/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/layout.h"
#include "problem/quantise.h"

/* Puts the rows that are new in their places, in order. */
static void update(const struct problem *p, const struct arrays *a, float *rows,
                   const float *new, size_t d)
{
    for (size_t h = 0; h < p->batch * p->heads_kv; h++)
        for (size_t u = 0; u < p->n_updates; u++)
            memcpy(rows + (h * p->seqlen_k + a->index[u]) * d, new + (h * p->n_updates + u) * d,
                   d * sizeof *rows);
}

/* [heads, n, d] -> [heads, d, n] */
static float *transposed(const float *k, size_t heads, size_t n, size_t d)
{
    float *kt = xcalloc(heads * d * n, sizeof *kt);
    for (size_t h = 0; h < heads; h++)
        for (size_t j = 0; j < n; j++)
            for (size_t t = 0; t < d; t++) kt[(h * d + t) * n + j] = k[(h * n + j) * d + t];
    return kt;
}

struct widened widened_new(const struct problem *p, const struct arrays *a)
{
    struct widened w = {{NULL}, NULL};
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_role(p, i) == INPUT && array_list[i].number == OF_PROBLEM)
            w.array[i] = dequantised(p, a, i);
    if (operations[p->op].updates) {
        update(p, a, w.array[ARRAY_K], w.array[ARRAY_K_NEW], p->head_dim);
        update(p, a, w.array[ARRAY_V], w.array[ARRAY_V_NEW], p->head_dim_v);
    }
    if (on_heads(p))
        w.kt = transposed(w.array[ARRAY_K], p->batch * p->heads_kv, p->seqlen_k, p->head_dim);
    return w;
}

void widened_free(struct widened *w)
{
    for (int i = 0; i < N_ARRAYS; i++) free(w->array[i]);
    free(w->kt);
}

struct query query_of(const struct problem *p, const struct arrays *a, const struct widened *w,
                      size_t row)
{
    size_t d = p->head_dim, n = p->seqlen_k, rows = rows_per_head(p), i = row % rows;
    size_t head = row / rows, b = head / p->heads_q, h = head % p->heads_q;
    size_t kv = b * p->heads_kv + h / (p->heads_q / p->heads_kv);
    struct key_range keys = row_keys(p, i);
    size_t key = kv * n + keys.first;
    if (operations[p->op].per_prefix) i = 0;
    return (struct query){
        .head = head, .h = h, .i = i, .key = key, .n = keys.end - keys.first,
        .q = w->array[ARRAY_Q] + (head * p->seqlen_q + i) * d,
        .k = w->array[ARRAY_K] + key * d,
        .kt = w->kt + kv * d * n + keys.first,
        .v = w->array[ARRAY_V] + key * p->head_dim_v,
        .bias = p->has_bias ? a->bias + bias_at(p, b, h, i) + keys.first : NULL,
        .bias_at = bias_at(p, b, h, i) + keys.first,
        .sink = p->has_sinks ? a->sinks[h] : -INFINITY};
}
