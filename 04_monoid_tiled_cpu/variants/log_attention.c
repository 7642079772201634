/* log_attention.c: attention with the logarithm of the softmax.
 *
 *     o_i = sum_j (s_ij - lse_i) v_j        over the visible keys
 *
 * The weights are not positive and do not sum to 1, but the fold survives.  With
 *     a = sum_j (s_j - m) v_j,    z = sum_j v_j        (z is what the sources leave out)
 * a new maximum adds (m - m_new) z to a, because every s_j - m becomes
 * (s_j - m) + (m - m_new); at the end o = a - log(l) z.  The notes "Flash Attention",
 * section 1.3; derivation in notes/fusing_reductions.md.
 *
 * A masked key is left out of the sum: its log-weight is -INFINITY, and with it every
 * output would be infinite or NaN.  A row without visible keys gives 0. */
#include "cost.h"
#include "monoid.h"
#define EIGHT_SUMS
#include "score.h"

/* An element (m, l, a, z); a and z (d) are the caller's.  Unit: m = -INFINITY, else 0. */
struct log_aggregate { float m, l; float *a, *z; size_t d; };

static void log_unit(struct log_aggregate *x)
{
    x->m = -INFINITY;
    x->l = 0.0f;
    for (size_t c = 0; c < x->d; c++) x->a[c] = x->z[c] = 0.0f;
}

/* x = x . (one key), whose own a is (s - s) v = 0. */
static void log_push(struct log_aggregate *x, float score, const float *v)
{
    if (score == -INFINITY) return;
    struct se s = se_merge((struct se){x->m, x->l}, se_lift(score));
    float move = x->m == -INFINITY || x->m == s.m ? 0.0f : x->m - s.m;
    float own = score - s.m;
    for (size_t c = 0; c < x->d; c++) {
        x->a[c] += move * x->z[c] + own * v[c];
        x->z[c] += v[c];
    }
    x->m = s.m;
    x->l = s.l;
}

/* x = x . y, with m = max(m_x, m_y):
 *     a = a_x + (m_x - m) z_x + a_y + (m_y - m) z_y,     z = z_x + z_y */
static void log_merge(struct log_aggregate *x, const struct log_aggregate *y)
{
    if (y->m == -INFINITY) return;
    struct se s = se_merge((struct se){x->m, x->l}, (struct se){y->m, y->l});
    float move_x = x->m == -INFINITY || x->m == s.m ? 0.0f : x->m - s.m;
    float move_y = y->m == s.m ? 0.0f : y->m - s.m;
    for (size_t c = 0; c < x->d; c++) {
        x->a[c] += move_x * x->z[c] + (y->a[c] + move_y * y->z[c]);
        x->z[c] += y->z[c];
    }
    x->m = s.m;
    x->l = s.l;
}

#define CHUNK 64 /* keys folded before a merge: shorter sums, smaller errors */

/* One loop over the keys.   h->scratch: z, then a and z of a chunk. */
static void streamed(const struct head *h)
{
    size_t dv = h->head_dim_v;
    float *z = h->scratch;
    for (size_t i = 0; i < h->seqlen_q; i++) {
        struct log_aggregate all = {.a = o_row(h, i), .z = z, .d = dv};
        struct log_aggregate chunk = {.a = z + dv, .z = z + 2 * dv, .d = dv};
        log_unit(&all);
        for (size_t first = 0; first < visible(h, i); first += CHUNK) {
            log_unit(&chunk);
            for (size_t j = first; j < smaller(first + CHUNK, visible(h, i)); j++)
                log_push(&chunk, score(h, i, j), v_row(h, j));
            log_merge(&all, &chunk);
        }
        float log_l = all.l == 0.0f ? 0.0f : logf(all.l);
        for (size_t c = 0; c < dv; c++) all.a[c] -= log_l * z[c];
        h->lse[i] = all.m + logf(all.l);
    }
}

static size_t workspace(const struct problem *p)
{
    return 3 * p->head_dim_v * sizeof(float);
}

const struct variant log_attention_streamed = {
    .name = "log_streamed", .idea = "one loop; sum of v kept",
    ASIDE, .workspace = workspace, .cost = fold_cost,
    .by_head = {{OP_LOGSOFTMAX_ATTENTION, streamed}},
};
