/* test_compare_algorithms.c: the rule of acceptance takes every correct algorithm, whatever its
 * order of operations, and whatever it rounds to 16 bits. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "problem/dtype.h"
#include "problem/feature.h"
#include "problem/half.h"
#include "problem/xcalloc.h"
#include "verification/cases.h"
#include "verification/check_variant.h"
#include "verification/compare.h"

/* Attention of one query on n keys, scores near -200, its dot products in 16 lanes whose
 * sums are added by halves: an order that none of the harness's own computations has. */
static struct verdict in_lanes(size_t n, uint64_t seed)
{
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = 1, .seqlen_k = n, .head_dim = 64, .head_dim_v = 8,
                        .scale = 0.125f};
    struct random g = {seed};
    float *q = oracle_normals(&g, array_count(&p, ARRAY_Q), 1), *k = oracle_normals(&g, array_count(&p, ARRAY_K), 1);
    float *v = oracle_normals(&g, array_count(&p, ARRAY_V), 1), s[8], m = -INFINITY, l = 0;
    q[0] = 4;
    for (size_t j = 0; j < n; j++) k[64 * j] = -400;
    struct arrays a = {.q = q, .k = k, .v = v};
    struct standard *standard = standard_new(&p, &a);
    struct outputs out = outputs_new(&p);
    float *o = out.array[ARRAY_O].data, *lse = out.array[ARRAY_LSE].data;
    for (size_t j = 0; j < n; j++) {
        float lane[16] = {0};
        for (size_t t = 0; t < 64; t++)
            lane[t % 16] = fmaf(q[t], k[64 * j + t], lane[t % 16]);
        for (size_t half = 8; half; half /= 2)
            for (size_t i = 0; i < half; i++) lane[i] += lane[i + half];
        s[j] = p.scale * lane[0];
        m = s[j] > m ? s[j] : m;
    }
    for (size_t j = 0; j < n; j++) l += s[j] = expf(s[j] - m);
    for (size_t c = 0; c < 8; c++) {
        float sum = 0;
        for (size_t j = 0; j < n; j++) sum = fmaf(s[j], v[8 * j + c], sum);
        o[c] = sum / l;
    }
    *lse = m + logf(l);
    struct verdict verdict = compare(standard, &out);
    outputs_free(&out);
    standard_free(standard);
    free(q), free(k), free(v);
    return verdict;
}

Test(compare, a_lucky_order_of_the_harness_rejects_nobody)
{
    size_t rejected = 0, n_problems = 4000;
    for (uint64_t seed = 1; seed <= n_problems; seed++)
        rejected += !in_lanes(2 + seed % 4, seed).ok;
    cr_expect(rejected == 0, "%zu of %zu", rejected, n_problems);
}

#define KNOWN_FEATURES (BASIC_FEATURES | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS)

/* The score of a scaled product x. */
static float score_of(const struct problem *p, float x, float bias)
{
    return (p->softcap > 0 ? p->softcap * tanhf(x / p->softcap) : x) + bias;
}

static float sink_of(const struct problem *p, const struct arrays *a, size_t head)
{
    return p->has_sinks ? a->sinks[head % p->heads_q] : -INFINITY;
}

/* Element by element, with the state normalised after every key, in reverse order: as
 * many roundings as any stage has. */
static void attention_stepwise(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim, dv = p->head_dim_v, group = p->heads_q / p->heads_kv;
    const float *q = a->q, *k = a->k, *v = a->v;
    for (size_t row = 0; row < p->batch * p->heads_q * p->seqlen_q; row++) {
        size_t i = row % p->seqlen_q, head = row / p->seqlen_q;
        size_t kv = head / p->heads_q * p->heads_kv + head % p->heads_q / group;
        float m = sink_of(p, a, head), l = m > -INFINITY, *o_i = (float *)a->o + row * dv;
        memset(o_i, 0, dv * sizeof *o_i);
        struct key_range keys = visible_keys(p, i);
        for (size_t j = keys.end; j-- > keys.first;) {
            float bias = p->has_bias ? a->bias[i * p->seqlen_k + j] : 0, s = 0;
            const float *k_j = k + (kv * p->seqlen_k + j) * d;
            const float *v_j = v + (kv * p->seqlen_k + j) * dv;
            if (bias == -INFINITY) continue;
            for (size_t t = 0; t < d; t++) s += q[row * d + t] * k_j[t];
            s = score_of(p, s * p->scale, bias);
            if (s == -INFINITY) continue;
            float m_new = s > m ? s : m, old = m == m_new ? l : l * expf(m - m_new);
            float w = expf(s - m_new);
            l = old + w;
            for (size_t c = 0; c < dv; c++) o_i[c] = o_i[c] * (old / l) + w / l * v_j[c];
            m = m_new;
        }
        a->lse[row] = m + logf(l);
    }
}

static void softmax_stepwise(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        float m = -INFINITY, l = 0, *y = (float *)a->y + i * p->cols;
        for (size_t j = p->cols; j-- > 0;) {
            if (x[j] == -INFINITY) continue;
            float m_new = x[j] > m ? x[j] : m;
            l = (m == m_new ? l : l * expf(m - m_new)) + expf(x[j] - m_new);
            m = m_new;
        }
        for (size_t j = 0; j < p->cols; j++)
            y[j] = p->op == OP_LOGSOFTMAX
                       ? x[j] == -INFINITY && l == l ? -INFINITY : x[j] - m - logf(l)
                   : l == 0 ? 0 : expf(x[j] - m) / l;
    }
}

