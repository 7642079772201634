/* ragged_tiles.c: exercise of stage 4, 15 points: tiles of keys, one of them short.
 *
#if TASK == 0
 *     tile t = keys  t Bc  to  min((t + 1) Bc, n) - 1,      t < ceil(n / Bc)
 *
 * Task: fill fold_tiles(): go through the n keys of a query in tiles of Bc, of which only the
 * last may be short; compute a tile's scores by score_tile() and take them in by push_tile(),
 * both given.
#elif TASK == 1
 *     the last tile ends with key n - 1, each of the others where the next one begins
 *
 * Task: fill fold_tiles(): go through the n keys of a query in tiles of Bc, of which only the
 * first may be short; compute a tile's scores by score_tile() and take them in by push_tile(),
 * both given.
#endif
 * May be assumed: nothing about n: it may be 0, less than Bc, or no multiple of it.  k
 * and v end after seqlen_k rows: nothing behind them may be read.
 *
 * Right or wrong:  make exercise 4 EX=ragged_tiles */
#include "harness.h"

enum { Bc = 32 /* keys of a tile; one of 16, 24, 32, 48 */ };

/* What a set of keys stands for: m the largest of their scores, l = sum exp(s - m),
 * o (head_dim_v) = sum exp(s - m) v.  Without keys: m = -INFINITY, l = 0, o = 0.
 * last: how many keys the last tile had, 0 before the first. */
struct aggregate { float m, l; float *o; size_t last; };

static void unit(const struct problem *p, struct aggregate *x)
{
    x->m = -INFINITY;
    x->l = 0;
    x->last = 0;
    for (size_t d = 0; d < p->head_dim_v; d++) x->o[d] = 0;
}

/* The score of query i and key j; -INFINITY where the bias masks the key.
 *   q_i, k_j (head_dim)   bias_i (seqlen_k) or NULL */
static float score(const struct problem *p, const float *q_i, const float *k_j,
                   const float *bias_i, size_t j)
{
    if (bias_i && bias_i[j] == -INFINITY) return -INFINITY;
    float dot = 0;
    for (size_t d = 0; d < p->head_dim; d++) dot += q_i[d] * k_j[d];
    return p->scale * dot + (bias_i ? bias_i[j] : 0);
}

/* s (n_keys) = the scores of keys first .. first + n_keys - 1; n_keys <= Bc. */
static void score_tile(const struct problem *p, const float *q_i, const float *k,
                       const float *bias_i, size_t first, size_t n_keys, float *s)
{
    for (size_t t = 0; t < n_keys; t++)
        s[t] = score(p, q_i, k + (first + t) * p->head_dim, bias_i, first + t);
}

/* Takes a tile into x: one maximum and one correction for all its keys.
#if TASK == 0
 * After a short tile none may follow: then l becomes NaN.
#else
 * Only the first tile may be short: after another short one l is NaN.
#endif
 *   s (n_keys)  scores; -INFINITY means masked      v_t (n_keys, head_dim_v) */
static void push_tile(const struct problem *p, struct aggregate *x, const float *s,
                      const float *v_t, size_t n_keys)
{
    float m_new = x->m;
    for (size_t t = 0; t < n_keys; t++) m_new = s[t] > m_new ? s[t] : m_new;
    float correction = m_new == x->m ? 1 : expf(x->m - m_new);
    x->m = m_new;
    x->l *= correction;
#if TASK == 0
    if (x->last && x->last < Bc) x->l = NAN;
#else
    if (x->last && n_keys < Bc) x->l = NAN;
#endif
    x->last = n_keys;
    for (size_t d = 0; d < p->head_dim_v; d++) x->o[d] *= correction;
    for (size_t t = 0; t < n_keys; t++) {
        if (s[t] == -INFINITY) continue;
        float weight = expf(s[t] - m_new);
        x->l += weight;
        for (size_t d = 0; d < p->head_dim_v; d++)
            x->o[d] += weight * v_t[t * p->head_dim_v + d];
    }
}

/* >>> your part: functions, #include and #define may be added here */
/* x, the unit on entry, = the fold of keys.first .. keys.end - 1 in tiles of Bc keys. */
static void fold_tiles(const struct problem *p, const float *q_i, const float *k,
                       const float *v, const float *bias_i, struct key_range keys,
                       struct aggregate *x)
{
    /* solution begin */
    float s[Bc];
#if TASK == 0
    for (size_t first = keys.first; first < keys.end; first += Bc) {
        size_t n_keys = keys.end - first < Bc ? keys.end - first : Bc;
        score_tile(p, q_i, k, bias_i, first, n_keys, s);
        push_tile(p, x, s, v + first * p->head_dim_v, n_keys);
    }
#else
    if (keys.end <= keys.first) return;
    size_t n_keys = (keys.end - keys.first - 1) % Bc + 1;
    for (size_t first = keys.first; first < keys.end; first += n_keys, n_keys = Bc) {
        score_tile(p, q_i, k, bias_i, first, n_keys, s);
        push_tile(p, x, s, v + first * p->head_dim_v, n_keys);
    }
#endif
    /* skeleton
    // Your code, with calls of score_tile() and push_tile().
    (void)score_tile, (void)push_tile;
    (void)p, (void)q_i, (void)k, (void)v, (void)bias_i, (void)keys, (void)x;
    solution end */
}
/* <<< end of your part */

/* One query.  Returns lse. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i,
                           float *o_i)
{
    struct aggregate x = {.o = o_i};
    unit(p, &x);
    fold_tiles(p, q_i, k, v, bias_i, visible_keys(p, i), &x);
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = x.l == 0 ? 0 : o_i[d] / x.l;
    return x.m + logf(x.l);
}

/* Every query of every head; heads_q / heads_kv query heads share a key-value head. */
static void attention(const struct problem *p, const struct arrays *a)
{
    const float *q = a->q, *k = a->k, *v = a->v;
    float *o = a->o;
    size_t group = p->heads_q / p->heads_kv;
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++) {
        size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / group;
        for (size_t i = 0; i < p->seqlen_q; i++) {
            size_t row = bh * p->seqlen_q + i;
            a->lse[row] = attention_row(p, i, q + row * p->head_dim,
                                        k + kv * p->seqlen_k * p->head_dim,
                                        v + kv * p->seqlen_k * p->head_dim_v,
                                        a->bias ? a->bias + i * p->seqlen_k : NULL,
                                        o + row * p->head_dim_v);
        }
    }
}

static const struct variant exercise = {
    .name = "ragged_tiles",
    .idea = "tiles of keys, one of them short",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .does = {{OP_ATTENTION, attention}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 4,
    .name = "exercises/ragged_tiles",
    .idea = "tiles of keys, one of them short",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
