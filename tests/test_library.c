/* test_library.c: what the C library computes: the suite's cases, judged by its reference; kernels by
 * name; workspaces; threads; the merge of two parts. */
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

#include "library_call.h"

TestSuite(library, .timeout = 900);

static int try_case(const struct test_case *c, enum dtype dtype, int device)
{
    struct inputs *in = inputs_new(c, dtype, test_case_seed(c));
    int code = judge_library(in, device, NULL, c->name);
    inputs_free(in);
    return code;
}

Test(library, cases_of_the_suite_are_right)
{
    size_t n, computed = 0, refused = 0;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++) {
        enum op op = c[i].problem.op;
        int called = op == OP_ATTENTION || op == OP_BACKWARD || op == OP_SOFTMAX || op == OP_LOGSOFTMAX;
        if (!called || !c[i].quick || strstr(c[i].name, "-scale0")) continue; /* 0: the usual */
        int in_8_bits = c[i].executed && op == OP_ATTENTION && !c[i].problem.page_size;
        for (int type = F32; type <= (!c[i].halves ? F32 : in_8_bits ? INT8 : BF16); type++) {
            if (c[i].problem.cache && type >= E4M3) continue;
            try_case(&c[i], (enum dtype)type, CPU);
            if (!c[i].executed || type == F16 || type >= E4M3 || c[i].problem.cache) continue; /* test_eight_bits.c */
            if (try_case(&c[i], (enum dtype)type, GPU)) refused++;
            else computed++;
        }
    }
    cr_expect(computed >= 40, "the GPU's kernels computed %zu cases", computed);
    cr_expect(refused > 0, "all cases are supported: drop UNSUPPORTED from judge_library()");
}

Test(library, kernels_are_taken_by_name)
{
    static const char *const names[2][2] = {{"tiled", "microkernel"}, {"tiled", "register_tiled"}};
    struct inputs *in = inputs_of(problem_of(OP_ATTENTION, (struct shape){1, 2, 2, 33, 65, 64, 64}, 1, 0),
                                  RANDOM, F32);
    for (int device = CPU; device <= GPU; device++)
        for (int i = 0; i < 2; i++) {
            const char *name = NULL, *choice = NULL;
            double moved = 0;
            struct five_steps_attention_problem p = attention_as(&in->problem, &in->arrays, device);
            p.kernel = names[device][i], p.isolate_v = 0;
            cr_expect(!judge_library(in, device, p.kernel, p.kernel));
            cr_assert(five_steps_attention_kernel(&p, &name, &moved, NULL) == 0);
            cr_assert(!strcmp(name, names[device][i]) && moved > 0, "%s, %g", name, moved);
            cr_assert(five_steps_attention_choice(&p, &choice, NULL) == 0);
            cr_expect(!strncmp(choice, "tile", 4) == !strcmp(name, "register_tiled"), "%s: %s",
                      name, choice);
            cr_expect(five_steps_attention_choice(&p, NULL, NULL) == FIVE_STEPS_INVALID);
        }
    inputs_free(in);
}

/* A problem with its inputs, and o. */
struct call { struct inputs *in; struct outputs out; struct five_steps_attention_problem p; };

static struct call call_new(struct shape s, int device)
{
    struct call c = {.in = inputs_of(problem_of(OP_ATTENTION, s, 1, 0), RANDOM, F32)};
    struct arrays a = c.in->arrays;
    c.out = outputs_new(&c.in->problem);
    outputs_bind(&c.out, &a);
    c.p = attention_as(&c.in->problem, &a, device);
    return c;
}

static void call_free(struct call *c) { inputs_free(c->in), outputs_free(&c->out); }

Test(library, a_workspace_that_is_too_small_is_refused)
{
    struct call c = call_new((struct shape){1, 4, 2, 300, 500, 64, 64}, CPU);
    struct five_steps_error error;
    size_t bytes;
    omp_set_num_threads(1); /* with more a smaller workspace may do */
    cr_assert(!five_steps_attention_workspace(&c.p, &bytes, &error) && bytes > 0);
    void *work = malloc(bytes);
    cr_expect(five_steps_attention(&c.p, work, bytes - 1, &error) == FIVE_STEPS_WORKSPACE);
    cr_expect(strstr(error.message, "are needed"), "%s", error.message);
    cr_expect(five_steps_attention(&c.p, NULL, bytes, &error) == FIVE_STEPS_WORKSPACE);
    omp_set_num_threads(8); /* what was enough for one thread is enough when there are eight */
    cr_assert(five_steps_attention(&c.p, work, bytes, &error) == 0, "%s", error.message);
    cr_assert(omp_get_max_threads() == 8);
    free(work);
    call_free(&c);
}

