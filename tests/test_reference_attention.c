/* test_reference_attention.c: the reference of attention, its scan and its update, against
 * closed forms and against long double. */
#include "attention_problem.h"

#include <string.h>

#define HEADS(...) problem_of(OP_ATTENTION, (struct shape){__VA_ARGS__}, 0, 0)

/* ---- attention by its definition in long double, written apart from the reference: plain loops, no
 * compensation, 64 bits are enough ---- */

/* The causal rule written as in the question: with 2 queries and 5 keys 11110 / 11111. */
static int oracle_sees(const struct problem *p, size_t i, size_t j)
{
    long shift = (long)p->seqlen_k - (long)p->seqlen_q;
    return !p->causal || (long)j <= (long)i + shift;
}

/* o [batch, heads_q, seqlen_q, head_dim_v] and lse of float arrays, by definition. */
static void oracle_attention(const struct problem *p, const float *q,
                                    const float *k, const float *v, const float *bias,
                                    long double *o, long double *lse)
{
    size_t group = p->heads_kv ? p->heads_q / p->heads_kv : 1, d = p->head_dim, dv = p->head_dim_v;
    long double *s = malloc((p->seqlen_k + 1) * sizeof *s);
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->heads_q; h++)
            for (size_t i = 0; i < p->seqlen_q; i++) {
                size_t row = (b * p->heads_q + h) * p->seqlen_q + i;
                size_t kv = (b * p->heads_kv + h / group) * p->seqlen_k;
                long double m = -INFINITY, l = 0;
                for (size_t j = 0; j < p->seqlen_k; j++) {
                    s[j] = 0;
                    for (size_t t = 0; t < d; t++)
                        s[j] += (long double)q[row * d + t] * k[(kv + j) * d + t];
                    s[j] = s[j] * p->scale + (bias ? bias[i * p->seqlen_k + j] : 0);
                    if (!oracle_sees(p, i, j)) s[j] = -INFINITY;
                    if (s[j] > m) m = s[j];
                }
                for (size_t j = 0; j < p->seqlen_k; j++)
                    l += s[j] = s[j] == -INFINITY ? 0 : expl(s[j] - m);
                lse[row] = m + logl(l);
                for (size_t c = 0; c < dv; c++) {
                    o[row * dv + c] = 0;
                    for (size_t j = 0; l > 0 && j < p->seqlen_k; j++)
                        o[row * dv + c] += s[j] / l * v[(kv + j) * dv + c];
                }
            }
    free(s);
}

static float *oracle_normals(struct random *r, size_t n, float width)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = width * random_normal(r);
    return x;
}

/* The worst difference from the oracle on random numbers, relative to 1 + |scores|. */
static double oracle_distance(struct problem p, float width, uint64_t seed)
{
    struct random g = {seed};
    size_t n_o = array_count(&p, ARRAY_O), n_lse = array_count(&p, ARRAY_LSE);
    float *q = oracle_normals(&g, array_count(&p, ARRAY_Q), width);
    float *k = oracle_normals(&g, array_count(&p, ARRAY_K), 1);
    float *v = oracle_normals(&g, array_count(&p, ARRAY_V), 1);
    float *bias = oracle_normals(&g, p.seqlen_q * p.seqlen_k, 1);
    for (size_t i = 0; i < p.seqlen_q * p.seqlen_k; i++)
        if (random_below(&g, 4) == 0) bias[i] = -INFINITY;
    struct arrays a = {.q = q, .k = k, .v = v, .bias = p.has_bias ? bias : NULL};
    long double *want = malloc((n_o + n_lse) * sizeof *want);
    oracle_attention(&p, q, k, v, a.bias, want, want + n_o);
    struct standard *r = standard_new(&p, &a);
    double worst = 0;
    for (size_t i = 0; i < n_o + n_lse; i++) {
        double got = i < n_o ? r->answer[ARRAY_O].want[i] : r->answer[ARRAY_LSE].want[i - n_o];
        double far = got == (double)want[i] ? 0 : fabs((double)(got - want[i]));
        if (!(far <= worst)) worst = far;
    }
    worst /= 1e-15 * (1 + r->max_score);
    standard_free(r);
    free(q), free(k), free(v), free(bias), free(want);
    return worst;
}

