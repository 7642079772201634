/* stage.h: what a lesson, stage.c, sees: one row of scores, or one head of attention.
 *
 * The harness takes files, batches and heads apart.  It calls the functions of a stage once for
 * each row, or once for each head.  It finds them in variants.c, which includes stage.c. */
#ifndef STAGE_H
#define STAGE_H

#include <math.h>
#include <stddef.h>

/* One head: seqlen_q queries attend to seqlen_k keys.  All arrays are row-major. */
struct head {
    const float *q, *k, *v; /* (seqlen_q, head_dim) (seqlen_k, head_dim) (seqlen_k, head_dim_v) */
    const float *bias;      /* (seqlen_q, seqlen_k), added to the scores; or NULL */
    float *o, *lse;         /* (seqlen_q, head_dim_v) (seqlen_q) */
    float *s, *p;           /* (seqlen_q, seqlen_k) each, for a stage that stores them; or NULL */
    float *scratch;         /* memory for a stage that needs some more, or NULL */
    size_t seqlen_q, seqlen_k, head_dim, head_dim_v;
    float scale;            /* multiplies q . k */
    ptrdiff_t last;         /* query i sees the keys 0 to i + last, of those that exist */
};

/* How many keys query i sees: the first ones.  Fewer than seqlen_k where a causal mask hides
 * from each query the keys that come after it. */
static inline size_t visible(const struct head *h, size_t i)
{
    ptrdiff_t n = (ptrdiff_t)i + h->last + 1;
    return n < 0 ? 0 : (size_t)n < h->seqlen_k ? (size_t)n : h->seqlen_k;
}

/* The rows of query i and of key j. */
static inline const float *q_row(const struct head *h, size_t i) { return h->q + i * h->head_dim; }
static inline const float *k_row(const struct head *h, size_t j) { return h->k + j * h->head_dim; }
static inline const float *v_row(const struct head *h, size_t j) { return h->v + j * h->head_dim_v; }
static inline float *o_row(const struct head *h, size_t i) { return h->o + i * h->head_dim_v; }
static inline float *s_row(const struct head *h, size_t i) { return h->s + i * h->seqlen_k; }
static inline float *p_row(const struct head *h, size_t i) { return h->p + i * h->seqlen_k; }

/* What is added to the score of query i and key j: the bias, 0 where there is none, and -INFINITY
 * where the key is hidden. */
static inline float bias_of(const struct head *h, size_t i, size_t j)
{
    if (j >= visible(h, i)) return -INFINITY;
    return h->bias ? h->bias[i * h->seqlen_k + j] : 0;
}

/* While `make trace` runs, somebody watches.  Otherwise watch() does nothing, and the compiler is
 * told to expect that.
 *   name  of the variable: a column of the trace      j  which step of the loop, from 0
 *   number or row (n)  its value after that step */
extern void (*watcher)(const char *name, size_t j, double number, const float *row, size_t n);

static inline void watch(const char *name, size_t j, double number)
{
    if (__builtin_expect(!!watcher, 0)) watcher(name, j, number, NULL, 0);
}

/* A loop of the trace ends here, and the next begins. */
static inline void watch_loop(void) { watch("loop", 0, NAN); }

static inline void watch_row(const char *name, size_t j, const float *row, size_t n)
{
    if (__builtin_expect(!!watcher, 0)) watcher(name, j, NAN, row, n);
}

#endif
