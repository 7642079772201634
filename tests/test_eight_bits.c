/* test_eight_bits.c: numbers in 8 bits: int8 at every value (test_types.c: e4m3), scales, and what is
 * accepted of attention on them. */
#include "library_call.h"
#include "../04_monoid_tiled_cpu/variants/eight_bits.c"
#include "problem/host_memory.h"

Test(eight_bits, int8_rounds_to_nearest_even_and_saturates)
{
    for (int i = -127; i <= 127; i++) {
        int below = i > -127 ? i - 1 : i, above = i < 127 ? i + 1 : i;
        float half = (float)i + 0.5f;
        cr_assert(float_to_int8((float)i) == i);
        cr_assert(float_to_int8(half) == (i % 2 ? above : i), "%g", half);
        cr_assert(float_to_int8(nextafterf(half, -1e9f)) == i);
        cr_assert(float_to_int8(nextafterf(half, 1e9f)) == above);
        cr_assert(float_to_int8((float)i - 0.5f) == (i % 2 ? below : i));
    }
    cr_assert(float_to_int8(1e30f) == 127 && float_to_int8(-INFINITY) == -127);
    cr_assert(float_to_int8(NAN) == 0);
}

/* Two sequences of 2 and 1 rows, packed; 4 query heads share 2 of keys.  448, 127 and 0 stand for
 * themselves. */
Test(eight_bits, scales_are_of_a_batch_and_key_head)
{
    struct problem p = {.op = OP_ATTENTION, .dtype = BF16, .cache = E4M3, .batch = 2, .heads_q = 4,
                        .heads_kv = 2, .packed = 1, .total_q = 3, .total_k = 3, .seqlen_q = 2,
                        .seqlen_k = 2, .head_dim = 1, .head_dim_v = 1};
    const int32_t sums[] = {0, 2, 3};
    const float k[] = {448, -1, 896, 0, NAN, 0}, want_k[] = {1, 1, 2, 1};
    const float q[] = {1, 2, 0, 4, -8, 3, 0, 127, 5, 1, 1, 254}, want_q[] = {8, 127, 3, 254};
    struct arrays a = {.cu_seqlens_q = sums, .cu_seqlens_k = sums};
    uint8_t codes[6];
    float scales[4];
    cr_expect_str_eq(problem_types(&p), "bf16/e4m3");
    amax_scales(&p, &a, ARRAY_K, k, scales);
    cr_expect(!memcmp(scales, want_k, sizeof scales), "%g %g %g %g", scales[0], scales[1], scales[2],
              scales[3]);
    quantise(&p, &a, ARRAY_K, k, scales, codes);
    a.k = codes, a.k_scale = scales;
    float *back = dequantised(&p, &a, ARRAY_K);
    for (int e = 0; e < 6; e++) cr_expect(near((double)back[e], (double)k[e]), "%g", (double)back[e]);
    free(back);
    p.dtype = INT8;
    amax_scales(&p, &a, ARRAY_Q, q, scales);
    for (int i = 0; i < 4; i++) cr_expect(scales[i] == want_q[i] / 127, "%d: %g", i, (double)scales[i]);
}

/* ---- What is accepted. ---- */

static float truncated(float x)
{
    uint8_t b = float_to_e4m3(x);
    return e4m3_to_float(b) > x ? e4m3_to_float((uint8_t)(b - 1)) : e4m3_to_float(b);
}

enum fault { RIGHT, LOST_KEY, NO_Q_SCALE, NO_K_SCALE, NO_V_SCALE, OTHER_K_SCALE, OTHER_V_SCALE, CUT_OFF,
             SMALL_WEIGHTS, ONE_SUM, ONE_SUM_A_TILE };

