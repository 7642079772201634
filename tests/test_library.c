/* test_library.c: attention of the C library as its callers meet it.  Expected values come from
 * the definition in long double (oracle.h).  FIVE_STEPS_GPU is the GPU's code executed on the
 * CPU here: the same kernels, the same launchers, the same checks. */
#include <omp.h>
#include <pthread.h>
#include <sys/wait.h>

#include "library_problem.h"

TestSuite(library, .timeout = 900);

static const size_t shapes[][7] = {
    {1, 1, 1, 1, 1, 8, 8},    {2, 4, 2, 17, 33, 16, 24}, {1, 3, 1, 70, 5, 64, 64},
    {1, 6, 6, 5, 130, 40, 8}, {2, 2, 2, 1, 200, 128, 128},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

Test(library, attention_is_the_definition_on_both_devices_in_every_type)
{
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++)
            for (int s = 0; s < N_SHAPES; s++)
                for (int mask = 0; mask < 4; mask++)
                    check(device, type, shapes[s], mask & 1, mask >> 1);
}

Test(library, odd_head_dims_find_a_kernel)
{
    const size_t shape[7] = {1, 2, 1, 9, 21, 5, 7};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++) check(device, type, shape, 1, 0);
}

/* The name of the kernel, and that it obeys. */
Test(library, kernels_are_taken_by_name)
{
    static const char *const names[2][2] = {{"tiled", "microkernel"},
                                            {"tiled", "register_tiled"}};
    const size_t shape[7] = {1, 2, 2, 33, 65, 64, 64};
    for (int device = CPU; device <= GPU; device++)
        for (int i = 0; i < 2; i++) {
            struct test t = test_new(device, FIVE_STEPS_F32, shape, 1, 0);
            struct framed o = framed_new(t.n_o * 4, 0);
            const char *name = NULL, *choice = NULL;
            double moved = 0;
            t.p.kernel = names[device][i];
            attend(&t, o.at, NULL);
            compare(&t, o.at, NULL);
            cr_assert(five_steps_attention_kernel(&t.p, &name, &moved, NULL) == 0);
            cr_assert(!strcmp(name, names[device][i]) && moved > 0, "%s, %g", name, moved);
            cr_assert(five_steps_attention_choice(&t.p, &choice, NULL) == 0);
            cr_expect(!strncmp(choice, "tile", 4) == !strcmp(name, "register_tiled"), "%s: %s",
                      name, choice);
            cr_expect(five_steps_attention_choice(&t.p, NULL, NULL) == FIVE_STEPS_INVALID);
            framed_free(o, names[device][i]);
            test_free(&t);
        }
}

Test(library, a_scale_is_obeyed_and_0_is_the_usual_one)
{
    const size_t shape[7] = {1, 1, 1, 3, 5, 16, 16};
    struct test t = test_new(CPU, FIVE_STEPS_F32, shape, 0, 0);
    _Alignas(16) float usual[48], given[48], other[48];
    attend(&t, usual, NULL);
    t.p.scale = 0.25f;
    attend(&t, given, NULL);
    t.p.scale = -1;
    attend(&t, other, NULL);
    cr_assert(!memcmp(usual, given, sizeof usual) && memcmp(usual, other, sizeof usual));
    test_free(&t);
}

/* Causal with more queries than keys, no keys at all, and problems without elements. */
Test(library, edges_are_defined)
{
    const size_t masked[7] = {1, 1, 1, 6, 4, 8, 8}, none[7] = {1, 2, 1, 3, 0, 8, 16};
    const size_t empty[][7] = {{0, 1, 1, 3, 4, 8, 8}, {1, 0, 0, 3, 4, 8, 8},
                               {1, 1, 1, 0, 4, 8, 8}};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++) {
            check(device, type, masked, 1, 0);
            check(device, type, none, 0, 0);
            for (int i = 0; i < 3; i++) {
                struct test t = test_new(device, type, empty[i], 0, 0);
                struct five_steps_error error;
                size_t bytes = 1;
                cr_assert(!five_steps_attention_workspace(&t.p, &bytes, &error) && !bytes);
                cr_assert(!five_steps_attention(&t.p, NULL, 0, &error), "%s", error.message);
                test_free(&t);
            }
        }
}

