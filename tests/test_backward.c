/* test_backward.c: the reference of the backward pass against closed forms, and the rule of
 * acceptance against the faults that backward passes have had. */
#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "attention_problem.h"
#include "verification/cases.h"
#include "verification/check_variant.h"

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

enum bug { NONE, NO_SCALE, D_OF_NEXT_ROW, ONE_HEAD_OF_GROUP, LAST_TILE_LOST, NO_SLOPE, D_MISSING,
           MASK_BEFORE_EXP, SINK_SIGN, DV_BY_DS, LAST_KEY_OF_DV, N_BUGS };
static const char *const bug_names[] = {
    "none", "scale missing", "D of the next row", "group not summed", "a tile of dq lost",
    "slope of the cap missing", "D missing", "mask before the exponential", "sign of dsinks",
    "dv from ds", "last key of dv"};
static enum bug bug;

static float dot(const float *x, const float *y, size_t n)
{
    float sum = 0;
    for (size_t t = 0; t < n; t++) sum += x[t] * y[t];
    return sum;
}

/* The equations, with one of the faults. */
static void faulty(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim, dv = p->head_dim_v, n = p->seqlen_k, group = p->heads_q / p->heads_kv;
    float *dq = a->dq, *dk = a->dk, *dv_ = a->dv;
    for (size_t e = 0; e < array_count(p, ARRAY_DQ); e++) dq[e] = 0;
    for (size_t e = 0; e < array_count(p, ARRAY_DK); e++) dk[e] = 0;
    for (size_t e = 0; e < array_count(p, ARRAY_DV); e++) dv_[e] = 0;
    for (size_t h = 0; p->has_sinks && h < p->heads_q; h++) a->dsinks[h] = 0;
    for (size_t row = 0; row < p->heads_q * p->seqlen_q; row++) {
        size_t i = row % p->seqlen_q, h = row / p->seqlen_q, kv = h / group * n;
        size_t other = bug == D_OF_NEXT_ROW && i + 1 < p->seqlen_q ? row + 1 : row;
        const float *q = (const float *)a->q + row * d, *d_o = (const float *)a->d_o + row * dv;
        float D = dot((const float *)a->d_o + other * dv, (float *)a->o + other * dv, dv);
        if (bug == D_MISSING) D = 0;
        struct key_range seen = visible_keys(p, i);
        for (size_t j = bug == MASK_BEFORE_EXP ? 0 : seen.first;
             j < (bug == MASK_BEFORE_EXP ? n : seen.end); j++) {
            const float *k = (const float *)a->k + (kv + j) * d;
            const float *v = (const float *)a->v + (kv + j) * dv;
            float s = p->scale * dot(q, k, d), slope = 1, c = p->softcap;
            if (c > 0) slope = 1 - tanhf(s / c) * tanhf(s / c), s = c * tanhf(s / c);
            if (bug == NO_SLOPE) slope = 1;
            if (j < seen.first || j >= seen.end) s = -INFINITY; /* NaN where lse is too */
            float P = expf(s - a->lse[row]), dS = P * (dot(d_o, v, dv) - D) * slope;
            if (bug != NO_SCALE) dS *= p->scale;
            int adds = !(bug == ONE_HEAD_OF_GROUP && h % group);
            for (size_t t = 0; t < d; t++) {
                if (!(bug == LAST_TILE_LOST && j >= n / 16 * 16)) dq[row * d + t] += dS * k[t];
                if (adds) dk[(kv + j) * d + t] += dS * q[t];
            }
            for (size_t t = 0; t < dv && adds; t++)
                if (!(bug == LAST_KEY_OF_DV && j == n - 1))
                    dv_[(kv + j) * dv + t] += (bug == DV_BY_DS ? dS : P) * d_o[t];
        }
        if (p->has_sinks)
            a->dsinks[h] += (bug == SINK_SIGN ? 1 : -1) * expf(a->sinks[h] - a->lse[row]) * D;
    }
}

Test(backward, every_planted_fault_is_caught)
{
    static const char *const cases[] = {
        "backward-random-17x33-d64", "backward-random-90x33-d64-causal",
        "backward-random-21x70-d64-b1h5kv1-sinks", "backward-wide-21x70-d64-cap30"};
    struct variant v = {.name = "faulty", .types = TYPE(F32), .does = {{OP_BACKWARD, faulty}}};
    for (bug = NONE; bug < N_BUGS; bug++) {
        int caught = 0;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const char *could_not;
            struct prepared p = prepare(test_case_find(cases[i]), F32, 3);
            caught += !check_variant(&v, &p, 0, &could_not).ok;
            prepared_free(&p);
        }
        cr_expect(bug == NONE ? !caught : caught, "%s: rejected in %d cases", bug_names[bug],
                  caught);
    }
}

extern const struct variant gradient_all_cores;

/* 1100 keys are cut into parts, whose shares of dq are added in order. */
Test(backward, thread_count_changes_no_bit)
{
    static const int threads[] = {1, 2, 3, 7};
    struct problem p = problem_of(OP_BACKWARD, (struct shape){1, 4, 2, 100, 1100, 40, 24}, 1, 0);
    struct arrays a = random_arrays(&p, 5, 1);
    struct random r = {6};
    size_t n_q = 4 * 100 * 40, n_k = 2 * 1100 * 40;
    float *dq[2] = {malloc(n_q * 4), malloc(n_q * 4)}, *dk[2] = {malloc(n_k * 4), malloc(n_k * 4)};
    float *o = random_floats(&r, 4 * 100 * 24, 1), *d_o = random_floats(&r, 4 * 100 * 24, 1);
    a.o = o, a.d_o = d_o, a.lse = random_floats(&r, 400, 1), a.dv = malloc(2 * 1100 * 24 * 4);
    for (int t = 0; t < 4; t++) {
        omp_set_num_threads(threads[t]);
        a.dq = dq[t > 0], a.dk = dk[t > 0];
        run_variant(&gradient_all_cores, &p, &a);
        cr_expect(!memcmp(dq[0], dq[t > 0], n_q * 4) && !memcmp(dk[0], dk[t > 0], n_k * 4),
                  "%d threads differ from 1", threads[t]);
    }
    for (int i = 0; i < 2; i++) free(dq[i]), free(dk[i]);
    free(o), free(d_o), free(a.lse), free(a.dv);
    free_arrays(&a);
}

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