#define HEADS {2, 4, 2, 20, 300, 64, 64}
#define LONG_ROW {1, 1, 1, 1, 16384, 8, 8}
static const struct trial {
    struct shape shape;
    enum recipe recipe;
    float scores; /* times those of the recipe */
    enum fault fault;
} trials[] = {
    {HEADS, ZERO_Q, 1, LOST_KEY},           {HEADS, MARKERS, 1, LOST_KEY},
    {HEADS, RANDOM, 1, NO_Q_SCALE},         {HEADS, RANDOM, 1, NO_K_SCALE},
    {HEADS, RANDOM, 1, NO_V_SCALE},         {HEADS, RANDOM, 1, OTHER_K_SCALE},
    {HEADS, RANDOM, 1, OTHER_V_SCALE},      {{1, 1, 1, 8, 2000, 16, 16}, BELOW_STEP, 1, CUT_OFF},
    {LONG_ROW, OUTLIER, 0.36f, SMALL_WEIGHTS}, {LONG_ROW, ZERO_Q, 1, ONE_SUM}};

/* Is the variant accepted with this fault, on the trial's inputs?  In a long row all values are
 * positive. */
static int accepted(const struct trial *trial, enum dtype dtype, enum fault fault)
{
    struct problem p = problem_of(OP_ATTENTION, trial->shape, 0, 0);
    struct inputs *in = inputs_of(p, trial->recipe, dtype);
    int positive = p.seqlen_k > 10000;
    in->problem.scale *= trial->scores;
    for (size_t e = 0; positive && e < array_count(&in->problem, ARRAY_V); e++)
        dtypes[dtype].store((void *)in->arrays.v, e, fabsf(dtypes[dtype].load(in->arrays.v, e)));
    struct standard *standard = standard_new(&in->problem, &in->arrays);
    struct outputs out = outputs_new(&in->problem);
    struct arrays a = in->arrays;
    float *bias = xcalloc(p.seqlen_q * p.seqlen_k, sizeof *bias), rotated[16];
    const float *scales = fault == OTHER_K_SCALE ? a.k_scale : a.v_scale;
    size_t n = p.batch * p.heads_kv;
    for (size_t i = 0; i < n; i++) rotated[i] = scales[(i + 1) % n];
    way = (struct way){.largest = 256, .weight = weight_in_e4m3, .tiles = 1};
    if (fault == LOST_KEY) {
        in->problem.has_bias = 1, a.bias = bias;
        for (size_t i = 0; i < p.seqlen_q; i++) bias[i * p.seqlen_k + p.seqlen_k / 2] = -INFINITY;
    }
    if (fault == NO_Q_SCALE) a.q_scale = NULL;
    if (fault == NO_K_SCALE) a.k_scale = NULL;
    if (fault == NO_V_SCALE) a.v_scale = NULL;
    if (fault == OTHER_K_SCALE) a.k_scale = rotated;
    if (fault == OTHER_V_SCALE) a.v_scale = rotated;
    if (fault == CUT_OFF) way.weight = truncated;
    if (fault == SMALL_WEIGHTS) way.largest = 1;
    if (fault == ONE_SUM) way.bits_of_o = 13, way.tiles = 1 << 30;
    if (fault == ONE_SUM_A_TILE) way.bits_of_s = dtype == E4M3 ? 13 : 0, way.bits_of_o = 13;
    outputs_bind(&out, &a);
    run_variant(&eight_bits, &in->problem, &a);
    int ok = compare(standard, &out).ok;
    in->problem.has_bias = 0;
    free(bias), outputs_free(&out), standard_free(standard), inputs_free(in);
    return ok;
}

/* Each fault on an input that shows it, and the honest variant on the same. */
Test(eight_bits, faults_are_rejected)
{
    for (int t = E4M3; t <= INT8; t++)
        for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
            const struct trial *trial = &trials[i];
            enum dtype dtype = (enum dtype)t;
            cr_expect(accepted(trial, dtype, RIGHT), "type %d, trial %zu", t, i);
            cr_expect(accepted(trial, dtype, ONE_SUM_A_TILE), "type %d, trial %zu", t, i);
            cr_expect(!accepted(trial, dtype, trial->fault), "type %d, trial %zu: not seen", t, i);
        }
}

extern const struct variant eight_bits_sums;

