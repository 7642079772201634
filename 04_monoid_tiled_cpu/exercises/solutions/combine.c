/* combine.c: exercise of stage 4, 20 points: answers of parts, combined.
 *
 *     m = max_t m_t,   w_t = l_t exp(m_t - m)
 *     o_i = sum_t w_t o_t / sum_t w_t,   lse = m + log(sum_t w_t)
 *
 * The keys of a query are cut into PARTS parts (split-KV); each part, on whatever thread,
 * is attention by itself: o_t is already divided by its own l_t.
 * Task: fill combine().  Always in the order of the parts, so that the threads that
 * computed them do not change a bit.
 * May be assumed: at least one part.  A part may have seen no key: m_t = -INFINITY,
 * l_t = 0, o_t = 0.  If none has, o_i = 0 and lse = -INFINITY.  A NaN in l_t makes all of
 * o_i NaN, a NaN in a column of o_t that column.
 *
 * Half of the points: cases ascending, shift_200, low, mask_first, mask_row.
 * Right or wrong:  make exercise 4 EX=combine */
/* forms of the task
 *     w_t = l_t exp(m_t - m) | w_t = exp(m_t - m)
 *     sum_t w_t,             | sum_t w_t l_t,
 *     log(sum_t w_t)         | log(sum_t w_t l_t)
 *     is already divided by its own l_t. | is a sum, not divided by its l_t.
 *     normalised, with its m and l. | not divided by l, with its m and l.
 *     of a query, normalised.  | of a query, not normalised.
 *     normalised parts         | parts
 *     m ? parts[t].l : parts[t].l * expf( | m ? 1 : expf(
 *     l += weight;             | l += weight * parts[t].l; */
#include "harness.h"

enum { PARTS = 4 /* parts of the keys; one of 3, 4, 7 */ };

/* The answer of one part: o (head_dim_v) normalised, with its m and l. */
struct part { float m, l; float *o; };

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

/* Attention over keys first .. last - 1 of a query, normalised. */
static void attend_part(const struct problem *p, const float *q_i, const float *k,
                        const float *v, const float *bias_i, size_t first, size_t last,
                        struct part *x)
{
    x->m = -INFINITY;
    x->l = 0;
    for (size_t d = 0; d < p->head_dim_v; d++) x->o[d] = 0;
    for (size_t j = first; j < last; j++) {
        const float *v_j = v + j * p->head_dim_v;
        float s = score(p, q_i, k + j * p->head_dim, bias_i, j);
        if (s == -INFINITY) continue;
        float m_new = s > x->m ? s : x->m;
        float correction = m_new == x->m ? 1 : expf(x->m - m_new);
        float weight = expf(s - m_new);
        x->l = x->l * correction + weight;
        for (size_t d = 0; d < p->head_dim_v; d++)
            x->o[d] = x->o[d] * correction + weight * v_j[d];
        x->m = m_new;
    }
#if TASK == 0
    for (size_t d = 0; d < p->head_dim_v; d++) x->o[d] = x->l == 0 ? 0 : x->o[d] / x->l;
#endif
}

/* >>> your part: functions, #include and #define may be added here */
/* o_i (head_dim_v) = the attention over the keys of all parts.  Returns lse. */
static float combine(const struct problem *p, const struct part *parts, size_t n_parts,
                     float *o_i)
{
    /* solution begin */
    float m = -INFINITY, l = 0;
    for (size_t t = 0; t < n_parts; t++) m = parts[t].m > m ? parts[t].m : m;
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t t = 0; t < n_parts; t++) {
        if (parts[t].l == 0) continue;
        float weight = parts[t].m == m ? parts[t].l : parts[t].l * expf(parts[t].m - m);
        l += weight;
        for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] += weight * parts[t].o[d];
    }
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = l == 0 ? 0 : o_i[d] / l;
    return m + logf(l);
    /* skeleton
    // Your code.
    (void)p, (void)parts, (void)n_parts, (void)o_i;
    return 0;
    solution end */
}
/* <<< end of your part */

/* One query, its parts on several threads.  Returns lse.
 *   scratch (PARTS, head_dim_v)  o of the parts */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i,
                           float *o_i, float *scratch)
{
    struct part parts[PARTS];
    struct key_range keys = visible_keys(p, i);
    size_t first = keys.first, n = keys.end - keys.first;
#pragma omp parallel for if (n * p->head_dim > 1 << 16)
    for (size_t t = 0; t < PARTS; t++) {
        parts[t].o = scratch + t * p->head_dim_v;
        attend_part(p, q_i, k, v, bias_i, first + n * t / PARTS,
                    first + n * (t + 1) / PARTS, &parts[t]);
    }
    return combine(p, parts, PARTS, o_i);
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
                                        o + row * p->head_dim_v, a->workspace);
        }
    }
}

static size_t workspace(const struct problem *p)
{
    return PARTS * p->head_dim_v * sizeof(float);
}

static const struct variant exercise = {
    .name = "combine",
    .idea = "split-KV: normalised parts, combined",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .does = {{OP_ATTENTION, attention}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 4,
    .name = "exercises/combine",
    .idea = "split-KV: normalised parts, combined",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