static const struct variant stepwise = {
    .name = "stepwise", .types = TYPE(F32), .supports = KNOWN_FEATURES,
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1,
    .does = {{OP_SOFTMAX, softmax_stepwise}, {OP_LOGSOFTMAX, softmax_stepwise},
             {OP_ATTENTION, attention_stepwise}},
};

/* A kernel that rounds p, un-normalised, and o to 16 bits, as tiled kernels do. */
static void attention_half(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim, dv = p->head_dim_v, n = p->seqlen_k;
    float *q = widen(a->q, p->dtype, p->batch * p->heads_q * p->seqlen_q * d);
    float *k = widen(a->k, p->dtype, p->batch * p->heads_kv * n * d);
    float *v = widen(a->v, p->dtype, p->batch * p->heads_kv * n * dv);
    uint16_t *o = a->o;
    for (size_t row = 0; row < p->batch * p->heads_q * p->seqlen_q; row++) {
        size_t i = row % p->seqlen_q, head = row / p->seqlen_q;
        size_t kv = head / p->heads_q * p->heads_kv +
                    head % p->heads_q / (p->heads_q / p->heads_kv);
        float m = sink_of(p, a, head), l = 0, sink = m;
        float *acc = xcalloc(dv, sizeof *acc), *s = xcalloc(n, sizeof *s);
        struct key_range keys = visible_keys(p, i);
        for (size_t j = keys.first; j < keys.end; j++) {
            float bias = p->has_bias ? a->bias[i * n + j] : 0;
            for (size_t t = 0; t < d; t++)
                s[j] = fmaf(q[row * d + t], k[(kv * n + j) * d + t], s[j]);
            s[j] = bias == -INFINITY ? bias : score_of(p, s[j] * p->scale, bias);
            if (s[j] > m) m = s[j];
        }
        if (sink > -INFINITY) l = expf(sink - m);
        for (size_t j = keys.first; j < keys.end; j++) {
            if (s[j] == -INFINITY) continue;
            float w = expf(s[j] - m);
            l += w;
            w = p->dtype == F16 ? half_to_float(float_to_half(w))
                                : bfloat_to_float(float_to_bfloat(w));
            for (size_t c = 0; c < dv; c++)
                acc[c] = fmaf(w, v[(kv * n + j) * dv + c], acc[c]);
        }
        for (size_t c = 0; c < dv; c++) {
            float x = l == 0 ? 0 : acc[c] / l;
            o[row * dv + c] = p->dtype == F16 ? float_to_half(x) : float_to_bfloat(x);
        }
        a->lse[row] = m + logf(l);
        free(acc), free(s);
    }
    free(q), free(k), free(v);
}

static const struct variant half_kernel = {
    .name = "half",
    .types = TYPE(F16) | TYPE(BF16),
    .supports = KNOWN_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .does = {{OP_ATTENTION, attention_half}},
};

/* Runs v over the suite in one type with several seeds; returns the worst ratio. */
static double over_the_suite(const struct variant *v, enum dtype dtype, int seeds)
{
    size_t n;
    double worst = 0;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++) {
        const struct problem *p = &c[i].problem;
        if (!variant_does(v, p->op) || (dtype != F32 && !c[i].halves)) continue;
        if (c[i].only_gpu || p->seqlen_q * p->seqlen_k > 50000) continue;
        if (problem_features(p) & ~v->supports) continue;
        if (c[i].recipe >= SINK_INF) continue; /* these algorithms know no sink in an empty row */
        for (int s = 0; s < seeds; s++) {
            struct prepared prepared =
                prepare(&c[i], dtype, test_case_seed(&c[i]) + (uint64_t)s);
            const char *could_not;
            struct verdict r = check_variant(v, &prepared, 0, &could_not);
            cr_expect(r.ok,
                      "%s on %s, seed + %d: %s %s: got %g, want %g, error %g, allowed %g",
                      v->name, c[i].name, s, r.array, r.reason, r.got, r.want, r.err,
                      r.allowed);
            worst = fmax(worst, r.worst);
            prepared_free(&prepared);
        }
    }
    return worst;
}

Test(compare, accepts_the_most_rounding_of_correct_algorithms)
{
    double worst = over_the_suite(&stepwise, F32, 2);
    cr_expect(worst > 0.1 && worst <= 1, "%.3g", worst);
    cr_log_info("stepwise: worst error / allowed %.2f", worst);
}

Test(compare, accepts_kernels_that_round_p_to_16_bits)
{
    double f16 = over_the_suite(&half_kernel, F16, 1),
           bf16 = over_the_suite(&half_kernel, BF16, 1);
    cr_expect(f16 > 0.1 && f16 <= 1 && bf16 > 0.1 && bf16 <= 1, "%.3g %.3g", f16, bf16);
    cr_log_info("16 bits: worst error / allowed %.2f (f16) %.2f (bf16)", f16, bf16);
}

/* A kernel that reads a 16-bit tile one key short is caught in 16 bits too. */
Test(compare, catches_a_dropped_key_in_16_bits)
{
    const struct test_case *c = test_case_find("attention-outlier@299-33x300-d64");
    cr_assert(c);
    struct prepared p = prepare(c, BF16, 1);
    struct problem shorter = p.inputs->problem;
    struct outputs out = outputs_new(&p.inputs->problem);
    struct arrays a = p.inputs->arrays;
    outputs_bind(&out, &a);
    shorter.seqlen_k--; /* one head: the layout stays the same */
    attention_half(&shorter, &a);
    cr_expect(!compare(p.standard, &out).ok);
    outputs_free(&out);
    prepared_free(&p);
}
