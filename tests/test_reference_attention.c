/* test_reference_attention.c: the reference of attention, its scan and its update, against
 * closed forms and against long double. */
#include "reference_problem.h"

/* Compares the reference with the oracle on random numbers; returns the worst difference
 * relative to 1 + |scores|. */
static double oracle_distance(struct problem p, float width, uint64_t seed)
{
    struct random g = {seed};
    float *q = oracle_normals(&g, array_count(&p, ARRAY_Q), width), *k = oracle_normals(&g, array_count(&p, ARRAY_K), 1);
    float *v = oracle_normals(&g, array_count(&p, ARRAY_V), 1),
          *bias = p.has_bias ? oracle_normals(&g, array_count(&p, ARRAY_BIAS), 1) : NULL;
    for (size_t i = 0; i < array_count(&p, ARRAY_BIAS); i++)
        if (random_below(&g, 4) == 0) bias[i] = -INFINITY;
    struct arrays a = {.q = q, .k = k, .v = v, .bias = bias};
    long double *o = malloc(array_count(&p, ARRAY_O) * sizeof *o), *lse = malloc(array_count(&p, ARRAY_LSE) * sizeof *lse);
    oracle_attention(&p, q, k, v, bias, o, lse);
    struct standard *r = standard_new(&p, &a);
    double worst = 0, unit = 1e-15 * (1 + r->max_score);
    for (size_t i = 0; i < array_count(&p, ARRAY_O); i++)
        worst = fmax(worst, fabs((double)(r->answer[ARRAY_O].want[i] - o[i])) / unit);
    for (size_t i = 0; i < array_count(&p, ARRAY_LSE); i++) {
        if (lse[i] == -INFINITY && r->answer[ARRAY_LSE].want[i] == -INFINITY) continue;
        double difference = fabs((double)(r->answer[ARRAY_LSE].want[i] - lse[i])) / unit;
        if (!(difference <= worst)) worst = difference;
    }
    standard_free(r);
    free(q), free(k), free(v), free(bias), free(o), free(lse);
    return worst;
}

