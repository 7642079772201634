/* test_compare.c: the rule of acceptance rejects what it must and nothing else.
 *
 * The planted bugs are those that real kernels had: a key dropped, a tile not rescaled, a
 * padding key with score 0, a scale slightly off. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "verification/cases.h"
#include "verification/check_variant.h"
#include "verification/compare.h"
#include "problem/half.h"
#include "problem/feature.h"
#include "problem/xcalloc.h"
#include "oracle.h"
#include "verification/reference.h"
#include "verification/yardstick.h"

/* ---- outputs ---- */

static const struct problem small = {
    .op = OP_ATTENTION, .batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 3,
    .seqlen_k = 5, .head_dim = 4, .head_dim_v = 2, .scale = 0.5f};

/* The problem `small` with random inputs, its standard, and outputs that are right. */
struct fixture {
    float *q, *k, *v;
    struct arrays a;
    struct standard *s;
    struct outputs out;
};

static struct fixture fixture_new(void)
{
    struct random g = {1};
    struct sizes n = problem_sizes(&small);
    struct fixture f = {oracle_normals(&g, n.q, 1), oracle_normals(&g, n.k, 1),
                        oracle_normals(&g, n.v, 1), {0}, NULL, outputs_new(&small)};
    f.a = (struct arrays){.q = f.q, .k = f.k, .v = f.v};
    f.s = standard_new(&small, &f.a);
    for (size_t i = 0; i < n.o; i++)
        ((float *)f.out.o.data)[i] = (float)f.s->reference->o[i];
    for (size_t i = 0; i < n.lse; i++)
        ((float *)f.out.lse.data)[i] = (float)f.s->reference->lse[i];
    return f;
}

static void fixture_free(struct fixture *f)
{
    standard_free(f->s);
    outputs_free(&f->out);
    free(f->q), free(f->k), free(f->v);
}

static void expect_rejected(struct fixture *f, const char *reason, const char *where)
{
    struct verdict v = compare(f->s, &f->out);
    char index[64];
    verdict_index(&v, index, sizeof index);
    cr_expect(!v.ok, "accepted: %s", reason);
    cr_expect(v.reason && !strcmp(v.reason, reason), "reason: %s, not %s", v.reason,
              reason);
    cr_expect(!strcmp(index, where), "index: %s, not %s", index, where);
}

Test(compare, accepts_the_rounded_reference)
{
    struct fixture f = fixture_new();
    struct verdict v = compare(f.s, &f.out);
    cr_expect(v.ok, "%s", v.reason);
    cr_expect(v.worst < 1);
    fixture_free(&f);
}

Test(compare, rejects_nan)
{
    struct fixture f = fixture_new();
    ((float *)f.out.o.data)[7] = NAN; /* head 1, query 0, column 1 */
    expect_rejected(&f, "NaN where a number is expected", "[0, 1, 0, 1]");
    fixture_free(&f);
}

Test(compare, rejects_infinity)
{
    struct fixture f = fixture_new();
    ((float *)f.out.lse.data)[4] = INFINITY;
    expect_rejected(&f, "wrong infinity", "[0, 1, 1]");
    fixture_free(&f);
}

Test(compare, rejects_missing_element)
{
    struct fixture f = fixture_new();
    struct outputs fresh = outputs_new(&small);
    memcpy((float *)f.out.o.data + 11, (float *)fresh.o.data + 11, sizeof(float));
    expect_rejected(&f, "element not written", "[0, 1, 2, 1]");
    outputs_free(&fresh);
    fixture_free(&f);
}

/* Even where the reference is NaN, an element that was never written is not a NaN. */
Test(compare, rejects_missing_element_where_nan_is_due)
{
    struct fixture f = fixture_new();
    f.s->reference->o[0] = NAN;
    ((uint32_t *)f.out.o.data)[0] = 0x7fc0dead;
    expect_rejected(&f, "element not written", "[0, 0, 0, 0]");
    ((float *)f.out.o.data)[0] = NAN;
    cr_expect(compare(f.s, &f.out).ok);
    ((float *)f.out.o.data)[0] = 1;
    expect_rejected(&f, "NaN expected", "[0, 0, 0, 0]");
    fixture_free(&f);
}

Test(compare, rejects_the_other_infinity_and_a_number_for_it)
{
    struct fixture f = fixture_new();
    float *lse = f.out.lse.data;
    f.s->reference->lse[0] = -INFINITY;
    lse[0] = -INFINITY;
    cr_expect(compare(f.s, &f.out).ok);
    lse[0] = INFINITY;
    expect_rejected(&f, "wrong infinity", "[0, 0, 0]");
    lse[0] = -3.4e38f;
    expect_rejected(&f, "wrong infinity", "[0, 0, 0]");
    fixture_free(&f);
}

Test(compare, rejects_write_outside)
{
    for (int k = 0; k < 4; k++) {
        struct fixture f = fixture_new();
        unsigned char *o = f.out.o.data, *lse = f.out.lse.data;
        size_t end = f.out.lse.n * sizeof(float);
        if (k == 0) o[-1] = 0;
        if (k == 1) o[-GUARD] = 0;
        if (k == 2) lse[end] = 0;
        if (k == 3) lse[end + GUARD - 1] = 0;
        expect_rejected(&f, k < 2 ? "written before the first element"
                                  : "written behind the last element", "");
        fixture_free(&f);
    }
}

