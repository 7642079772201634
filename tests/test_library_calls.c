/* test_library_calls.c: what the C library refuses, and how it says so; which kernel it takes. */
#include "library_call.h"

TestSuite(library_calls, .timeout = 900);

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

/* Plain arrays [1, 4 / 2, 3 / 5, 16]. */
static float large[1024];

static struct five_steps_attention_problem plain(int device)
{
    return (struct five_steps_attention_problem){
        .size = sizeof(struct five_steps_attention_problem), .device = device, .batch = 1,
        .heads_q = 4, .heads_kv = 2, .seqlen_q = 3, .seqlen_k = 5, .head_dim = 16,
        .head_dim_v = 16, .q = numbers, .k = large, .v = large, .o = large + 512};
}

/* Two sequences of 2 queries and 2 keys, without pages. */
static struct five_steps_attention_problem on_gpu(void)
{
    struct five_steps_attention_problem p = sound();
    p.cu_seqlens_q = p.cu_seqlens_k = p.page_table = NULL;
    p.window = 0, p.device = GPU;
    return p;
}

/* The backward pass of one of them. */
static struct five_steps_attention_problem backward(void)
{
    static _Alignas(16) float dq[8], dk[8], dv[8];
    struct five_steps_attention_problem p = sound();
    p.batch = 1, p.cu_seqlens_q = p.cu_seqlens_k = p.page_table = NULL;
    p.d_o = numbers, p.dq = dq, p.dk = dk, p.dv = dv;
    return p;
}

/* A refusal is a code and one line, the same code without an error to write to, and touches no o. */
static void expect(struct five_steps_attention_problem p, int code, const char *word)
{
    static char workspace[1 << 20];
    struct five_steps_error error = {.code = 99};
    float before[sizeof results / sizeof *results];
    memcpy(before, results, sizeof before);
    int (*const call)(const struct five_steps_attention_problem *, void *, size_t,
                      struct five_steps_error *) =
        p.dv ? five_steps_attention_backward : five_steps_attention;
    int got = call(&p, workspace, sizeof workspace, &error);
    cr_expect(got == code && error.code == code && strstr(error.message, word) &&
              !strchr(error.message, '\n'), "code %d, want %d with '%s': '%s'", got, code, word,
              error.message);
    if (code) cr_expect(call(&p, workspace, sizeof workspace, NULL) == code);
    if (code) cr_expect(!memcmp(before, results, sizeof before), "%s: touched o", word);
}

/* A problem with one mistake. */
#define TRY(sound_one, code, word, ...)                                                    \
    {                                                                                      \
        struct five_steps_attention_problem p = sound_one;                                 \
        __VA_ARGS__;                                                                       \
        expect(p, code, word);                                                             \
    }
#define WRONG(code, word, ...) TRY(sound(), code, word, __VA_ARGS__)
#define ON_GPU(code, word, ...) TRY(on_gpu(), code, word, __VA_ARGS__)
#define WRONG_BACKWARD(code, word, ...) TRY(backward(), code, word, __VA_ARGS__)
#define WRONG_ANYWHERE(word, ...)                                                          \
    for (int device = CPU; device <= GPU; device++)                                        \
        TRY(plain(device), FIVE_STEPS_INVALID, word, __VA_ARGS__)

Test(library_calls, mistakes_are_named_on_both_devices)
{
    WRONG_ANYWHERE("size", p.size = 0);
    WRONG_ANYWHERE("device", p.device = 7);
    WRONG_ANYWHERE("type: 5", p.type = 5);
    WRONG_ANYWHERE("type", p.type = -1);
    WRONG_ANYWHERE("heads_q", p.heads_kv = 3);
    WRONG_ANYWHERE("heads_q", p.heads_kv = 0);
    WRONG_ANYWHERE("head_dim is 0", p.head_dim = 0);
    WRONG_ANYWHERE("head_dim_v", p.head_dim_v = 0);
    WRONG_ANYWHERE("scale", p.scale = NAN);
    WRONG_ANYWHERE("scale", p.scale = INFINITY);
    WRONG_ANYWHERE("q: is NULL", p.q = NULL);
    WRONG_ANYWHERE("v: is NULL", p.v = NULL);
    WRONG_ANYWHERE("o: is NULL", p.o = NULL);
    WRONG_ANYWHERE("k: starts", p.k = (const char *)p.k + 1);
    WRONG_ANYWHERE("'fast'", p.kernel = "fast");
    WRONG_ANYWHERE("two?lines", p.kernel = "two\nlines");
    WRONG_ANYWHERE("q: overlaps the output o", p.o = (void *)p.q);
    WRONG_ANYWHERE("lse: overlaps the output o", p.lse = (float *)p.o + 191); /* the last of o */
    WRONG_ANYWHERE("o overlap", p.o_strides = (struct five_steps_strides){256, 64, 8});
    WRONG_ANYWHERE("o overlap", p.o_strides = (struct five_steps_strides){256, 64, 15});
    WRONG_ANYWHERE("2^40", p.seqlen_k = (size_t)1 << 62, p.k_strides.batch = p.v_strides.batch = 16);
    WRONG_ANYWHERE("sizes", p.batch = (size_t)1 << 62, p.seqlen_q = 16); /* 0 modulo 2^64 */
    struct five_steps_error error;
    cr_expect(five_steps_attention(NULL, NULL, 0, &error) == FIVE_STEPS_INVALID);
    cr_expect(five_steps_softmax(NULL, NULL, 0, &error) == FIVE_STEPS_INVALID);
    cr_expect(five_steps_merge(NULL, &error) == FIVE_STEPS_INVALID);
}

