/* test_backward.c: the reference of the backward pass against closed forms; what backward passes
 * must leave alone.  The faults that they have had: tests/planted/gradient_*.patch. */
#include <criterion/criterion.h>
#include <math.h>

#include "attention_problem.h"

static struct problem heads(size_t n_q, size_t n_k, size_t d, size_t dv)
{
    return (struct problem){.op = OP_BACKWARD, .batch = 1, .heads_q = 1, .heads_kv = 1,
                            .seqlen_q = n_q, .seqlen_k = n_k, .head_dim = d, .head_dim_v = dv,
                            .scale = 0.5f};
}

/* The standard of backward with the o and lse of the forward pass. */
static struct standard *with_forward(const struct problem *p, struct arrays *a)
{
    static float o[16], lse[16];
    a->o = o, a->lse = lse;
    forward_answer(p, a);
    return standard_new(p, a);
}

/* One key: its weight is 1 whatever the score, so dq = dk = 0 and dv = the sum of do. */
Test(backward, one_key_passes_do_through)
{
    float q[] = {1, 2, 3, 4}, k[] = {5, 6}, v[] = {7, 8, 9}, d_o[] = {1, 2, 3, 10, 20, 30};
    struct arrays a = {.q = q, .k = k, .v = v, .d_o = d_o};
    struct problem p = heads(2, 1, 2, 3);
    struct standard *s = with_forward(&p, &a);
    for (int t = 0; t < 4; t++) cr_expect(s->answer[ARRAY_DQ].want[t] == 0);
    for (int t = 0; t < 2; t++) cr_expect(s->answer[ARRAY_DK].want[t] == 0);
    for (int c = 0; c < 3; c++) cr_expect(s->answer[ARRAY_DV].want[c] == 11 * (c + 1));
    standard_free(s);
}

/* q = 0: p = 1 / 2, D = (1 + 3) / 2 = 2, ds = (1 - 2) / 2 and (3 - 2) / 2; equal values: ds = 0. */
Test(backward, of_equal_weights_and_of_equal_values)
{
    float q[] = {0}, k[] = {4, 8}, v[] = {1, 3}, d_o[] = {1};
    struct arrays a = {.q = q, .k = k, .v = v, .d_o = d_o};
    struct problem p = heads(1, 2, 1, 1);
    struct standard *s = with_forward(&p, &a);
    cr_expect(fabs(s->answer[ARRAY_DQ].want[0] - 0.5 * (-0.5 * 4 + 0.5 * 8)) < 1e-14);
    cr_expect(s->answer[ARRAY_DK].want[0] == 0 && s->answer[ARRAY_DV].want[1] == 0.5);
    standard_free(s);
    q[0] = 1, v[0] = 3;
    s = with_forward(&p, &a);
    for (int i = ARRAY_DQ; i <= ARRAY_DK; i++)
        cr_expect(fabs(s->answer[i].want[0]) < 1e-14, "%g", s->answer[i].want[0]);
    standard_free(s);
}

/* A query that sees nothing and a key that nobody sees have gradients of exactly 0. */
Test(backward, what_is_hidden_has_no_gradient)
{
    const struct test_case *c = test_case_find("backward-random-90x33-d64-causal");
    struct prepared p = prepare(c, F32, 1);
    const struct answer *dq = &p.standard->answer[ARRAY_DQ];
    for (size_t e = 0; e < 57 * 64; e++)
        cr_assert(dq->want[e] == 0 && dq->allowed[e] < 1e-30, "%zu", e);
    cr_expect(dq->want[57 * 64] != 0 || dq->want[58 * 64] != 0);
    prepared_free(&p);
}

extern const struct variant gradient_all_cores;

/* A NaN in do of query 0, which sees keys 0 and 1 of 3: it reaches their gradients, the column of
 * their dv, and dq of query 0. */
Test(backward, nan_in_do_stays_with_the_keys_that_its_query_sees)
{
    float q[] = {1, 2}, k[] = {1, 2, 3}, v[6] = {1, 2, 3, 4, 5, 6}, o[4] = {1, 1, 1, 1};
    float d_o[] = {NAN, 1, 1, 1}, lse[] = {2, 3}, dq[2], dk[3], dv[6];
    struct problem p = heads(2, 3, 1, 2);
    p.causal = 1;
    struct arrays a = {.q = q, .k = k, .v = v, .o = o, .lse = lse, .d_o = d_o,
                       .dq = dq, .dk = dk, .dv = dv};
    run_variant(&gradient_all_cores, &p, &a);
    cr_expect(isnan(dq[0]) && isfinite(dq[1]));
    for (int j = 0; j < 3; j++) {
        cr_expect(isnan(dk[j]) == (j < 2) && isnan(dv[2 * j]) == (j < 2), "key %d", j);
        cr_expect(isfinite(dv[2 * j + 1]), "key %d", j);
    }
}