/* ---- What is refused. ---- */

/* A sound problem, and one field that spoils it. */
struct spoiled {
    const char *word;
    int code;
    void (*spoil)(struct five_steps_attention_problem *p);
};

static void no_size(struct five_steps_attention_problem *p) { p->size = 0; }
static void bad_device(struct five_steps_attention_problem *p) { p->device = 7; }
static void bad_type(struct five_steps_attention_problem *p) { p->type = 3; }
static void negative_type(struct five_steps_attention_problem *p) { p->type = -1; }
static void bad_group(struct five_steps_attention_problem *p) { p->heads_kv = 3; }
static void no_kv_heads(struct five_steps_attention_problem *p) { p->heads_kv = 0; }
static void no_head_dim(struct five_steps_attention_problem *p) { p->head_dim = 0; }
static void no_head_dim_v(struct five_steps_attention_problem *p) { p->head_dim_v = 0; }
static void nan_scale(struct five_steps_attention_problem *p) { p->scale = NAN; }
static void inf_scale(struct five_steps_attention_problem *p) { p->scale = INFINITY; }
static void no_q(struct five_steps_attention_problem *p) { p->q = NULL; }
static void no_v(struct five_steps_attention_problem *p) { p->v = NULL; }
static void no_o(struct five_steps_attention_problem *p) { p->o = NULL; }
static void odd_k(struct five_steps_attention_problem *p) { p->k = (const char *)p->k + 1; }
static void no_such_kernel(struct five_steps_attention_problem *p) { p->kernel = "fast"; }
static void two_lines(struct five_steps_attention_problem *p) { p->kernel = "two\nlines"; }
static void o_is_q(struct five_steps_attention_problem *p) { p->o = (void *)p->q; }
static void rows_overlap(struct five_steps_attention_problem *p)
{
    p->o_strides = (struct five_steps_strides){256, 64, 8};
}
static void endless(struct five_steps_attention_problem *p)
{
    p->seqlen_k = (size_t)1 << 62, p->k_strides.row = p->v_strides.row = 0;
    p->k_strides.batch = p->v_strides.batch = 16;
}
static void wraps(struct five_steps_attention_problem *p)
{
    p->batch = (size_t)1 << 62, p->seqlen_q = 16; /* times 4 heads: 0 modulo 2^64 */
}

static const struct spoiled anywhere[] = {
    {"size", FIVE_STEPS_INVALID, no_size},          {"device", FIVE_STEPS_INVALID, bad_device},
    {"type: 3", FIVE_STEPS_INVALID, bad_type},      {"type", FIVE_STEPS_INVALID, negative_type},
    {"heads_q", FIVE_STEPS_INVALID, bad_group},     {"heads_q", FIVE_STEPS_INVALID, no_kv_heads},
    {"head_dim:", FIVE_STEPS_INVALID, no_head_dim}, {"head_dim_v", FIVE_STEPS_INVALID, no_head_dim_v},
    {"scale", FIVE_STEPS_INVALID, nan_scale},       {"scale", FIVE_STEPS_INVALID, inf_scale},
    {"q: is NULL", FIVE_STEPS_INVALID, no_q},       {"v: is NULL", FIVE_STEPS_INVALID, no_v},
    {"o: is NULL", FIVE_STEPS_INVALID, no_o},       {"k: starts", FIVE_STEPS_INVALID, odd_k},
    {"'fast'", FIVE_STEPS_INVALID, no_such_kernel}, {"sizes", FIVE_STEPS_INVALID, wraps},
    {"two?lines", FIVE_STEPS_INVALID, two_lines},   {"output o too", FIVE_STEPS_INVALID, o_is_q},
    {"o overlap", FIVE_STEPS_INVALID, rows_overlap}, {"2^40", FIVE_STEPS_INVALID, endless},
};