/* An output may lie between the rows of an input, and share no byte with one.  Rows of 4 heads x 16 numbers
 * lie `pitch` apart, or heads do. */
Test(library_calls, only_rows_that_touch_overlap)
{
    static float memory[4096], bias[64];
    enum { ROW = 64, PITCH = 3 * ROW };
    const struct five_steps_strides rows = {0, 16, PITCH}, heads = {0, 32, 4 * 32}, bias_rows = {0, 0, 12};
    const struct { struct five_steps_strides of_q, of_o; size_t at; const char *says; } tries[] = {
        {rows, rows, ROW, ""}, {rows, rows, 2 * ROW, ""}, {heads, heads, 16, ""}, {heads, heads, 12 * 32, ""},
        {rows, rows, 1, "q: overlaps"}, {rows, rows, ROW - 1, "q: overlaps"}, {rows, rows, PITCH, "q: overlaps"},
        {rows, rows, 2 * ROW + 1, "q: overlaps"}, {heads, heads, 17, "q: overlaps"}, {heads, heads, 32, "q: overlaps"},
        {rows, {0, 48, PITCH}, ROW, "q: overlaps"}, {rows, {0}, 2 * ROW, "q: overlaps"}};
    for (int device = CPU; device <= GPU; device++)
        for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
            struct five_steps_attention_problem p = plain(device);
            struct five_steps_error error;
            size_t bytes;
            p.q = memory, p.q_strides = tries[i].of_q, p.o = memory + tries[i].at, p.o_strides = tries[i].of_o;
            int code = five_steps_attention_workspace(&p, &bytes, &error);
            cr_expect(code == (*tries[i].says ? FIVE_STEPS_INVALID : FIVE_STEPS_OK) &&
                      strstr(error.message, tries[i].says), "device %d, try %zu: %s", device, i, error.message);
        }
    /* 5 numbers of the bias, 7 others, of which lse has 3; or the bias from below */
    for (int touches = 0; touches < 2; touches++)
        TRY(plain(CPU), touches ? FIVE_STEPS_INVALID : FIVE_STEPS_OK, touches ? "bias: overlaps" : "",
            p.heads_q = p.heads_kv = 1, p.bias = bias, p.bias_is_strided = 1, p.bias_strides = bias_rows,
            p.lse = bias + 5 + 5 * touches);
    TRY(plain(CPU), FIVE_STEPS_INVALID, "bias: overlaps", p.heads_q = p.heads_kv = 1, p.bias = bias + 20,
        p.bias_is_strided = 1, p.bias_strides.row = (size_t)-10, p.lse = bias);
}

