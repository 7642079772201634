/* test_library_calls.c: windows, soft caps, sinks, packed sequences, pages and strides through
 * the C library: the cases of the suite, judged by its reference; and what is refused. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "library/five_steps.h"
#include "problem/dtype.h"
#include "problem/feature.h"
#include "verification/cases.h"
#include "verification/compare.h"
#include "verification/outputs.h"

TestSuite(library_calls, .timeout = 900);

enum {
    CALL = WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS | WITH_PACKED | WITH_PAGES | WITH_STRIDES |
           WITH_BIAS_STRIDES | WITH_LENGTHS
};

static struct five_steps_strides strides_of(struct strides s)
{
    return (struct five_steps_strides){s.batch, s.head, s.row};
}

/* The problem of the suite as the library's. */
static struct five_steps_attention_problem library_problem(const struct problem *p,
                                                           const struct arrays *a, int device)
{
    return (struct five_steps_attention_problem){
        .size = sizeof(struct five_steps_attention_problem), .device = device,
        .type = p->dtype == F32 ? FIVE_STEPS_F32 : p->dtype == F16 ? FIVE_STEPS_F16
                                                                   : FIVE_STEPS_BF16,
        .batch = p->batch, .heads_q = p->heads_q, .heads_kv = p->heads_kv,
        .seqlen_q = p->seqlen_q, .seqlen_k = p->seqlen_k, .head_dim = p->head_dim,
        .head_dim_v = p->head_dim_v, .causal = p->causal, .isolate_v = 1, .scale = p->scale,
        .q = a->q, .k = a->k, .v = a->v, .bias = a->bias, .o = a->o, .lse = a->lse,
        .window = p->has_window, .softcap = p->softcap, .window_left = p->window_left,
        .window_right = p->window_right, .sinks = a->sinks, .cu_seqlens_q = a->cu_seqlens_q,
        .cu_seqlens_k = a->cu_seqlens_k, .total_q = p->total_q, .total_k = p->total_k,
        .page_table = a->page_table, .page_size = p->page_size, .n_pages = p->n_pages,
        .pages_per_sequence = p->pages_per_sequence, .q_strides = strides_of(p->q_strides),
        .k_strides = strides_of(p->k_strides), .v_strides = strides_of(p->v_strides),
        .o_strides = strides_of(p->o_strides), .bias_is_strided = p->has_bias_strides,
        .bias_strides = strides_of(p->bias_strides), .d_o = a->d_o, .dq = a->dq, .dk = a->dk,
        .dv = a->dv, .dsinks = a->dsinks, .seqlens_k = a->seqlens_k};
}

/* One case in one type on one device; returns the library's code. */
static int try_case(const struct test_case *c, enum dtype dtype, int device)
{
    struct inputs *in = inputs_new(c, dtype, test_case_seed(c));
    struct outputs out = outputs_new(&in->problem);
    struct arrays a = in->arrays;
    struct five_steps_error error;
    size_t bytes = 0;
    outputs_bind(&out, &a);
    struct five_steps_attention_problem p = library_problem(&in->problem, &a, device);
    int backward = in->problem.op == OP_BACKWARD;
    int code = (backward ? five_steps_attention_backward_workspace
                         : five_steps_attention_workspace)(&p, &bytes, &error);
    void *workspace = malloc(bytes + 1);
    if (!code)
        code = (backward ? five_steps_attention_backward
                         : five_steps_attention)(&p, workspace, bytes, &error);
    cr_expect(code == FIVE_STEPS_OK || (device == FIVE_STEPS_GPU && code == FIVE_STEPS_UNSUPPORTED),
              "%s: %s", c->name, error.message);
    if (!code) {
        struct standard *s = standard_new(&in->problem, &in->arrays);
        struct verdict v = compare(s, &out);
        cr_expect(v.ok, "%s in %s on %s: %s: got %g, want %g, allowed %g", c->name,
                  dtypes[dtype].name, device == FIVE_STEPS_GPU ? "gpu" : "cpu", v.reason, v.got,
                  v.want, v.allowed);
        standard_free(s);
    }
    free(workspace);
    outputs_free(&out);
    inputs_free(in);
    return code;
}

Test(library_calls, cases_of_the_suite_are_right)
{
    size_t n, computed = 0, refused = 0;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++) {
        const struct problem *p = &c[i].problem;
        int called = p->op == OP_ATTENTION && problem_features(p) & CALL;
        if (!(called || p->op == OP_BACKWARD) || !c[i].quick) continue;
        try_case(&c[i], F32, FIVE_STEPS_CPU);
        if (c[i].halves) try_case(&c[i], BF16, FIVE_STEPS_CPU), try_case(&c[i], F16, FIVE_STEPS_CPU);
        if (!c[i].executed) continue;
        if (try_case(&c[i], F32, FIVE_STEPS_GPU)) refused++;
        else computed++;
    }
    cr_expect(computed >= 10, "the GPU's kernels computed %zu cases", computed);
    cr_expect(refused > 0, "all cases are supported: drop UNSUPPORTED above");
}