/* 16 queries of a warp, each with a key of its own far ahead: small weights survive in every row. */
Test(eight_bits, small_weights_survive_where_the_rows_of_a_warp_differ, .timeout = 300)
{
    struct problem p = problem_of(OP_ATTENTION, (struct shape){1, 1, 1, 16, 12288, 64, 64}, 0, 0);
    struct inputs *in = inputs_of(p, RANDOM, E4M3);
    const struct arrays a = in->arrays;
    uint8_t *k = (uint8_t *)a.k, *v = (uint8_t *)a.v;
    in->problem.scale *= 0.5f;
    for (size_t i = 0; i < 16; i++) {
        float size = 0;
        const uint8_t *q = (const uint8_t *)a.q + i * 64;
        for (size_t c = 0; c < 64; c++) size += e4m3_to_float(q[c]) * e4m3_to_float(q[c]);
        for (size_t c = 0; c < 64; c++)
            k[(700 * i + 300) * 64 + c] = float_to_e4m3(
                e4m3_to_float(q[c]) * 10.5f / (size * in->problem.scale * a.q_scale[0] * a.k_scale[0]));
    }
    for (size_t e = 0; e < 12288 * 64; e++) v[e] &= 0x7f;
    judge(&eight_bits_sums, in);
    inputs_free(in);
}

/* ---- What kernels that know no codes are given. ---- */

/* The arrays of *wide, which is p, whose rows lie one after another, with q, k and v in 16 bits.  The scales
 * of q count in k. */
static struct arrays widened_arrays(const struct problem *p, const struct arrays *a, struct problem *wide)
{
    const enum dtype type = dtype_size(p->dtype) == 1 ? BF16 : p->dtype;
    struct arrays b = *a, codes = *a;
    size_t n_scales = p->batch * p->heads_kv;
    float *k_scale = xcalloc(n_scales, sizeof *k_scale);
    for (size_t e = 0; e < n_scales; e++)
        k_scale[e] = (a->k_scale ? a->k_scale[e] : 1) * (a->q_scale ? a->q_scale[e] : 1);
    codes.q_scale = NULL, codes.k_scale = k_scale;
    for (enum array i = ARRAY_Q; i <= ARRAY_V; i++) {
        float *x = dequantised(p, &codes, i);
        for (size_t e = 0; e < array_count(p, i); e++) dtypes[type].store(x, e, x[e]); /* in place: no wider */
        array_set(&b, i, x);
    }
    *wide = *p, wide->dtype = type, wide->cache = F32;
    b.q_scale = b.k_scale = b.v_scale = NULL;
    free(k_scale);
    return b;
}

/* Does the library give the same bits for codes, however they lie, as for the numbers that they are in 16 bits? */
static void expect_same_bits(struct test_case c, enum dtype dtype)
{
    struct inputs *in = inputs_new(&c, dtype, 1), *in_rows;
    c.problem.page_size = c.problem.n_pages = c.problem.pages_per_sequence = 0;
    c.problem.q_strides = c.problem.k_strides = c.problem.v_strides = (struct strides){0, 0, 0};
    in_rows = inputs_new(&c, dtype, 1); /* the same numbers */
    struct problem p = in->problem, wide;
    struct arrays a = in->arrays, b = widened_arrays(&in_rows->problem, &in_rows->arrays, &wide);
    struct outputs got = outputs_new(&p), want = outputs_new(&wide);
    struct five_steps_error error;
    outputs_bind(&got, &a), outputs_bind(&want, &b);
    int code = call_library(&p, &a, GPU, NULL, &error), same = call_library(&wide, &b, GPU, NULL, &error);
    cr_expect(code == same && (code || outputs_equal(&got, &want)), "%s, %s: %d, %d %s", c.name,
              problem_types(&p), code, same, error.message);
    outputs_free(&got), outputs_free(&want), inputs_free(in), inputs_free(in_rows);
    free((void *)b.q), free((void *)b.k), free((void *)b.v);
}

