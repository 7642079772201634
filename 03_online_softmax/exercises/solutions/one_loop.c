/* one_loop.c: exercise of stage 3, 20 points: an answer after every key.
 *
 *     m_new = max(m, s_j),   l_old = l * exp(m - m_new),   w = exp(s_j - m_new)
 *     l = l_old + w,         o = (l_old o + w v_j) / l
 *
 * The lesson divides once, at the end.  Here o is the attention over the keys so far, after each
 * of them: what one needs where keys arrive one at a time.
 * Task: fill attention_row().  No score may be stored.  score() is given.
 * May be assumed: nothing about the scores.  Query i sees the first visible(h, i) keys; of those
 * one whose score() is -INFINITY takes no part, whatever its row of v holds.  A query that sees
 * none gives o_i = 0 and lse = -INFINITY.  A visible NaN must reach the output.
#if TASK == 1
 * After each key that took part, call arrived(h, o_i): the harness then has the answer so far.
#endif
 *
 * Half of the points: cases ascending, shift_200, low, nan_v, mask_row, nan_q.
 * Time: 75 minutes.
 * Hint: begin with the lesson's loop; which two lines change when o is always divided by l?
 * Hint: compute l before o, and keep l_old: both weights are divided by the new l.
 * Hint: where nothing was visible so far l is 0; the first key that is makes it 1.
 * Right or wrong:  make exercise 3 EX=one_loop */
#include "harness.h"
#include "stage.h"

/* The score of query i and key j; -INFINITY where the bias masks the key. */
static float score(const struct head *h, size_t i, size_t j)
{
    const float *q_i = q_row(h, i), *k_j = k_row(h, j), bias = bias_of(h, i, j);
    if (bias == -INFINITY) return -INFINITY;
    float dot = 0;
    for (size_t d = 0; d < h->head_dim; d++) dot += q_i[d] * k_j[d];
    return h->scale * dot + bias;
}

#if TASK == 1
static size_t n_arrived; /* of the row that is being computed */
static void arrived(const struct head *h, const float *o_i) { n_arrived += o_i >= h->o; }

#endif
/* >>> your part: functions, #include and #define may be added here */
/* One query against all its keys.   o_i (head_dim_v)   Returns lse. */
static float attention_row(const struct head *h, size_t i, float *o_i)
{
    /* solution begin */
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) continue;
        float m_new = s > m ? s : m, w = expf(s - m_new);
        float l_old = l * expf(m - m_new);
        const float *v_j = v_row(h, j);
        l = l_old + w;
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = l_old / l * o_i[d] + w / l * v_j[d];
        m = m_new;
#if TASK == 1
        arrived(h, o_i);
#endif
    }
    return m + logf(l);
    /* skeleton
    // Your code, with calls of score(h, i, j).
    (void)score, (void)i;
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    return 0;
    solution end */
}
/* <<< end of your part */

static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) {
#if TASK == 1
        size_t seen = 0;
        for (size_t j = 0; j < visible(h, i); j++) seen += score(h, i, j) != -INFINITY;
        n_arrived = 0;
        h->lse[i] = attention_row(h, i, o_row(h, i));
        if (n_arrived != seen) h->lse[i] = 0; /* an answer is missing */
#else
        h->lse[i] = attention_row(h, i, o_row(h, i));
#endif
    }
}

static const struct variant exercise = {
    .name = "one_loop",
    .idea = "attention in one loop, divided after each key",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .by_head = {{OP_ATTENTION, attention_head}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 3,
    .name = "exercises/one_loop",
    .idea = "attention in one loop, divided after each key",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
