/* merge.c: exercise of stage 4, 15 points: the operation of the monoid.
 *
#if TASK == 0
 *     (o1, l1, m1) . (o2, l2, m2) = (f1 o1 + f2 o2, f1 l1 + f2 l2, m)
 *     m = max(m1, m2),   f1 = exp(m1 - m),   f2 = exp(m2 - m)
#elif TASK == 1
 *     m = max(m1, m2),   f1 = exp(m1 - m),   f2 = exp(m2 - m),   l = f1 l1 + f2 l2
 *     o = (f1 l1 o1 + f2 l2 o2) / l      o1, o2 and o are already divided by their l
#endif
 *
 * Task: fill merge().  The chunks of a row are folded one by one and merged by it.
 * May be assumed: x and y are different elements.  Either or both may be the unit, since
 * whole chunks can be masked: m = -INFINITY, l = 0, o = 0.  A NaN in l stays, also when
 * its m is -INFINITY; a NaN in a column of o stays in that column.
 *
 * Half of the points: cases ascending, shift_200, low, mask_first, mask_row.
 * Right or wrong:  make exercise 4 EX=merge */
#include "harness.h"

enum { CHUNK = 8 /* keys folded alone, then merged; one of 5, 8, 16 */ };

#if TASK == 0
/* What a set of keys stands for: m the largest of their scores, l = sum exp(s - m),
 * o (head_dim_v) = sum exp(s - m) v.  Without keys: m = -INFINITY, l = 0, o = 0. */
#else
/* What a set of keys stands for: m the largest of their scores, l = sum exp(s - m),
 * o (head_dim_v) = sum exp(s - m) v / l.  Without keys: m = -INFINITY, l = 0, o = 0. */
#endif
struct aggregate { float m, l; float *o; };

static void unit(const struct problem *p, struct aggregate *x)
{
    x->m = -INFINITY;
    x->l = 0;
    for (size_t d = 0; d < p->head_dim_v; d++) x->o[d] = 0;
}

/* x = x with one more key, of score s and value v_j (head_dim_v): the step of stage 3. */
static void push(const struct problem *p, struct aggregate *x, float s, const float *v_j)
{
    if (s == -INFINITY) return;
    float m_new = s > x->m ? s : x->m;
    float correction = m_new == x->m ? 1 : expf(x->m - m_new), weight = expf(s - m_new);
#if TASK == 0
    x->l = x->l * correction + weight;
    for (size_t d = 0; d < p->head_dim_v; d++)
        x->o[d] = x->o[d] * correction + weight * v_j[d];
#else
    float before = x->l * correction;
    x->l = before + weight;
    for (size_t d = 0; d < p->head_dim_v; d++)
        x->o[d] = (x->o[d] * before + weight * v_j[d]) / x->l;
#endif
    x->m = m_new;
}

/* >>> your part: functions, #include and #define may be added here */
/* x = x merged with y: the aggregate of the keys of both. */
static void merge(const struct problem *p, struct aggregate *x, const struct aggregate *y)
{
    /* solution begin */
    if (y->l == 0) return; /* the unit; by its m, a NaN in l would be lost */
    float m_new = x->m > y->m ? x->m : y->m;
    float f_x = x->m == m_new ? 1 : expf(x->m - m_new);
    float f_y = y->m == m_new ? 1 : expf(y->m - m_new);
#if TASK == 0
    x->l = x->l * f_x + y->l * f_y;
    for (size_t d = 0; d < p->head_dim_v; d++) x->o[d] = x->o[d] * f_x + y->o[d] * f_y;
#else
    float l_x = x->l * f_x, l_y = y->l * f_y;
    x->l = l_x + l_y;
    for (size_t d = 0; d < p->head_dim_v; d++)
        x->o[d] = (x->o[d] * l_x + y->o[d] * l_y) / x->l;
#endif
    x->m = m_new;
    /* skeleton
    // Your code.
    (void)p, (void)x, (void)y;
    solution end */
}
/* <<< end of your part */

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

/* One query: its keys in chunks.  Returns lse.   scratch (head_dim_v): o of a chunk */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i,
                           float *o_i, float *scratch)
{
    struct aggregate all = {.o = o_i}, chunk = {.o = scratch};
    struct key_range keys = visible_keys(p, i);
    unit(p, &all);
    for (size_t first = keys.first; first < keys.end; first += CHUNK) {
        unit(p, &chunk);
        for (size_t j = first; j < keys.end && j < first + CHUNK; j++)
            push(p, &chunk, score(p, q_i, k + j * p->head_dim, bias_i, j),
                 v + j * p->head_dim_v);
        merge(p, &all, &chunk);
    }
#if TASK == 0
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = all.l == 0 ? 0 : o_i[d] / all.l;
#endif
    return all.m + logf(all.l);
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
    return p->head_dim_v * sizeof(float);
}

static const struct variant exercise = {
    .name = "merge",
    .idea = "chunks folded alone and merged",
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
    .name = "exercises/merge",
    .idea = "chunks folded alone and merged",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
