/* test_compare_algorithms.c: the rule of acceptance takes a correct algorithm with an order of
 * operations that none of the harness's own has (the variants of the stages have many more), and
 * catches a key that is lost in 16 bits. */
#include <criterion/criterion.h>

#include "attention_problem.h"
#include "oracle.h"
#include "verification/cases.h"
#include "verification/check_variant.h"

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

/* A kernel that reads a 16-bit tile one key short. */
Test(compare, catches_a_dropped_key_in_16_bits)
{
    extern const struct variant tensor_cores; /* stage 5's third rung, executed on the CPU */
    const struct test_case *c = test_case_find("attention-outlier@299-33x300-d64");
    cr_assert(c);
    for (int lost = 0; lost < 2; lost++) {
        struct prepared p = prepare(c, BF16, 1);
        struct problem shorter = p.inputs->problem; /* one head: the layout stays the same */
        struct outputs out = outputs_new(&p.inputs->problem);
        struct arrays a = p.inputs->arrays;
        outputs_bind(&out, &a);
        shorter.seqlen_k -= (size_t)lost;
        run_variant(&tensor_cores, &shorter, &a);
        cr_expect(compare(p.standard, &out).ok == !lost, "%d keys lost", lost);
        outputs_free(&out);
        prepared_free(&p);
    }
}