static void with_bias_in_wgmma(struct five_steps_attention_problem *p)
{
    static const float bias[64];
    p->type = FIVE_STEPS_BF16, p->kernel = "tuned", p->bias = bias;
}
static void wide_head(struct five_steps_attention_problem *p)
{
    p->type = FIVE_STEPS_F16, p->head_dim = 300, p->kernel = "tensor_cores";
}
static void long_keys(struct five_steps_attention_problem *p)
{
    p->seqlen_k = (size_t)1 << 31;
}
static void f32_in_tensor_cores(struct five_steps_attention_problem *p)
{
    p->kernel = "tensor_cores";
}
static void hopper_elsewhere(struct five_steps_attention_problem *p)
{
    p->type = FIVE_STEPS_BF16, p->kernel = "tuned";
}
static void unaligned_rows(struct five_steps_attention_problem *p)
{
    p->q = (const char *)p->q + 4;
}

static const struct spoiled on_gpu[] = {
    {"does not support a bias", FIVE_STEPS_UNSUPPORTED, with_bias_in_wgmma},
    {"head_dim above 256", FIVE_STEPS_UNSUPPORTED, wide_head},
    {"more than 2^29", FIVE_STEPS_UNSUPPORTED, long_keys},
    {"tensor_cores does not support f32", FIVE_STEPS_UNSUPPORTED, f32_in_tensor_cores},
    {"sm_90", FIVE_STEPS_UNSUPPORTED, hopper_elsewhere},
    {"q: starts", FIVE_STEPS_INVALID, unaligned_rows},
};

static void expect_refusal(int device, const struct spoiled *s)
{
    const size_t shape[7] = {1, 4, 2, 3, 5, 16, 16};
    struct test t = test_new(device, FIVE_STEPS_F32, shape, 0, 0);
    struct framed o = framed_new(t.n_o * 4, 0);
    struct five_steps_error error = {.code = 99};
    size_t bytes;
    t.p.o = o.at;
    cr_assert(!five_steps_attention_workspace(&t.p, &bytes, NULL));
    void *work = malloc(bytes + 1);
    struct five_steps_attention_problem p = t.p;
    s->spoil(&p);
    int code = five_steps_attention(&p, work, bytes, &error);
    cr_assert(code == s->code && error.code == code, "%s: code %d, %d: %s", s->word, code,
              error.code, error.message);
    cr_assert(strstr(error.message, s->word) && !strchr(error.message, '\n'), "'%s': '%s'",
              s->word, error.message);
    cr_assert(five_steps_attention(&p, work, bytes, NULL) == code, "without an error");
    for (size_t i = 0; i < o.bytes; i++) cr_assert(o.at[i] == 0x5a, "%s: touched o", s->word);
    framed_free(o, s->word);
    free(work);
    test_free(&t);
}

Test(library, wrong_arguments_are_codes_with_a_message)
{
    for (int device = CPU; device <= GPU; device++)
        for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++)
            expect_refusal(device, &anywhere[i]);
    for (size_t i = 0; i < sizeof on_gpu / sizeof *on_gpu; i++) expect_refusal(GPU, &on_gpu[i]);
    struct five_steps_error error;
    cr_expect(five_steps_attention(NULL, NULL, 0, &error) == FIVE_STEPS_INVALID);
    cr_expect(five_steps_softmax(NULL, NULL, 0, &error) == FIVE_STEPS_INVALID);
    cr_expect(five_steps_merge(NULL, &error) == FIVE_STEPS_INVALID);
}

Test(library, a_workspace_that_is_too_small_is_refused)
{
    const size_t shape[7] = {1, 4, 2, 3, 5, 16, 16};
    struct test t = test_new(CPU, FIVE_STEPS_BF16, shape, 0, 0);
    struct five_steps_error error;
    uint16_t o[192];
    size_t bytes;
    t.p.o = o;
    omp_set_num_threads(1); /* with more a smaller workspace may do */
    cr_assert(!five_steps_attention_workspace(&t.p, &bytes, &error) && bytes > 0);
    void *work = malloc(bytes);
    cr_expect(five_steps_attention(&t.p, work, bytes - 1, &error) == FIVE_STEPS_WORKSPACE);
    cr_expect(strstr(error.message, "are needed"), "%s", error.message);
    cr_expect(five_steps_attention(&t.p, NULL, bytes, &error) == FIVE_STEPS_WORKSPACE);
    free(work);
    test_free(&t);
}

