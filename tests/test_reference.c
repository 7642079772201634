/* test_reference.c: the reference of rows, of attention, its scan and its update, against closed forms.
 * Random numbers are judged from outside: NumPy agrees with what `run` writes (test_run.py).
 * Its gradients are those of four variants (`check`), which NumPy judges too (test_backward.py). */
#include "attention_problem.h"

#include <string.h>

static struct standard *rows_standard(enum op op, size_t rows, size_t cols, const float *x)
{
    struct problem p = {.op = op, .rows = rows, .cols = cols};
    struct arrays a = {.x = x, .w = x};
    return standard_new(&p, &a);
}

/* A masked row gives zero and its logarithm; NaN or inf spoils its row only; totals may be beyond
 * float; a sum in plain double would lose the 1 beside 1e30. */
Test(reference, rows_are_those_of_the_definition)
{
    const double inf = INFINITY, big = 3e38f, e1 = exp(1), e2 = exp(2), e3 = exp(3);
    const double l = 1 + e1 + e2 + e3, log_l = log(2 + exp(-1));
    const struct { enum op op; size_t rows, cols; double x[6], want[6]; } of[] = {
        {OP_SOFTMAX, 1, 4, {0, 1, 2, 3}, {1 / l, e1 / l, e2 / l, e3 / l}},
        {OP_LOGSOFTMAX, 1, 4, {10000, 10000, 9999, -inf}, {-log_l, -log_l, -1 - log_l, -inf}},
        {OP_SOFTMAX, 2, 2, {-inf, -inf, 1, -inf}, {0, 0, 1, 0}},
        {OP_LOGSOFTMAX, 2, 2, {-inf, -inf, 1, -inf}, {-inf, -inf, 0, -inf}},
        {OP_SOFTMAX, 3, 2, {1, NAN, 2, inf, 1, 1}, {NAN, NAN, NAN, NAN, 0.5, 0.5}},
        {OP_MEAN, 2, 3, {big, big, big, 1, 2, 6}, {big, 3}},
        {OP_MEAN, 1, 3, {1e30f, 1, -1e30f}, {1 / 3.0}}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        float x[6];
        for (int j = 0; j < 6; j++) x[j] = (float)of[k].x[j];
        struct standard *r = rows_standard(of[k].op, of[k].rows, of[k].cols, x);
        const struct answer *y = &r->answer[ARRAY_Y];
        for (size_t j = 0; j < y->n; j++)
            cr_expect(near(y->want[j], of[k].want[j]), "row %zu, element %zu: %.17g, want %.17g", k, j,
                      y->want[j], of[k].want[j]);
        cr_expect(r->empty_rows == (of[k].op <= OP_LOGSOFTMAX && of[k].x[1] == -inf), "row %zu", k);
        cr_expect((r->max_score == inf) == (k == 4), "row %zu: scores up to %g", k, r->max_score);
        standard_free(r);
    }
}

#define HEADS(...) problem_of(OP_ATTENTION, (struct shape){__VA_ARGS__}, 0, 0)

/* Expects o and lse, one behind the other, and that every row sees a key. */
static void expect_answer(const struct problem *p, const struct arrays *a, const double *want)
{
    struct standard *r = standard_new(p, a);
    const struct answer *o = &r->answer[ARRAY_O], *lse = &r->answer[ARRAY_LSE];
    for (size_t i = 0; i < o->n + lse->n; i++) {
        double got = i < o->n ? o->want[i] : lse->want[i - o->n];
        cr_expect(near(got, want[i]), "%zu queries, %zu keys, element %zu: %.17g, want %.17g",
                  p->seqlen_q, p->seqlen_k, i, got, want[i]);
    }
    cr_expect(r->empty_rows == 0);
    standard_free(r);
}
#define WANT(...) ((const double[]){__VA_ARGS__})

/* In plain double the 1 drowns in 1e30.  The score is 0.5 * 1. */
Test(reference, sums_of_products_are_compensated)
{
    float q[] = {1, 1, 1, 1}, k[] = {1e30f, 1, 0, -1e30f}, v[] = {1};
    struct arrays a = {.q = q, .k = k, .v = v};
    struct problem p = HEADS(1, 1, 1, 1, 1, 4, 1);
    expect_answer(&p, &a, WANT(1, 0.5));
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

/* That is causal attention of as many copies of the query as there are keys. */
Test(reference, scan_is_attention_on_every_prefix)
{
    enum { ALL = 8, N = 37, D = 6 };
    struct problem p = HEADS(2, 4, 2, 1, N, D, 5), causal = p;
    float copies[ALL * N * D];
    p.op = OP_SCAN, causal.causal = 1, causal.seqlen_q = N;
    struct inputs *in = inputs_of(p, WIDE, F32);
    struct arrays a = in->arrays;
    struct standard *scan = standard_new(&p, &a);
    for (size_t i = 0; i < ALL * N; i++)
        memcpy(copies + i * D, (const float *)in->arrays.q + i / N * D, D * sizeof(float));
    a.q = copies;
    struct standard *every = standard_new(&causal, &a);
    for (int i = ARRAY_O; i <= ARRAY_LSE; i++)
        for (size_t e = 0; e < scan->answer[i].n; e++)
            cr_expect(scan->answer[i].want[e] == every->answer[i].want[e], "%d, element %zu", i, e);
    standard_free(scan), standard_free(every), inputs_free(in);
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
    expect_answer(&p, &a, WANT((20 + 10 + 3) / 3.0, log(3)));
}