Test(library_calls, what_no_kernel_of_a_gpu_does_is_named)
{
    ON_GPU(FIVE_STEPS_UNSUPPORTED, "does not support a bias",
           p.type = FIVE_STEPS_BF16, p.kernel = "tuned", p.bias = numbers);
    for (int apart = 2; apart <= 3; apart++) /* strides that say what a bias without them is */
        ON_GPU(apart == 2 ? FIVE_STEPS_OK : FIVE_STEPS_UNSUPPORTED, apart == 2 ? "" : "a bias of each batch or head",
               p.type = FIVE_STEPS_F16, p.kernel = "tensor_cores", p.bias = numbers, p.bias_is_strided = 1,
               p.bias_strides.head = 7, p.bias_strides.row = (size_t)apart);
    ON_GPU(FIVE_STEPS_UNSUPPORTED, "head_dim above 256",
           p.type = FIVE_STEPS_F16, p.head_dim = 300, p.kernel = "tensor_cores");
    ON_GPU(FIVE_STEPS_UNSUPPORTED, "more than 2^29", p.seqlen_k = (size_t)1 << 31);
    ON_GPU(FIVE_STEPS_UNSUPPORTED, "tensor_cores does not support f32", p.kernel = "tensor_cores");
    ON_GPU(FIVE_STEPS_UNSUPPORTED, "sm_90", p.type = FIVE_STEPS_BF16, p.kernel = "tuned",
           p.head_dim = p.head_dim_v = 64);
    ON_GPU(FIVE_STEPS_INVALID, "q: starts", p.q = (const char *)p.q + 4);
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
    /* the window of the one query begins in the last row of page -7, or behind it */
    for (int left = 1; left <= 2; left++)
        WRONG(left == 1 ? FIVE_STEPS_OK : FIVE_STEPS_INVALID, left == 1 ? "" : "page_table",
              p.cu_seqlens_q = p.cu_seqlens_k = NULL, p.batch = p.seqlen_q = 1, p.seqlen_k = 4,
              p.page_size = p.pages_per_sequence = 2, p.page_table = freed, p.window_left = left);
    WRONG(FIVE_STEPS_INVALID, "q: is NULL", p.q = NULL);
    WRONG(FIVE_STEPS_INVALID, "size", p.size--);
    WRONG(FIVE_STEPS_INVALID, "sizes", p.k_strides.head = p.k_strides.batch = SIZE_MAX / 2);
    WRONG(FIVE_STEPS_OK, "", p.device = GPU; p.isolate_v = 1);
    WRONG(FIVE_STEPS_UNSUPPORTED, "invariant bits in 16 bits", p.device = GPU,
          p.type = FIVE_STEPS_F16, p.invariant = 1);
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

Test(library_calls, mistakes_of_the_backward_pass_are_named)
{
    static const float sink = 1;
    WRONG_BACKWARD(FIVE_STEPS_OK, "", (void)p);
    WRONG_BACKWARD(FIVE_STEPS_OK, "", p.sinks = &sink); /* nobody wants dsinks */
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "d_o: is NULL", p.d_o = NULL);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "dk: is NULL", p.dk = NULL);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "lse: is NULL", p.lse = NULL);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "q: overlaps the output dq", p.dq = (void *)p.q);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "dk: overlaps the output dq", p.dk = p.dq);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "dv: overlaps the output dk", p.dv = p.dk);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "dsinks: overlaps the output dv", p.sinks = &sink, p.dsinks = p.dv);
    WRONG_BACKWARD(FIVE_STEPS_INVALID, "size", p.size += 8);
    WRONG_BACKWARD(FIVE_STEPS_UNSUPPORTED, "pages", p = sound(); p.d_o = numbers;
                   p.dq = p.dk = p.dv = results);
    WRONG_BACKWARD(FIVE_STEPS_UNSUPPORTED, "backward", p.kernel = "all_cores");
    for (int way = 0; way < 4; way++) { /* without keys dq is 0, without queries dk */
        struct five_steps_attention_problem p = backward();
        float *d = way % 2 ? p.dk : p.dq;
        *(way % 2 ? &p.seqlen_q : &p.seqlen_k) = 0;
        p.window = 0, p.device = way / 2 ? GPU : CPU, d[3] = 7;
        expect(p, FIVE_STEPS_OK, "");
        cr_expect(d[3] == 0, "way %d: %g", way, (double)d[3]);
    }
}

Test(library_calls, softmax_refuses_what_is_wrong)
{
    static float x[8], y[8];
    const struct five_steps_softmax_problem sound = {
        .size = sizeof sound, .rows = 2, .cols = 4, .x = x, .y = y};
    struct { struct five_steps_softmax_problem p; const char *says; } of[] = {
        {sound, "x: is NULL"}, {sound, "y: is NULL"}, {sound, "x: overlaps the output y"},
        {sound, "sizes"}, {sound, "2^30"}, {sound, ""}};
    of[0].p.x = of[1].p.y = NULL;
    of[2].p.cols = 2, of[2].p.y = x + 3; /* it returned 0 */
    of[3].p.rows = (size_t)1 << 62;
    of[4].p.device = GPU, of[4].p.rows = 1, of[4].p.cols = ((size_t)1 << 30) + 1;
    of[4].p.x = of[4].p.y = (void *)(uintptr_t)4096; /* not looked at */
    of[5].p.rows = 0;
    for (int i = 0; i < 6; i++) {
        struct five_steps_error error;
        size_t bytes;
        int code = i == 4 ? five_steps_softmax_workspace(&of[i].p, &bytes, &error)
                          : five_steps_softmax(&of[i].p, NULL, 0, &error);
        cr_expect(code == (i == 5 ? FIVE_STEPS_OK : i == 4 ? FIVE_STEPS_UNSUPPORTED : FIVE_STEPS_INVALID));
        cr_expect(strstr(error.message, of[i].says), "%s", error.message);
    }
}