Test(reference, attention_agrees_with_long_double)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 1, 1, 1, 1},    {1, 1, 1, 2, 5, 4, 4},    {1, 1, 1, 5, 2, 4, 4},
        {2, 4, 2, 7, 13, 8, 3},   {1, 6, 1, 33, 65, 7, 11}, {2, 3, 3, 64, 64, 16, 16},
        {1, 1, 1, 40, 129, 64, 64}, {1, 2, 1, 3, 200, 80, 96},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 8; kind++) {
            struct problem p = problem_of(OP_ATTENTION, shapes[i], kind & 1, kind >> 1 & 1);
            double worst = oracle_distance(p, kind >> 2 ? 50 : 1, i + 10);
            cr_expect(worst <= 8, "shape %zu, kind %d: %.3g units of 1e-15", i, kind, worst);
        }
}

/* Expects o and lse, one behind the other, and so many rows that see no key. */
static void expect_answer(const struct problem *p, const struct arrays *a, size_t empty_rows,
                          const double *want)
{
    struct standard *r = standard_new(p, a);
    const struct answer *o = &r->answer[ARRAY_O], *lse = &r->answer[ARRAY_LSE];
    for (size_t i = 0; i < o->n + lse->n; i++) {
        double got = i < o->n ? o->want[i] : lse->want[i - o->n];
        cr_expect(near(got, want[i]), "%zu queries, %zu keys, element %zu: %.17g, want %.17g",
                  p->seqlen_q, p->seqlen_k, i, got, want[i]);
    }
    cr_expect(r->empty_rows == empty_rows);
    standard_free(r);
}
#define WANT(...) ((const double[]){__VA_ARGS__})

/* In plain double the 1 drowns in 1e30.  The score is 0.5 * 1. */
Test(reference, sums_of_products_are_compensated)
{
    float q[] = {1, 1, 1, 1}, k[] = {1e30f, 1, 0, -1e30f}, v[] = {1};
    struct arrays a = {.q = q, .k = k, .v = v};
    struct problem p = HEADS(1, 1, 1, 1, 1, 4, 1);
    expect_answer(&p, &a, 0, WANT(1, 0.5));
}

/* Row i of a fresh problem of 3 queries, 4 keys, d = dv = 2; the bias masks key 3. */
struct spoiled { float q[6], k[8], v[8], bias[12]; struct arrays a; struct problem p; };

static void spoil_new(struct spoiled *s)
{
    *s = (struct spoiled){.q = {1, 2, 3, 4, 5, 6}, .k = {1, 0, 0, 1, 1, 1, 2, 1},
                          .v = {1, 2, 3, 4, 5, 6, 7, 8}};
    s->p = HEADS(1, 1, 1, 3, 4, 2, 2);
    s->p.has_bias = 1;
    for (int i = 0; i < 3; i++) s->bias[4 * i + 3] = -INFINITY;
    s->a = (struct arrays){.q = s->q, .k = s->k, .v = s->v, .bias = s->bias};
}

/* Which of the six elements of o, and then of the three of lse, are NaN: "NN....N..". */
static void expect_nans(const struct spoiled *s, const char *pattern, const char *what)
{
    struct standard *r = standard_new(&s->p, &s->a);
    for (int i = 0; i < 9; i++) {
        double x = i < 6 ? r->answer[ARRAY_O].want[i] : r->answer[ARRAY_LSE].want[i - 6];
        cr_expect(!isnan(x) == (pattern[i] == '.'), "%s: element %d is %g", what, i, x);
    }
    int none = !strcmp(pattern, ".........") || r->v_is_finite == 0;
    cr_expect(none == (r->max_score < INFINITY), "%s: scores up to %g", what,
              r->max_score);
    standard_free(r);
}