/* What was enough for one thread is enough when there are eight. */
Test(library, a_workspace_is_enough_whatever_threads_come_later)
{
    const size_t shape[7] = {2, 4, 2, 300, 500, 64, 64};
    struct test t = test_new(CPU, FIVE_STEPS_F32, shape, 1, 0);
    struct five_steps_error error;
    float *o = malloc(t.n_o * sizeof *o);
    size_t bytes;
    t.p.o = o;
    omp_set_num_threads(1);
    cr_assert(!five_steps_attention_workspace(&t.p, &bytes, &error));
    void *work = malloc(bytes);
    omp_set_num_threads(8);
    cr_assert(five_steps_attention(&t.p, work, bytes, &error) == 0, "%s", error.message);
    cr_assert(omp_get_max_threads() == 8);
    compare(&t, o, NULL);
    free(work), free(o);
    test_free(&t);
}

/* With isolate_v a kernel is taken in which a hidden NaN stays hidden. */
Test(library, nan_in_a_hidden_value_stays_there_when_asked_for)
{
    const size_t shape[7] = {1, 1, 1, 40, 40, 64, 64};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++) {
            struct test t = test_new(device, type, shape, 1, 0);
            struct framed o = framed_new(t.n_o * size_of(type), 0);
            struct five_steps_error error;
            size_t bytes;
            t.p.isolate_v = 1, t.p.o = o.at;
            memset((char *)t.p.v + 39 * 64 * size_of(type), 0xff, 64 * size_of(type));
            int code = five_steps_attention_workspace(&t.p, &bytes, &error);
            cr_assert(!code, "%s: %s", describe(&t), error.message);
            attend(&t, o.at, NULL);
            t.n_o = 39 * 64; /* the last query sees the NaN */
            compare(&t, o.at, NULL);
            cr_assert(isnan(load(type, o.at, 39 * 64)));
            framed_free(o, "isolate_v");
            test_free(&t);
        }
}

/* ---- Threads. ---- */

struct caller {
    struct test t;
    _Alignas(16) float o[33 * 64], want[33 * 64];
    int wrong;
};

static void *call_often(void *context)
{
    struct caller *c = context;
    for (int i = 0; i < 20; i++) {
        struct five_steps_error error;
        size_t bytes = 0;
        c->t.p.o = c->o, c->t.p.lse = NULL;
        int code = five_steps_attention_workspace(&c->t.p, &bytes, &error);
        void *work = malloc(bytes + 1);
        if (!code) code = five_steps_attention(&c->t.p, work, bytes, &error);
        free(work);
        c->wrong += code != 0 || memcmp(c->o, c->want, sizeof c->o) != 0;
    }
    return NULL;
}

Test(library, threads_do_not_meet)
{
    enum { N = 6 };
    static struct caller callers[N];
    pthread_t threads[N];
    const size_t shape[7] = {1, 1, 1, 33, 65, 64, 64};
    for (int i = 0; i < N; i++) {
        callers[i].t = test_new(i % 2 ? GPU : CPU, FIVE_STEPS_F32, shape, i & 1, 0);
        if (i == 4) callers[i].t.p.scale = 3;
        attend(&callers[i].t, callers[i].want, NULL);
    }
    for (int i = 0; i < N; i++)
        cr_assert(!pthread_create(&threads[i], NULL, call_often, &callers[i]));
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(callers[i].wrong == 0, "caller %d: %d wrong", i, callers[i].wrong);
        test_free(&callers[i].t);
    }
}

/* A question about 2^40 queries is answered at once. */
Test(library, the_kernel_of_the_longest_sequence_is_named)
{
    struct five_steps_attention_problem p = {
        .size = sizeof p, .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = (size_t)1 << 40,
        .seqlen_k = 7, .head_dim = 1, .head_dim_v = 1, .causal = 1, .window = 1, .window_left = 3};
    const char *name;
    double moved;
    cr_assert(five_steps_attention_kernel(&p, &name, &moved, NULL) == FIVE_STEPS_OK);
    cr_assert(moved > 0);
}

Test(library, version_is_the_headers)
{
    cr_assert(!strcmp(five_steps_version(), FIVE_STEPS_VERSION));
    cr_assert(five_steps_built_with()[0]);
}