/* ---- Threads. ---- */

struct caller { struct call c; float want[33 * 64]; int wrong; };

static void *call_often(void *context)
{
    struct caller *c = context;
    for (int i = 0; i < 20; i++) {
        int code = CALL_WITH_WORKSPACE(five_steps_attention, &c->c.p, NULL, "in a thread");
        if (i == 0) memcpy(c->want, c->c.p.o, sizeof c->want);
        c->wrong += code != 0 || memcmp(c->c.p.o, c->want, sizeof c->want) != 0;
    }
    return NULL;
}

Test(library, threads_do_not_meet)
{
    enum { N = 6 };
    static struct caller callers[N];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        callers[i].c = call_new((struct shape){1, 1, 1, 33, 65, 64, 64}, i % 2 ? GPU : CPU);
        if (i == 4) callers[i].c.p.scale = 3;
        cr_assert(!pthread_create(&threads[i], NULL, call_often, &callers[i]));
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(callers[i].wrong == 0, "caller %d: %d wrong", i, callers[i].wrong);
        cr_expect(memcmp(callers[i].want, callers[i % 2].want, sizeof callers->want) == 0 || i == 4);
    }
    for (int i = 0; i < N; i++) call_free(&callers[i].c);
}

/* Where a thread cannot be made OpenMP's runtime ends the process, and with 100,000 it crashes. */
Test(library, as_many_threads_work_as_can_be_made)
{
    struct inputs *in = inputs_of(problem_of(OP_ATTENTION, (struct shape){1, 4, 4, 200, 200, 64, 64}, 0, 0),
                                  RANDOM, F32);
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    cr_assert(statm && fscanf(statm, "%zu", &pages) == 1 && !fclose(statm));
    struct rlimit now, less;
    getrlimit(RLIMIT_AS, &now);
    less = now, less.rlim_cur = pages * 4096 + ((rlim_t)300 << 20);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they take terabytes */
    setrlimit(RLIMIT_AS, &less);
#endif
    for (int n = 100000; n > 100; n /= 8) {
        omp_set_num_threads(n);
        judge_library(in, CPU, NULL, "many threads");
        cr_expect(omp_get_max_threads() == n);
    }
    setrlimit(RLIMIT_AS, &now);
    inputs_free(in);
}

/* ---- Merge. ---- */

/* The first `cut` keys and the rest, merged in place, are the whole; a part without keys leaves the
 * other bit for bit. */
Test(library, merged_parts_are_the_whole)
{
    enum { KEYS = 100, D = 32, DV = 40, ROWS = 7 };
    struct call c = call_new((struct shape){1, 1, 1, ROWS, KEYS, D, DV}, CPU);
    c.in->problem.causal = c.p.causal = 0;
    struct standard *s = standard_new(&c.in->problem, &c.in->arrays);
    for (int device = CPU; device <= GPU; device++)
        for (size_t cut = 0; cut <= KEYS; cut += 25) {
            _Alignas(16) float o[ROWS * DV], lse[ROWS], first[ROWS * DV];
            struct five_steps_attention_problem one = c.p, two = c.p;
            one.device = two.device = device;
            one.seqlen_k = cut, one.o = o, one.lse = lse;
            two.seqlen_k = KEYS - cut;
            two.k = (const float *)c.p.k + cut * D, two.v = (const float *)c.p.v + cut * DV;
            cr_assert(!CALL_WITH_WORKSPACE(five_steps_attention, &one, NULL, "one"));
            cr_assert(!CALL_WITH_WORKSPACE(five_steps_attention, &two, NULL, "two"));
            memcpy(first, cut ? o : two.o, sizeof first);
            struct five_steps_error error;
            struct five_steps_merge_problem m = {
                .size = sizeof m, .device = device, .type = FIVE_STEPS_F32, .rows = ROWS,
                .head_dim_v = DV, .o1 = o, .o2 = two.o, .lse1 = lse, .lse2 = two.lse,
                .o = two.o, .lse = two.lse};
            cr_assert(!five_steps_merge(&m, &error), "%s", error.message);
            struct verdict v = compare(s, &c.out);
            cr_expect(v.ok, "cut at %zu: %s", cut, v.reason);
            if (cut % KEYS == 0)
                cr_assert(!memcmp(two.o, first, sizeof first), "the unit moved a bit");
        }
    standard_free(s);
    call_free(&c);
}