Test(eight_bits, codes_that_no_kernel_of_the_gpu_takes_become_numbers, .timeout = 300)
{
    struct test_case plain = {.name = "plain", .recipe = RANDOM, .problem = problem_of(
        OP_ATTENTION, (struct shape){2, 4, 2, 9, 70, 64, 48}, 1, 0)};
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (int type = E4M3; type <= INT8; type++) expect_same_bits(plain, (enum dtype)type);
    plain.problem.cache = E4M3;
    expect_same_bits(plain, INT8);
    for (size_t i = 0; i < n; i++)
        if (c[i].problem.cache && c[i].quick && !(c[i].problem.packed && c[i].problem.page_size))
            expect_same_bits(c[i], BF16);
}

extern const struct variant split_kv, split_kv_cache;

/* Split-KV on codes and on the same numbers in float16.  Scores add 16 products in another order, so all
 * sums are exact here: q has multiples of 1/4, k none below 1.  A warp folds other keys together, so there
 * are 16 of them; what is accepted of more, `check` says. */
Test(eight_bits, split_kv_over_codes_is_split_kv_on_their_numbers)
{
    for (int cache = E4M3; cache <= INT8; cache++) {
        struct problem p = problem_of(OP_ATTENTION, (struct shape){2, 4, 2, 3, 16, 64, 64}, 1, 0);
        p.cache = (enum dtype)cache;
        struct inputs *in = inputs_of(p, RANDOM, F16);
        struct arrays a = in->arrays, b;
        struct problem wide;
        a.k_scale = a.v_scale = NULL;
        in->problem.scale /= 32;
        for (size_t e = array_count(&in->problem, ARRAY_Q); e-- > 0;)
            dtypes[F16].store((void *)a.q, e, rintf(4 * dtypes[F16].load(a.q, e)) / 4);
        for (size_t e = array_count(&in->problem, ARRAY_K); cache == E4M3 && e-- > 0;)
            if (fabsf(dtypes[E4M3].load(a.k, e)) < 1) ((uint8_t *)a.k)[e] = 0;
        b = widened_arrays(&in->problem, &a, &wide);
        struct outputs got = outputs_new(&in->problem), want = outputs_new(&wide);
        outputs_bind(&got, &a), outputs_bind(&want, &b);
        run_variant(&split_kv_cache, &in->problem, &a);
        run_variant(&split_kv, &wide, &b);
        cr_expect(outputs_equal(&got, &want), "type %d", cache);
        outputs_free(&got), outputs_free(&want), inputs_free(in);
        free((void *)b.q), free((void *)b.k), free((void *)b.v);
    }
}

/* The GPU's kernels give the codes of the CPU; of means the sums have another order. */
Test(eight_bits, numbers_become_the_same_codes_everywhere)
{
    enum { N = 6, N_ROWS = 90, DIM = 64 };
    static float x[N * N_ROWS * DIM], scale[2][N], mean[2][N * DIM];
    static uint8_t codes[2][N * N_ROWS * DIM];
    struct random r = {1};
    for (size_t e = 0; e < N * N_ROWS * DIM; e++) x[e] = 1 + random_normal(&r);
    for (int way = 0; way < 8; way++) {
        struct five_steps_error error;
        struct five_steps_quantise_problem p = {
            .size = sizeof p, .batch = 2, .heads = 3, .rows = N_ROWS, .head_dim = DIM, .x = x,
            .to = way & 1 ? FIVE_STEPS_INT8 : FIVE_STEPS_E4M3, .rotate = way >> 1 & 1, .smooth = way >> 2};
        for (int device = CPU; device <= GPU; device++) {
            p.device = device, p.codes = codes[device], p.scale = scale[device], p.mean = mean[device];
            cr_assert(!five_steps_quantise(&p, &error), "%s", error.message);
        }
        size_t differ = 0;
        for (size_t e = 0; e < sizeof *codes; e++) differ += codes[0][e] != codes[1][e];
        cr_expect(differ <= (p.smooth ? 5 : 0), "way %d: %zu codes differ", way, differ);
        for (int h = 0; h < N; h++)
            cr_expect(fabsf(scale[0][h] - scale[1][h]) <= 1e-5f * scale[0][h] * (float)p.smooth, "way %d", way);
        p.head_dim = 48;
        cr_expect(five_steps_quantise(&p, &error) == FIVE_STEPS_UNSUPPORTED);
    }
}
