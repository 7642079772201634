/* a4_tiled.c: assignment of stage 4, 60 points: attention on all cores, and how near to what they can do.
 *
 * Task: fill tiled_attention().  It has a number of threads: start them (pthread.h), give each its share, join them.
 * Many queries: each thread takes some of them.  Few queries and many keys, as where a model writes text: each
 * thread takes some of the keys, and combine() of your a4_monoid.c makes one answer of theirs.
 * A head with a bias goes to safe_attention() of your a2_safe.c: speed matters where nothing is hidden.
 * May be assumed: head_dim and head_dim_v are at most MOST.  With h->bias NULL, query i sees all keys.
 *
 * The judge compares all of o and lse, with fresh numbers each time.  It counts the processor time of the busiest
 * thread, and the share of the multiply-adds that this machine can do meanwhile, which it measures between.  More than half of
 * the points are for answers that are right and work that is shared; then come shares of 2, 6 and 12 percent.
 *
 * Point: cases right_rows, right_keys, shared_rows, shared_keys.
 * Time: 12 hours.
 * Hint: first make it right with one thread, then with several, then fast.
 * Hint: a loop over d with one sum cannot be vectorised.  Transpose a tile of keys: then neighbouring keys have
 *       neighbouring sums.
 * Hint: with -ffp-contract=off the compiler fuses nothing by itself: say fmaf.
 * Right or wrong:  make exercise 4 EX=a4_tiled */
#include <pthread.h>

#include "a2_safe.c"
#include "a4_monoid.c"

enum { MOST = 64, MOST_THREADS = 64 };

/* solution begin */
enum { Bc = 64 };

/* A thread's share: some queries or some keys. */
struct share {
    const struct head *h;
    size_t i_0, i_end, j_0, j_end;
    struct part *parts; /* of its queries; o beside it */
    float *o;
};

/* Scores of a query against a transposed tile. */
static void tile_scores(const float *q_i, float (*k_t)[Bc], size_t head_dim, float *s)
{
    for (size_t j = 0; j < Bc; j++) s[j] = 0;
    for (size_t d = 0; d < head_dim; d++)
        for (size_t j = 0; j < Bc; j++) s[j] = fmaf(q_i[d], k_t[d][j], s[j]);
}

/* One tile of n keys, whose scores are s, into the part of a query. */
static void push_tile(struct part *x, float *o, float *s, size_t n, const float *v, size_t d_v)
{
    float m = x->m;
    for (size_t j = 0; j < n; j++) m = s[j] > m ? s[j] : m;
    float old = x->m == -INFINITY ? 0 : expf(x->m - m), l = 0;
    for (size_t j = 0; j < n; j++) s[j] = expf(s[j] - m);
    for (size_t j = 0; j < n; j++) l += s[j];
    for (size_t d = 0; d < d_v; d++) o[d] *= old;
    for (size_t j = 0; j < n; j++)
        for (size_t d = 0; d < d_v; d++) o[d] = fmaf(s[j], v[j * d_v + d], o[d]);
    x->l = x->l * old + l, x->m = m;
}

static void *do_share(void *argument)
{
    struct share *w = argument;
    const struct head *h = w->h;
    float k_t[MOST][Bc], s[Bc];
    for (size_t i = w->i_0; i < w->i_end; i++) w->parts[i] = (struct part){-INFINITY, 0};
    for (size_t j_0 = w->j_0; j_0 < w->j_end; j_0 += Bc) {
        size_t n = w->j_end - j_0 < Bc ? w->j_end - j_0 : Bc;
        for (size_t j = 0; j < Bc; j++)
            for (size_t d = 0; d < h->head_dim; d++) k_t[d][j] = j < n ? h->scale * k_row(h, j_0 + j)[d] : 0;
        for (size_t i = w->i_0; i < w->i_end; i++) {
            tile_scores(q_row(h, i), k_t, h->head_dim, s);
            push_tile(&w->parts[i], w->o + i * h->head_dim_v, s, n, v_row(h, j_0), h->head_dim_v);
        }
    }
    return NULL;
}
/* solution end */

/* One head: o and lse. */
static void tiled_attention(const struct head *h, size_t threads)
{
    /* solution begin */
    size_t by_keys = h->seqlen_q < 8 * threads, n = by_keys ? h->seqlen_k : h->seqlen_q;
    size_t n_q = h->seqlen_q, copies = by_keys ? threads : 1;
    struct share share[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    struct part *parts = calloc(copies * n_q, sizeof *parts);
    float *o = calloc(copies * n_q * h->head_dim_v, sizeof *o);
    for (size_t t = 0; t < threads; t++) {
        size_t from = n * t / threads, to = n * (t + 1) / threads, copy = by_keys ? t : 0;
        share[t] = (struct share){h, by_keys ? 0 : from, by_keys ? n_q : to, by_keys ? from : 0,
                                  by_keys ? to : h->seqlen_k, parts + copy * n_q, o + copy * n_q * h->head_dim_v};
        if (t) pthread_create(&thread[t], NULL, do_share, &share[t]);
    }
    do_share(&share[0]);
    for (size_t t = 1; t < threads; t++) pthread_join(thread[t], NULL);
    for (size_t i = 0; i < n_q; i++) {
        float *o_i = o + i * h->head_dim_v;
        for (size_t t = 1; t < copies; t++)
            combine(&parts[i], o_i, &share[t].parts[i], share[t].o + i * h->head_dim_v, h->head_dim_v);
        h->lse[i] = finish(&parts[i], o_i, h->head_dim_v);
        for (size_t d = 0; d < h->head_dim_v; d++) o_row(h, i)[d] = o_i[d];
    }
    free(parts);
    free(o);
    /* solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = head_of(c);
    float *s = malloc(h.seqlen_k * sizeof *s);
    h.o = c->y[0], h.lse = c->y[1];
    if (h.bias) safe_attention(&h, s);
    else tiled_attention(&h, (size_t)c->n[6]);
    free(s);
}