/* A sound problem of two packed sequences with pages, into which one mistake goes. */
static const int sums[] = {0, 2, 3}, pages[] = {1, 0};
static float numbers[256], results[64], of_rows[16];

static struct five_steps_attention_problem sound(void)
{
    return (struct five_steps_attention_problem){
        .size = sizeof(struct five_steps_attention_problem), .batch = 2, .heads_q = 1,
        .heads_kv = 1, .seqlen_q = 2, .seqlen_k = 2, .head_dim = 4, .head_dim_v = 4,
        .q = numbers, .k = numbers, .v = numbers, .o = results, .lse = of_rows,
        .cu_seqlens_q = sums, .cu_seqlens_k = sums, .total_q = 3, .total_k = 3,
        .page_table = pages, .page_size = 4, .n_pages = 2, .pages_per_sequence = 1,
        .window = 1, .window_left = 1};
}

static void expect(struct five_steps_attention_problem p, int code, const char *word)
{
    static char workspace[1 << 20];
    struct five_steps_error error;
    int got = five_steps_attention(&p, workspace, sizeof workspace, &error);
    cr_expect(got == code && strstr(error.message, word), "code %d, want %d with '%s': '%s'", got,
              code, word, error.message);
}

#define WRONG(code, word, ...)                                                             \
    {                                                                                      \
        struct five_steps_attention_problem p = sound();                                   \
        __VA_ARGS__;                                                                       \
        expect(p, code, word);                                                             \
    }

Test(library_calls, mistakes_are_named)
{
    static const int late[] = {1, 2, 3}, falls[] = {0, 4, 3}, far[] = {1, 2}, freed[] = {-7, 0};
    WRONG(FIVE_STEPS_OK, "", (void)p);
    WRONG(FIVE_STEPS_INVALID, "window", p.window_left = -2);
    WRONG(FIVE_STEPS_INVALID, "softcap", p.softcap = -1);
    WRONG(FIVE_STEPS_INVALID, "softcap", p.softcap = NAN);
    WRONG(FIVE_STEPS_INVALID, "cu_seqlens_k", p.cu_seqlens_k = NULL);
    WRONG(FIVE_STEPS_INVALID, "cu_seqlens_q", p.cu_seqlens_q = NULL);
    WRONG(FIVE_STEPS_INVALID, "cu_seqlens_q", p.cu_seqlens_q = late);
    WRONG(FIVE_STEPS_INVALID, "cu_seqlens_k", p.cu_seqlens_k = falls);
    WRONG(FIVE_STEPS_INVALID, "cu_seqlens_q", p.total_q = 4);
    WRONG(FIVE_STEPS_INVALID, "cu_seqlens_k", p.seqlen_k = 1);
    WRONG(FIVE_STEPS_INVALID, "seqlens_k", p.seqlens_k = sums);
    WRONG(FIVE_STEPS_OK, "", p.cu_seqlens_q = p.cu_seqlens_k = NULL, p.seqlens_k = sums);
    WRONG(FIVE_STEPS_INVALID, "seqlens_k",
          p.cu_seqlens_q = p.cu_seqlens_k = NULL, p.seqlens_k = late + 1);
    WRONG(FIVE_STEPS_INVALID, "seqlen_q", p.seqlen_q = 5);
    WRONG(FIVE_STEPS_INVALID, "page_size", p.page_size = 0);
    WRONG(FIVE_STEPS_INVALID, "pages_per_sequence", p.pages_per_sequence = 0);
    WRONG(FIVE_STEPS_INVALID, "page_table", p.page_table = far);
    WRONG(FIVE_STEPS_INVALID, "page_table", p.page_table = freed);
    WRONG(FIVE_STEPS_INVALID, "q: is NULL", p.q = NULL);
    WRONG(FIVE_STEPS_INVALID, "size", p.size -= 16);
    WRONG(FIVE_STEPS_INVALID, "sizes", p.k_strides.head = p.k_strides.batch = SIZE_MAX / 2);
    WRONG(FIVE_STEPS_UNSUPPORTED, "pages", p.device = FIVE_STEPS_GPU; p.isolate_v = 1);
}

/* float32 on a GPU: a sentence encoder has packed sequences, a generator of text pages, and
 * its prompt arrays of another layout. */
