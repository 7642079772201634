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
 * Time: 40 minutes.
 * Hint: the number of keys of a tile is Bc, or what is left.
 * Hint: n = 0 gives no tile.  For n % Bc == 0 no tile is short.
 * Right or wrong:  make exercise 4 EX=ragged_tiles */
#include "course/exercise.h"
#include "course/score.h"

enum { Bc = 32 /* keys of a tile; one of 16, 24, 32, 48 */ };

/* What a set of keys stands for: m the largest of their scores, l = sum exp(s - m),
 * o (head_dim_v) = sum exp(s - m) v.  Without keys: m = -INFINITY, l = 0, o = 0.
 * last: how many keys the last tile had, 0 before the first; taken: how many all tiles had. */
struct aggregate { float m, l; float *o; size_t last, taken; };

/* s (n_keys) = the scores of query i and keys first .. first + n_keys - 1; n_keys <= Bc.  A key that
 * it does not see has the score NaN. */
static void score_tile(const struct head *h, size_t i, size_t first, size_t n_keys, float *s)
{
    for (size_t t = 0; t < n_keys; t++)
        s[t] = first + t < visible(h, i) ? score(h, i, first + t) : NAN;
}

/* Takes the tile of these keys into x: one maximum and one correction for all of them.
#if TASK == 0
 * After a short tile none may follow: then l becomes NaN.
#else
 * Only the first tile may be short: after another short one l is NaN.
#endif
 *   s (n_keys)  scores; -INFINITY means masked */
static void push_tile(const struct head *h, struct aggregate *x, const float *s, size_t first,
                      size_t n_keys)
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
    x->last = n_keys, x->taken += n_keys;
    for (size_t d = 0; d < h->head_dim_v; d++) x->o[d] *= correction;
    for (size_t t = 0; t < n_keys; t++) {
        if (s[t] == -INFINITY) continue;
        float weight = expf(s[t] - m_new);
        x->l += weight;
        for (size_t d = 0; d < h->head_dim_v; d++) x->o[d] += weight * v_row(h, first + t)[d];
    }
}

/* >>> your part: functions, #include and #define may be added here */
/* x, empty on entry, = keys 0 .. n - 1 of query i in tiles of Bc keys. */
static void fold_tiles(const struct head *h, size_t i, size_t n, struct aggregate *x)
{
    /* solution begin */
    float s[Bc];
#if TASK == 0
    for (size_t first = 0; first < n; first += Bc) {
        size_t n_keys = n - first < Bc ? n - first : Bc;
        score_tile(h, i, first, n_keys, s);
        push_tile(h, x, s, first, n_keys);
    }
#else
    if (n == 0) return;
    size_t n_keys = (n - 1) % Bc + 1;
    for (size_t first = 0; first < n; first += n_keys, n_keys = Bc) {
        score_tile(h, i, first, n_keys, s);
        push_tile(h, x, s, first, n_keys);
    }
#endif
    /* skeleton
    // Your code, with calls of score_tile() and push_tile().
    solution end */
}
/* <<< end of your part */

/* One query.  Returns lse. */
static float attention_row(const struct head *h, size_t i, float *o_i)
{
    struct aggregate x = {.m = -INFINITY, .o = o_i};
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    fold_tiles(h, i, visible(h, i), &x);
    if (x.taken != visible(h, i)) x.l = NAN; /* not all keys, or not by push_tile() */
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = x.l == 0 ? 0 : o_i[d] / x.l;
    return x.m + logf(x.l);
}

static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, o_row(h, i));
}

PROGRAM(4, ragged_tiles, "tiles of keys, one of them short",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}})
