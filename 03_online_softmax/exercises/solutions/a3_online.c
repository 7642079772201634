/* a3_online.c: assignment of stage 3, 40 points: attention while the keys arrive.
 *
 *     m_new = max(m, s),   l = l exp(m - m_new) + exp(s - m_new),   o = o exp(m - m_new) + exp(s - m_new) v
 *
 * A model that writes text sees a key once, and may be asked for its answer at any time.  Here several queries
 * share the keys.
 *
 * Task: fill push() and attend_to_arriving().  next_key() gives one key after another, each once.  Where it returns
 * ASKED, call report() with o and lse of all queries over the keys so far, and go on with the state as it was: more
 * keys may follow.  Use dot() of your a1_naive.c.
 * May be assumed: n_q, head_dim and head_dim_v are at most MOST.  Query i sees a key whose bias_i is not -INFINITY;
 * whatever lies in the k and v of another does not reach it.  A query that has seen no key has o = 0, lse = -INFINITY.
 * NaN in what it sees reaches its output.
 *
 * Point: cases ascending, shift_200, mask_first, nan_v, nan_q.
 * Time: 8 hours.
 * Hint: m, l and o of all queries are arrays that live as long as the keys arrive.
 * Hint: report() wants o divided by l.  Divide into another array: the state must stay as it is.
 * Hint: NaN compares false with everything.  Which of your comparisons lets a NaN score through?
 * Right or wrong:  make exercise 3 EX=a3_online */
#include "a2_safe.c"

enum { MOST = 64, END = 0, KEY = 1, ASKED = 2 };

/* The state of a query. */
struct query { float m, l, o[MOST]; };

static size_t n_q, head_dim, head_dim_v;

/* The next key: k (head_dim), v (head_dim_v), and bias (n_q), one number for each query. */
static int next_key(float *k, float *v, float *bias)
{
    float all[3 * MOST + 1], *next = all;
    if (!ask('k', 0, 0, NULL, 0, all, 1 + head_dim + head_dim_v + n_q)) return END;
    int asked = *next++ != 0;
    for (size_t d = 0; d < head_dim; d++) k[d] = *next++;
    for (size_t d = 0; d < head_dim_v; d++) v[d] = *next++;
    for (size_t i = 0; i < n_q; i++) bias[i] = *next++;
    return asked ? ASKED : KEY;
}

/* o (n_q, head_dim_v), lse (n_q): the answer for the keys so far. */
static void report(const float *o, const float *lse)
{
    float all[MOST * (MOST + 1)];
    for (size_t e = 0; e < n_q * head_dim_v; e++) all[e] = o[e];
    for (size_t i = 0; i < n_q; i++) all[n_q * head_dim_v + i] = lse[i];
    ask('o', 0, 0, all, n_q * (head_dim_v + 1), NULL, 0);
}

/* A key with score s and values v into the state of a query. */
static void push(struct query *x, float s, const float *v)
{
    /* solution begin */
    if (s == -INFINITY) return;
    float m_new = s > x->m ? s : x->m, correction = x->m == m_new ? 1 : expf(x->m - m_new), w = expf(s - m_new);
    x->l = x->l * correction + w;
    for (size_t d = 0; d < head_dim_v; d++) x->o[d] = x->o[d] * correction + w * v[d];
    x->m = m_new;
    /* solution end */
}

/* All keys, as they arrive.   q (n_q, head_dim) */
static void attend_to_arriving(const float *q, float scale)
{
    /* solution begin */
    static struct query x[MOST];
    float k[MOST], v[MOST], bias[MOST], o[MOST * MOST], lse[MOST];
    for (size_t i = 0; i < n_q; i++) x[i] = (struct query){-INFINITY, 0, {0}};
    for (int key; (key = next_key(k, v, bias)) != END;) {
        for (size_t i = 0; i < n_q; i++)
            if (bias[i] != -INFINITY) push(&x[i], scale * dot(q + i * head_dim, k, head_dim) + bias[i], v);
        if (key != ASKED) continue;
        for (size_t i = 0; i < n_q; i++) {
            for (size_t d = 0; d < head_dim_v; d++) o[i * head_dim_v + d] = x[i].l == 0 ? 0 : x[i].o[d] / x[i].l;
            lse[i] = x[i].m + logf(x[i].l);
        }
        report(o, lse);
    }
    /* skeleton
    // Your code, with calls of next_key() and report().
    solution end */
}

/* The judge's call, where this file is not included by the next assignment. */
#if __INCLUDE_LEVEL__ == 0
void answer(const struct call *c)
{
    n_q = (size_t)c->n[0], head_dim = (size_t)c->n[1], head_dim_v = (size_t)c->n[2];
    attend_to_arriving(c->x[0], c->x[1][0]);
}
#endif