Test(reference, nan_reaches_exactly_what_it_must)
{
    struct spoiled s;
    float *const q = s.q, *const k = s.k, *const v = s.v, *const bias = s.bias;
    const struct { float *at; float x; int causal; const char *pattern, *what; } of[] = {
        {&k[0], 1, 0, ".........", "nothing spoiled"},
        {&q[2], NAN, 0, "..NN...N.", "query 1"},
        {&k[4], NAN, 0, "NNNNNNNNN", "key 2"},
        {&k[4], NAN, 1, "..NNNN.NN", "key 2; queries 0, 1, 2 see the keys up to 1, 2, 3"},
        {&v[3], NAN, 0, ".N.N.N...", "column 1 of value 1"},
        {&k[6], NAN, 0, ".........", "a masked key"},
        {&k[7], INFINITY, 0, ".........", "a masked key"},
        {&v[6], NAN, 0, ".........", "a masked value"},
        {&bias[5], INFINITY, 0, "..NN...N.", "a score of +inf"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        spoil_new(&s);
        *of[i].at = of[i].x, s.p.causal = of[i].causal;
        expect_nans(&s, of[i].pattern, of[i].what);
    }
    spoil_new(&s);
    s.q[0] = NAN;
    for (int j = 0; j < 4; j++) s.bias[j] = -INFINITY;
    expect_nans(&s, ".........", "a query that sees nothing");
}

Test(reference, infinite_value_is_infinite_in_its_column)
{
    struct spoiled s;
    spoil_new(&s);
    s.v[2] = -INFINITY;
    struct standard *r = standard_new(&s.p, &s.a);
    for (int i = 0; i < 3; i++)
        cr_expect(r->answer[ARRAY_O].want[2 * i] == -INFINITY && isfinite(r->answer[ARRAY_O].want[2 * i + 1]), "row %d", i);
    cr_expect(!r->v_is_finite);
    standard_free(r);
}

Test(reference, log_form_sums_log_probabilities)
{
    float q[] = {1}, k[] = {0, 1, 2}, v[] = {1, 10, 100};
    struct arrays a = {.q = q, .k = k, .v = v};
    struct problem p = HEADS(1, 1, 1, 1, 3, 1, 1);
    p.op = OP_LOGSOFTMAX_ATTENTION;
    double lse = log(1 + exp(1) + exp(2));
    expect_answer(&p, &a, 0, WANT(-lse + (1 - lse) * 10 + (2 - lse) * 100, lse));
}

/* That is causal attention of as many copies of the query as there are keys. */
Test(reference, scan_is_attention_on_every_prefix)
{
    enum { ALL = 8, N = 37, D = 6 };
    struct random g = {5};
    struct problem p = HEADS(2, 4, 2, 1, N, D, 5), causal = p;
    p.op = OP_SCAN, causal.causal = 1, causal.seqlen_q = N;
    float *q = oracle_normals(&g, ALL * D, 3), copies[ALL * N * D];
    float *k = oracle_normals(&g, array_count(&p, ARRAY_K), 1);
    float *v = oracle_normals(&g, array_count(&p, ARRAY_V), 1);
    for (size_t i = 0; i < ALL * N; i++) memcpy(copies + i * D, q + i / N * D, D * sizeof *q);
    struct standard *r[2] = {standard_new(&p, &(struct arrays){.q = q, .k = k, .v = v}),
                             standard_new(&causal, &(struct arrays){.q = copies, .k = k, .v = v})};
    for (int i = ARRAY_O; i <= ARRAY_LSE; i++)
        for (size_t e = 0; e < r[0]->answer[i].n; e++)
            cr_expect(r[0]->answer[i].want[e] == r[1]->answer[i].want[e], "%d, element %zu", i, e);
    standard_free(r[0]), standard_free(r[1]);
    free(q), free(k), free(v);
}

Test(reference, later_update_of_a_key_wins)
{
    float q[] = {0}, k[] = {0, 0, 0}, v[] = {1, 2, 3};
    float k_new[] = {0, 0, 0}, v_new[] = {100, 20, 10};
    size_t index[] = {1, 0, 1};
    struct arrays a = {
        .q = q, .k = k, .v = v, .k_new = k_new, .v_new = v_new, .index = index};
    struct problem p = HEADS(1, 1, 1, 1, 3, 1, 1);
    p.op = OP_UPDATE;
    p.n_updates = 3;
    expect_answer(&p, &a, 0, WANT((20 + 10 + 3) / 3.0, log(3)));
}
