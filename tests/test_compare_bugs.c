/* test_compare_bugs.c: the rule of acceptance catches the bugs that real kernels had: a key
 * dropped, a tile not rescaled, a padding key with score 0, a scale slightly off. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "verification/compare.h"

enum bug {
    NONE,
    LAST_KEY_DROPPED,
    KEY_TWICE,
    TILE_NOT_RESCALED,
    PADDING_AT_ZERO,
    SCALE_OFF,
    CAUSAL_OFF_BY_ONE,
    TILES_SWAPPED,
    LSE_BASE_TWO
};

/* Tiled attention of one head with one of the bugs.  Bc = 64. */
static void tiled(const struct problem *p, const struct arrays *a, float *o, float *lse,
                  enum bug bug)
{
    enum { Bc = 64 };
    size_t d = p->head_dim, dv = p->head_dim_v, n = p->seqlen_k;
    const float *q = a->q, *k = a->k, *v = a->v;
    float scale = p->scale * (bug == SCALE_OFF ? 1 + 1e-5f : 1);
    for (size_t i = 0; i < p->seqlen_q; i++) {
        float m = -INFINITY, l = 0, *o_i = o + i * dv;
        size_t seen = visible_keys(p, i).end;
        if (bug == LAST_KEY_DROPPED) seen--;
        if (bug == CAUSAL_OFF_BY_ONE && seen > 1) seen--;
        memset(o_i, 0, dv * sizeof *o_i);
        for (size_t j0 = 0; j0 < seen; j0 += Bc) {
            float s[Bc], m_new = m;
            for (size_t b = 0; b < Bc; b++) {
                size_t j = j0 + b;
                s[b] = bug == PADDING_AT_ZERO && j == n ? 0 : -INFINITY;
                if (j < seen) {
                    s[b] = 0;
                    for (size_t t = 0; t < d; t++)
                        s[b] = fmaf(q[i * d + t], k[j * d + t], s[b]);
                    s[b] *= scale;
                }
                if (s[b] > m_new) m_new = s[b];
            }
            float correction = m == -INFINITY ? 0 : expf(m - m_new);
            l *= correction;
            for (size_t c = 0; c < dv; c++)
                if (bug != TILE_NOT_RESCALED || j0 != Bc) o_i[c] *= correction;
            for (size_t b = 0; b < Bc; b++) {
                float w = expf(s[b] - m_new);
                size_t j = bug == TILES_SWAPPED && j0 + Bc <= n ? j0 + (b ^ 1) : j0 + b;
                if (bug == KEY_TWICE && j == 0) w *= 2;
                l += w;
                for (size_t c = 0; c < dv && j < n; c++)
                    o_i[c] = fmaf(w, v[j * dv + c], o_i[c]);
            }
            m = m_new;
        }
        for (size_t c = 0; c < dv; c++) o_i[c] /= l;
        lse[i] = m + (bug == LSE_BASE_TWO ? log2f(l) : logf(l));
    }
}

/* err / allowed of a bug on 32 queries and n keys, d = 64; above 1 is caught. */
static struct verdict with_bug(enum bug bug, size_t n, float shift, uint64_t seed)
{
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = 32, .seqlen_k = n, .head_dim = 64, .head_dim_v = 64,
                        .scale = 0.125f, .causal = bug == CAUSAL_OFF_BY_ONE};
    struct random g = {seed};
    size_t n_q = array_count(&p, ARRAY_Q), n_k = array_count(&p, ARRAY_K);
    float *q = oracle_normals(&g, n_q, 1), *k = oracle_normals(&g, n_k, 1);
    float *v = oracle_normals(&g, n_k, 1);
    for (size_t i = 0; shift != 0 && i < n_q; i += 64) q[i] = 4;
    for (size_t i = 0; shift != 0 && i < n_k; i += 64) k[i] = shift * 2;
    struct arrays a = {.q = q, .k = k, .v = v};
    struct standard *s = standard_new(&p, &a);
    struct outputs out = outputs_new(&p);
    tiled(&p, &a, out.array[ARRAY_O].data, out.array[ARRAY_LSE].data, bug);
    struct verdict verdict = compare(s, &out);
    outputs_free(&out);
    standard_free(s);
    free(q), free(k), free(v);
    return verdict;
}

Test(compare, accepts_a_correct_tiled_kernel)
{
    static const size_t n[] = {1, 2, 63, 64, 65, 128, 512, 2048};
    static const float shift[] = {0, -20, -200};
    double worst = 0;
    for (size_t i = 0; i < 8; i++)
        for (int s = 0; s < 3; s++)
            for (uint64_t seed = 0; seed < (n[i] > 500 ? 2 : 12); seed++) {
                struct verdict v = with_bug(NONE, n[i], shift[s], seed);
                cr_expect(v.ok, "%zu keys, shift %g, seed %llu: %s, %.3g of the allowed",
                          n[i], shift[s], (unsigned long long)seed, v.reason, v.worst);
                worst = fmax(worst, v.worst);
            }
    cr_log_info("worst error / allowed of a correct kernel: %.2f", worst);
}

Test(compare, catches_planted_bugs)
{
    static const struct {
        enum bug bug;
        const char *name;
        float shift;
        size_t most;
    } bugs[] = {
        {LAST_KEY_DROPPED, "last key dropped", 0, 8192},
        {KEY_TWICE, "first key counted twice", 0, 8192},
        {TILE_NOT_RESCALED, "o not rescaled at one tile", 0, 8192},
        {PADDING_AT_ZERO, "padding key left at score 0", 0, 2048},
        {PADDING_AT_ZERO, "padding key at score 0, scores near -20", -20, 8192},
        {SCALE_OFF, "scale off by 1e-5", 0, 128}, /* beyond, storing s errs as much */
        {CAUSAL_OFF_BY_ONE, "causal mask off by one", 0, 8192},
        {TILES_SWAPPED, "values of two keys swapped", 0, 8192},
        {LSE_BASE_TWO, "lse with a logarithm to base 2", 0, 8192},
    };
    static const size_t n[] = {127, 511, 2047, 8191};
    for (size_t b = 0; b < sizeof bugs / sizeof *bugs; b++)
        for (size_t i = 0; i < 4 && n[i] <= bugs[b].most; i++) {
            struct verdict v = with_bug(bugs[b].bug, n[i], bugs[b].shift, 7);
            cr_expect(!v.ok, "%s, %zu keys: accepted, %.3g of the allowed", bugs[b].name,
                      n[i], v.worst);
        }
}