Test(compare, draws_the_line_at_the_allowed_error)
{
    struct fixture f = fixture_new();
    float *o = f.out.o.data;
    double want = f.s->reference->o[5], allowed = f.s->o_allowed[5];
    o[5] = (float)(want + 0.97 * allowed);
    cr_expect(compare(f.s, &f.out).ok, "just below: error %.9g",
              fabs(o[5] - want) / allowed);
    o[5] = (float)(want + 1.03 * allowed);
    expect_rejected(&f, "error above the allowed", "[0, 0, 2, 1]");
    o[5] = (float)(want - 1.03 * allowed);
    expect_rejected(&f, "error above the allowed", "[0, 0, 2, 1]");
    o[5] = (float)want;
    ((float *)f.out.lse.data)[5] =
        (float)(f.s->reference->lse[5] + 1.03 * f.s->lse_allowed[5]);
    expect_rejected(&f, "error above the allowed", "[0, 1, 2]");
    fixture_free(&f);
}

Test(compare, rejects_everything_by_a_broken_yardstick)
{
    struct fixture f = fixture_new();
    f.s->broken = xcalloc(8, 1);
    strcpy(f.s->broken, "broken");
    cr_expect(!compare(f.s, &f.out).ok);
    fixture_free(&f);
}

/* A 16-bit output has its own filling and its own guard. */
Test(compare, half_outputs_are_guarded_too)
{
    struct problem p = {.op = OP_SOFTMAX, .rows = 1, .cols = 3};
    for (int d = F16; d <= BF16; d++) {
        p.dtype = (enum dtype)d;
        uint16_t x[3] = {0, 0, 0}, third = d == F16 ? float_to_half(1 / 3.0f)
                                                    : float_to_bfloat(1 / 3.0f);
        struct arrays a = {.x = x};
        struct standard *s = standard_new(&p, &a);
        struct outputs out = outputs_new(&p);
        uint16_t *y = out.y.data;
        cr_expect(d == F16 ? isnan(half_to_float(y[0])) : isnan(bfloat_to_float(y[0])));
        y[0] = y[1] = y[2] = third;
        cr_expect(compare(s, &out).ok, "%s", compare(s, &out).reason);
        y[1] = (uint16_t)(third + 2);
        cr_expect(!compare(s, &out).ok, "two units off");
        y[1] = third;
        y[3] = 0;
        cr_expect(!compare(s, &out).ok, "a write behind");
        outputs_free(&out);
        standard_free(s);
    }
}

/* Eleven equal keys, v = 1: p = 1/11 rounded to f16 is 1489 / 2^14, and o = 16379 / 2^14,
 * next to which f16 has 1 - 2^-11.  A kernel may err twice as much, and by one rounding
 * of p and of o. */
Test(compare, half_yardstick_rounds_p)
{
    uint16_t q[1] = {0}, k[11] = {0}, v[11];
    for (int j = 0; j < 11; j++) v[j] = float_to_half(1);
    struct problem p = {.op = OP_ATTENTION, .dtype = F16, .batch = 1, .heads_q = 1,
                        .heads_kv = 1, .seqlen_q = 1, .seqlen_k = 11, .head_dim = 1,
                        .head_dim_v = 1, .scale = 1};
    struct arrays a = {.q = q, .k = k, .v = v};
    float *o = yardstick_attention(&p, &a, 0);
    cr_expect(o[0] == 1 - 0x1p-11f, "%.9g", o[0]);
    struct standard *s = standard_new(&p, &a);
    double want = 2 * (1 - (double)o[0]) + 2 * 0x1p-11;
    cr_expect(fabs(s->o_allowed[0] / want - 1) < 1e-3, "%g, not %g", s->o_allowed[0],
              want);
    standard_free(s);
    free(o);
}

/* Attention of one query on n keys, scores near -200, its dot products in 16 lanes whose
 * sums are added by halves: an order that none of the harness's own computations has. */
static struct verdict in_lanes(size_t n, uint64_t seed)
{
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = 1, .seqlen_k = n, .head_dim = 64, .head_dim_v = 8,
                        .scale = 0.125f};
    struct random g = {seed};
    struct sizes size = problem_sizes(&p);
    float *q = oracle_normals(&g, size.q, 1), *k = oracle_normals(&g, size.k, 1);
    float *v = oracle_normals(&g, size.v, 1), s[8], m = -INFINITY, l = 0;
    q[0] = 4;
    for (size_t j = 0; j < n; j++) k[64 * j] = -400;
    struct arrays a = {.q = q, .k = k, .v = v};
    struct standard *standard = standard_new(&p, &a);
    struct outputs out = outputs_new(&p);
    float *o = out.o.data, *lse = out.lse.data;
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

/* ---- planted bugs ---- */

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
    struct sizes size = problem_sizes(&p);
    float *q = oracle_normals(&g, size.q, 1), *k = oracle_normals(&g, size.k, 1);
    float *v = oracle_normals(&g, size.v, 1);
    for (size_t i = 0; shift != 0 && i < size.q; i += 64) q[i] = 4;
    for (size_t i = 0; shift != 0 && i < size.k; i += 64) k[i] = shift * 2;
    struct arrays a = {.q = q, .k = k, .v = v};
    struct standard *s = standard_new(&p, &a);
    struct outputs out = outputs_new(&p);
    tiled(&p, &a, out.o.data, out.lse.data, bug);
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

/* ---- other correct algorithms, over the suite ---- */

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
        variant_function *f = variant_does(v, p->op);
        if (!f || (dtype != F32 && !c[i].halves)) continue;
        if (c[i].only_gpu || p->seqlen_q * p->seqlen_k > 50000) continue;
        if (problem_features(p) & ~v->supports) continue;
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