Test(reference, attention_agrees_with_long_double)
{
    static const size_t shapes[][7] = {
        {1, 1, 1, 1, 1, 1, 1},    {1, 1, 1, 2, 5, 4, 4},    {1, 1, 1, 5, 2, 4, 4},
        {2, 4, 2, 7, 13, 8, 3},   {1, 6, 1, 33, 65, 7, 11}, {2, 3, 3, 64, 64, 16, 16},
        {1, 1, 1, 40, 129, 64, 64}, {1, 2, 1, 3, 200, 80, 96},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 4; kind++) {
            const size_t *s = shapes[i];
            struct problem p = heads_problem(s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
            p.causal = kind & 1;
            p.has_bias = kind >> 1;
            for (int w = 0; w < 2; w++) {
                double worst = oracle_distance(p, w ? 50 : 1, i + 10);
                cr_expect(worst <= 8,
                          "shape %zu causal %d bias %d width %d: %.3g units of "
                          "1e-15",
                          i, p.causal, p.has_bias, w, worst);
            }
        }
}

/* 2 queries and 5 keys: 11110 / 11111.  5 queries and 2 keys: nothing, nothing, nothing,
 * 10, 11.  With q = 0 and v_j = j the output is the mean of the visible j. */
Test(reference, causal_is_aligned_bottom_right)
{
    float q[5] = {0}, k[5] = {0}, v[5] = {0, 1, 2, 3, 4};
    struct arrays a = {.q = q, .k = k, .v = v};
    struct problem p = heads_problem(1, 1, 1, 2, 5, 1, 1);
    p.causal = 1;
    struct standard *r = standard_new(&p, &a);
    NEAR(r->answer[ARRAY_O].want[0], 1.5, "row 0: %g", r->answer[ARRAY_O].want[0]);
    NEAR(r->answer[ARRAY_O].want[1], 2.0, "row 1: %g", r->answer[ARRAY_O].want[1]);
    NEAR(r->answer[ARRAY_LSE].want[0], logl(4), "lse 0: %g", r->answer[ARRAY_LSE].want[0]);
    standard_free(r);
    p.seqlen_q = 5;
    p.seqlen_k = 2;
    r = standard_new(&p, &a);
    for (int i = 0; i < 3; i++)
        cr_expect(r->answer[ARRAY_O].want[i] == 0 && r->answer[ARRAY_LSE].want[i] == -INFINITY, "row %d: %g %g", i, r->answer[ARRAY_O].want[i],
                  r->answer[ARRAY_LSE].want[i]);
    cr_expect(r->answer[ARRAY_O].want[3] == 0 && r->answer[ARRAY_LSE].want[3] == 0 && r->answer[ARRAY_O].want[4] == 0.5);
    cr_expect(r->empty_rows == 3);
    standard_free(r);
}

/* Four query heads, two key heads: heads 0, 1 read key head 0, heads 2, 3 key head 1. */
Test(reference, query_heads_share_key_heads_in_groups)
{
    float q[8] = {0}, k[4] = {0}, v[4] = {1, 2, 3, 4}; /* batch 2, one key each */
    struct arrays a = {.q = q, .k = k, .v = v};
    struct problem p = heads_problem(2, 4, 2, 1, 1, 1, 1);
    struct standard *r = standard_new(&p, &a);
    static const double want[] = {1, 1, 2, 2, 3, 3, 4, 4};
    for (int i = 0; i < 8; i++) cr_expect(r->answer[ARRAY_O].want[i] == want[i], "head %d: %g", i, r->answer[ARRAY_O].want[i]);
    standard_free(r);
}

/* Row i of a fresh problem of 3 queries, 4 keys, d = dv = 2; the bias masks key 3. */
struct spoiled { float q[6], k[8], v[8], bias[12]; struct arrays a; struct problem p; };

static void spoil_new(struct spoiled *s)
{
    *s = (struct spoiled){.q = {1, 2, 3, 4, 5, 6}, .k = {1, 0, 0, 1, 1, 1, 2, 1},
                          .v = {1, 2, 3, 4, 5, 6, 7, 8}};
    s->p = heads_problem(1, 1, 1, 3, 4, 2, 2);
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
    spoil_new(&s);
    expect_nans(&s, ".........", "nothing spoiled");
    s.q[2] = NAN;
    expect_nans(&s, "..NN...N.", "query 1");
    spoil_new(&s);
    s.k[4] = NAN;
    expect_nans(&s, "NNNNNNNNN", "key 2");
    s.p.causal = 1; /* queries 0, 1, 2 see the keys up to 1, 2, 3 */
    expect_nans(&s, "..NNNN.NN", "key 2, causal");
    spoil_new(&s);
    s.v[3] = NAN;
    expect_nans(&s, ".N.N.N...", "column 1 of value 1");
    spoil_new(&s);
    s.k[6] = NAN, s.k[7] = INFINITY, s.v[6] = NAN, s.v[7] = INFINITY;
    expect_nans(&s, ".........", "a masked key and value");
    spoil_new(&s);
    s.bias[5] = INFINITY;
    expect_nans(&s, "..NN...N.", "a score of +inf");
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
    struct problem p = heads_problem(1, 1, 1, 1, 3, 1, 1);
    p.op = OP_LOGSOFTMAX_ATTENTION;
    struct standard *r = standard_new(&p, &a);
    long double lse = logl(1 + expl(1) + expl(2));
    NEAR(r->answer[ARRAY_O].want[0], -lse + (1 - lse) * 10 + (2 - lse) * 100, "%.17g", r->answer[ARRAY_O].want[0]);
    standard_free(r);
}

Test(reference, scan_is_attention_on_every_prefix)
{
    struct random g = {5};
    struct problem p = heads_problem(2, 4, 2, 1, 37, 6, 5);
    struct problem prefix = p;
    p.op = OP_SCAN;
    float *q = oracle_normals(&g, array_count(&p, ARRAY_Q), 3), *k = oracle_normals(&g, array_count(&p, ARRAY_K), 1);
    float *v = oracle_normals(&g, array_count(&p, ARRAY_V), 1);
    struct arrays a = {.q = q, .k = k, .v = v};
    struct standard *r = standard_new(&p, &a);
    for (size_t j = 0; j < p.seqlen_k; j++) {
        long double o[8 * 5], lse[8];
        float some_k[4 * 37 * 6], some_v[4 * 37 * 5];
        prefix.seqlen_k = j + 1;
        for (size_t h = 0; h < 4; h++) {
            memcpy(some_k + h * (j + 1) * 6, k + h * 37 * 6, (j + 1) * 6 * sizeof *k);
            memcpy(some_v + h * (j + 1) * 5, v + h * 37 * 5, (j + 1) * 5 * sizeof *v);
        }
        oracle_attention(&prefix, q, some_k, some_v, NULL, o, lse);
        for (size_t h = 0; h < 8; h++) {
            NEAR(r->answer[ARRAY_LSE].want[h * 37 + j], lse[h], "lse of head %zu, prefix %zu", h, j);
            for (size_t c = 0; c < 5; c++)
                NEAR(r->answer[ARRAY_O].want[(h * 37 + j) * 5 + c], o[h * 5 + c], "head %zu prefix %zu", h,
                     j);
        }
    }
    standard_free(r);
    free(q), free(k), free(v);
}

Test(reference, later_update_of_a_key_wins)
{
    float q[] = {0}, k[] = {0, 0, 0}, v[] = {1, 2, 3};
    float k_new[] = {0, 0, 0}, v_new[] = {100, 20, 10};
    size_t index[] = {1, 0, 1};
    struct arrays a = {
        .q = q, .k = k, .v = v, .k_new = k_new, .v_new = v_new, .index = index};
    struct problem p = heads_problem(1, 1, 1, 1, 3, 1, 1);
    p.op = OP_UPDATE;
    p.n_updates = 3;
    struct standard *r = standard_new(&p, &a);
    NEAR(r->answer[ARRAY_O].want[0], (20 + 10 + 3) / 3.0, "%g", r->answer[ARRAY_O].want[0]);
    standard_free(r);
}
