/* other_forms.c: stage 3's attention in two other forms.
 *
 *     two loops    m, l over the scores; then o = sum_j (exp(s_j - m) / l) v_j
 *     normalised   p_j = p_{j-1} (l_{j-1} / l_j) e^{m_{j-1} - m_j} + (e^{s_j - m_j} / l_j) v_j
 *
 * The second is the streaming dot product of "How Flash Attention works" and of Jim Wang's
 * equation 22: after every key p is the attention of the keys so far.  stage.c keeps o = l p
 * instead and divides once at the end (FlashAttention-2, Dao 2023, section 3.1): two divisions
 * and two roundings per key fewer.
 *
 * The exponents must be subtracted before exp is taken.  e^{-m_j} e^{s_j}, as it is often
 * printed, is infinite from a score of 89 on and 0 * inf from 104 on (notes/errata.md). */
#include "harness.h"
#include "score.h"

/* Attention of one query in two loops over its keys; each score is computed twice.  Loop 2 adds
 * whole rows of v, scaled: the two inner loops of the product P V exchanged.
 *   o (head_dim_v)
 * Returns lse.  Reads K twice and V once. */
static float two_loops_row(const struct head *h, size_t i, float *o)
{
    /* loop 1: maximum and denominator */
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) continue;
        float m_new = s > m ? s : m;
        l = l * expf(m - m_new) + expf(s - m_new);
        m = m_new;
    }

    /* loop 2: weighted sum */
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */
        const float p = expf(s - m) / l, *v_j = v_row(h, j);
        for (size_t d = 0; d < h->head_dim_v; d++) o[d] += p * v_j[d];
    }
    return m + logf(l);
}

/* Attention of one query in one loop, normalised after every key.
 *   o (head_dim_v)
 * Returns lse.  Reads K and V once. */
static float normalised_row(const struct head *h, size_t i, float *o)
{
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) continue;
        float m_new = s > m ? s : m, correction = expf(m - m_new), weight = expf(s - m_new);
        float l_new = l * correction + weight;
        float keep = l * correction / l_new, add = weight / l_new; /* keep is 0 at the first key */
        const float *v_j = v_row(h, j);
        for (size_t d = 0; d < h->head_dim_v; d++) o[d] = o[d] * keep + add * v_j[d];
        m = m_new;
        l = l_new;
    }
    return m + logf(l);
}

static void two_loops_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = two_loops_row(h, i, o_row(h, i));
}

static void normalised_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = normalised_row(h, i, o_row(h, i));
}

static struct cost cost_two_loops(const struct problem *p) { return cost_of_scores(p, 0, 3); }
static struct cost cost_normalised(const struct problem *p) { return cost_of_scores(p, 0, 2); }

const struct variant two_loops = {
    .name = "two_loops", .idea = "m and l first; every score twice",
    .group = IN_ASIDES, SAFE_ON_CPU, .cost = cost_two_loops,
    .by_head = {{OP_ATTENTION, two_loops_head}},
};

const struct variant online_normalised = {
    .name = "normalised", .idea = "one loop, a division at every key",
    .group = IN_ASIDES, SAFE_ON_CPU, .cost = cost_normalised,
    .by_head = {{OP_ATTENTION, normalised_head}},
};
