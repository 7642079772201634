/* test_library_softmax.c: softmax and the merge of two parts of the C library, against the
 * definition. */
#include "library_problem.h"

/* ---- Softmax. ---- */

static void check_softmax(int device, int type, size_t rows, size_t cols, int log)
{
    struct random r = {rows + cols};
    float *x = oracle_normals(&r, rows * cols, 5);
    if (rows > 1) for (size_t j = 0; j < cols; j++) x[cols + j] = -INFINITY;
    struct framed y = framed_new(rows * cols * size_of(type), 0);
    struct five_steps_softmax_problem p = {.size = sizeof p, .device = device, .type = type,
                                           .rows = rows, .cols = cols, .log = log};
    struct five_steps_error error;
    size_t bytes;
    p.x = converted(type, x, rows * cols), p.y = y.at;
    cr_assert(!five_steps_softmax_workspace(&p, &bytes, &error), "%s", error.message);
    struct framed work = framed_new(bytes, 5);
    cr_assert(!five_steps_softmax(&p, work.at, bytes, &error), "%s", error.message);
    for (size_t i = 0; i < rows; i++) {
        long double l = 0;
        for (size_t j = 0; j < cols; j++) l += expl(x[i * cols + j]);
        for (size_t j = 0; j < cols; j++) {
            double want = l == 0 ? (log ? -INFINITY : 0)
                        : log ? (double)(x[i * cols + j] - logl(l))
                              : (double)(expl(x[i * cols + j]) / l);
            double got = (double)load(type, y.at, i * cols + j);
            double allowed = allowed_in(type) * fmax(1, log ? fabs(want) : 0);
            cr_assert(got == want || fabs(got - want) <= allowed,
                      "device %d type %d [%zu, %zu] log %d: y[%zu][%zu]: got %g, want %g",
                      device, type, rows, cols, log, i, j, got, want);
        }
    }
    framed_free(y, "y"), framed_free(work, "softmax's workspace");
    free((void *)p.x), free(x);
}

Test(library, softmax_is_the_definition_on_both_devices_in_every_type)
{
    static const size_t sizes[][2] = {{1, 1}, {3, 7}, {2, 300}, {5, 1000}, {2, 20000}};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++)
            for (int i = 0; i < 5; i++)
                for (int log = 0; log < 2; log++)
                    check_softmax(device, type, sizes[i][0], sizes[i][1], log);
}

Test(library, softmax_refuses_what_is_wrong)
{
    float x[8] = {0}, y[8];
    struct five_steps_error error;
    struct five_steps_softmax_problem p = {.size = sizeof p, .rows = 2, .cols = 4, .y = y};
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_INVALID &&
              strstr(error.message, "x: is NULL"), "%s", error.message);
    p.x = x, p.y = NULL;
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_INVALID &&
              strstr(error.message, "y: is NULL"), "%s", error.message);
    p.rows = (size_t)1 << 62;
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_INVALID &&
              strstr(error.message, "sizes"), "%s", error.message);
    p.device = GPU, p.rows = 1, p.cols = ((size_t)1 << 30) + 1;
    p.x = p.y = (void *)(uintptr_t)4096; /* not looked at */
    size_t bytes;
    cr_expect(five_steps_softmax_workspace(&p, &bytes, &error) == FIVE_STEPS_UNSUPPORTED &&
              strstr(error.message, "2^30"), "%s", error.message);
    p.device = CPU, p.rows = 0;
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_OK);
}

/* ---- Merge. ---- */

/* Attention of keys first .. end - 1 of t. */
static void attend_part(const struct test *t, size_t first, size_t end, void *o, float *lse)
{
    struct test part = *t;
    size_t element = size_of(t->p.type);
    part.p.seqlen_k = end - first;
    part.p.k = (const char *)t->p.k + first * t->p.head_dim * element;
    part.p.v = (const char *)t->p.v + first * t->p.head_dim_v * element;
    attend(&part, o, lse);
}

Test(library, merged_parts_are_the_whole)
{
    const size_t shape[7] = {1, 1, 1, 7, 100, 32, 40};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++)
            for (int cut = 0; cut <= 100; cut += 25) {
                struct test t = test_new(device, type, shape, 0, 0);
                struct framed o1 = framed_new(t.n_o * size_of(type), 0);
                struct framed o2 = framed_new(t.n_o * size_of(type), 0);
                float lse1[7], lse2[7];
                if (type) cut = cut ? 100 : 0; /* 16 bits: the unit alone, exactly */
                attend_part(&t, 0, (size_t)cut, o1.at, lse1);
                attend_part(&t, (size_t)cut, 100, o2.at, lse2);
                struct five_steps_error error;
                struct five_steps_merge_problem m = {
                    .size = sizeof m, .device = device, .type = type, .rows = 7,
                    .head_dim_v = 40, .o1 = o1.at, .o2 = o2.at, .lse1 = lse1, .lse2 = lse2,
                    .o = o2.at, .lse = lse2}; /* in place */
                struct framed kept = framed_new(o1.bytes, 0);
                memcpy(kept.at, cut ? o1.at : o2.at, kept.bytes);
                cr_assert(!five_steps_merge(&m, &error), "%s", error.message);
                compare(&t, o2.at, lse2);
                if (cut == 0 || cut == 100)
                    cr_assert(!memcmp(o2.at, kept.at, kept.bytes), "the unit moved a bit");
                framed_free(o1, "o1"), framed_free(o2, "o2"), framed_free(kept, "kept");
                test_free(&t);
            }
}

Test(library, merging_nothing_with_nothing_is_nothing)
{
    for (int device = CPU; device <= GPU; device++) {
        float nan[4] = {NAN, NAN, NAN, NAN}, o[4], lse, none = -INFINITY;
        struct five_steps_merge_problem m = {
            .size = sizeof m, .device = device, .type = FIVE_STEPS_F32, .rows = 1,
            .head_dim_v = 4, .o1 = nan, .o2 = nan, .lse1 = &none, .lse2 = &none, .o = o,
            .lse = &lse};
        cr_assert(!five_steps_merge(&m, NULL));
        cr_assert(lse == -INFINITY && o[0] == 0 && o[3] == 0);
        m.lse2 = NULL;
        struct five_steps_error error;
        cr_assert(five_steps_merge(&m, &error) == FIVE_STEPS_INVALID &&
                  strstr(error.message, "lse2"));
        m.rows = 0;
        cr_assert(!five_steps_merge(&m, NULL));
    }
}