Test(library_calls, float32_on_a_gpu_has_packed_sequences_pages_and_strides)
{
    const char *name;
    struct five_steps_attention_problem p = sound();
    p.device = FIVE_STEPS_GPU;
    p.page_table = NULL, p.head_dim = p.head_dim_v = 4;
    p.seqlen_q = p.seqlen_k = p.total_q = 100, p.total_k = 100; /* too many for split_kv_f32 */
    cr_assert(five_steps_attention_kernel(&p, &name, NULL, NULL) == FIVE_STEPS_OK);
    cr_expect_str_eq(name, "general_tiled");
    p.cu_seqlens_q = p.cu_seqlens_k = NULL;
    p.q_strides = (struct five_steps_strides){800, 4, 8};
    cr_assert(five_steps_attention_kernel(&p, &name, NULL, NULL) == FIVE_STEPS_OK);
    cr_expect_str_eq(name, "general_tiled");

    p = sound(); /* a step with a sequence in pages of 4 keys */
    p.device = FIVE_STEPS_GPU;
    p.cu_seqlens_q = p.cu_seqlens_k = NULL, p.seqlen_q = 1;
    cr_assert(five_steps_attention_kernel(&p, &name, NULL, NULL) == FIVE_STEPS_OK);
    cr_expect_str_eq(name, "split_kv_f32");
}

/* Strides that say what the shape says anyway, and windows without limits, ask for nothing:
 * kernels without these features are still taken. */
Test(library_calls, what_asks_for_nothing_is_left_out)
{
    struct five_steps_attention_problem p = sound();
    const char *name, *again;
    p.device = FIVE_STEPS_GPU;
    p.cu_seqlens_q = p.cu_seqlens_k = p.page_table = NULL;
    p.window = 0, p.causal = 1;
    cr_assert(five_steps_attention_kernel(&p, &name, NULL, NULL) == FIVE_STEPS_OK);
    p.q_strides = (struct five_steps_strides){8, 77, 4};
    p.o_strides = (struct five_steps_strides){8, 8, 4};
    p.causal = 0, p.window = 1, p.window_left = -1, p.window_right = 0;
    cr_assert(five_steps_attention_kernel(&p, &again, NULL, NULL) == FIVE_STEPS_OK);
    cr_expect_str_eq(name, again);
}

/* A program that was compiled with the first header knows none of the new fields. */
Test(library_calls, problem_of_the_first_version_is_accepted)
{
    struct five_steps_attention_problem p = sound();
    static char workspace[1 << 20];
    struct five_steps_error error;
    p.size = offsetof(struct five_steps_attention_problem, window);
    memset((char *)&p + p.size, 0x7f, sizeof p - p.size); /* not looked at */
    cr_expect(five_steps_attention(&p, workspace, sizeof workspace, &error) == FIVE_STEPS_OK,
              "%s", error.message);
}

/* The backward pass of 2 queries and 2 keys of a head, into which one mistake goes. */
static struct five_steps_attention_problem sound_backward(void)
{
    static float dq[8], dk[8], dv[8];
    struct five_steps_attention_problem p = sound();
    p.batch = 1, p.cu_seqlens_q = p.cu_seqlens_k = p.page_table = NULL;
    p.d_o = numbers, p.dq = dq, p.dk = dk, p.dv = dv;
    return p;
}

static void expect_backward(struct five_steps_attention_problem p, int code, const char *word)
{
    static char workspace[1 << 20];
    struct five_steps_error error;
    int got = five_steps_attention_backward(&p, workspace, sizeof workspace, &error);
    cr_expect(got == code && strstr(error.message, word), "code %d, want %d with '%s': '%s'", got,
              code, word, error.message);
}

#define WRONG_BACKWARD(code, word, ...)                                                    \
    {                                                                                      \
        struct five_steps_attention_problem p = sound_backward();                          \
        __VA_ARGS__;                                                                       \
        expect_backward(p, code, word);                                                    \
    }

Test(library_calls, mistakes_of_the_backward_pass_are_named)
{
    static const float sink = 1;
    WRONG_BACKWARD(FIVE_STEPS_OK, "", (void)p);
    WRONG_BACKWARD(FIVE_STEPS_OK, "", p.sinks = &sink); /* nobody wants dsinks */
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "do: is NULL", p.d_o = NULL);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "dk: is NULL", p.dk = NULL);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "lse: is NULL", p.lse = NULL);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "output dq too", p.dq = (void *)p.q);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "size", p.size += 8);
    WRONG_BACKWARD(FIVE_STEPS_UNSUPPORTED, "pages", p = sound(); p.d_o = numbers;
                   p.dq = p.dk = p.dv = results);
    WRONG_BACKWARD(FIVE_STEPS_UNSUPPORTED, "backward", p.kernel = "all_cores");
    struct five_steps_attention_problem p = sound_backward();
    ((float *)p.dq)[3] = 7, p.seqlen_k = 0;
    expect_backward(p, FIVE_STEPS_OK, "");
    cr_expect(((float *)p.dq)[3] == 0, "without keys dq is 0");
}
