/* oracle.h: attention by its definition in long double, written apart from the reference,
 * and problems to try it on.  Plain loops, no compensation: 64 bits are enough. */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdlib.h>
#include <string.h>
#include "problem/random.h"
#include "harness.h"

/* The causal rule written as in the question: with 2 queries and 5 keys 11110 / 11111. */
static inline int oracle_sees(const struct problem *p, size_t i, size_t j)
{
    long shift = (long)p->seqlen_k - (long)p->seqlen_q;
    return !p->causal || (long)j <= (long)i + shift;
}

/* o [batch, heads_q, seqlen_q, head_dim_v] and lse of float arrays, by definition. */
static inline void oracle_attention(const struct problem *p, const float *q,
                                    const float *k, const float *v, const float *bias,
                                    long double *o, long double *lse)
{
    size_t group = p->heads_kv ? p->heads_q / p->heads_kv : 1, d = p->head_dim, dv = p->head_dim_v;
    long double *s = malloc((p->seqlen_k + 1) * sizeof *s);
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->heads_q; h++)
            for (size_t i = 0; i < p->seqlen_q; i++) {
                size_t row = (b * p->heads_q + h) * p->seqlen_q + i;
                size_t kv = (b * p->heads_kv + h / group) * p->seqlen_k;
                long double m = -INFINITY, l = 0;
                for (size_t j = 0; j < p->seqlen_k; j++) {
                    s[j] = 0;
                    for (size_t t = 0; t < d; t++)
                        s[j] += (long double)q[row * d + t] * k[(kv + j) * d + t];
                    s[j] = s[j] * p->scale + (bias ? bias[i * p->seqlen_k + j] : 0);
                    if (!oracle_sees(p, i, j)) s[j] = -INFINITY;
                    if (s[j] > m) m = s[j];
                }
                for (size_t j = 0; j < p->seqlen_k; j++)
                    l += s[j] = s[j] == -INFINITY ? 0 : expl(s[j] - m);
                lse[row] = m + logl(l);
                for (size_t c = 0; c < dv; c++) {
                    o[row * dv + c] = 0;
                    for (size_t j = 0; l > 0 && j < p->seqlen_k; j++)
                        o[row * dv + c] += s[j] / l * v[(kv + j) * dv + c];
                }
            }
    free(s);
}

static inline float *oracle_normals(struct random *r, size_t n, float width)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = width * random_normal(r);
    return x;
}

#endif
