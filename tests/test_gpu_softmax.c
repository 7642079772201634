/* The GPU kernels of stages 1 to 3, executed on the CPU: every length around an edge of the
 * dispatch, rows that start anywhere, rows that are cut in slices, the table of traffic. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/problem/arrays.h"
#include "../common/problem/execute.h"
#include "../common/problem/half.h"

extern const struct variant gpu_four_kernels, gpu_cub, gpu_cub_fused_exp, gpu_three_pass;
extern const struct variant gpu_online, gpu_cub_monoid, gpu_shared, gpu_two_pass;
extern const struct variant gpu_one_pass, gpu_thread_per_row, gpu_block_per_row;

static float element(const void *x, enum dtype dtype, size_t i)
{
    if (dtype == F32) return ((const float *)x)[i];
    uint16_t bits = ((const uint16_t *)x)[i];
    return dtype == F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

static void set_element(void *x, enum dtype dtype, size_t i, float value)
{
    if (dtype == F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = dtype == F16 ? float_to_half(value) : float_to_bfloat(value);
}

/* Largest error of v on rows [rows, cols] of -3 .. 3, beyond one rounding of the type, as a
 * part of the largest probability of its row.  What lies around y must survive. */
static double worst_error(const struct variant *v, enum dtype dtype, size_t rows, size_t cols)
{
    size_t n = rows * cols, size = dtype == F32 ? 4 : 2;
    char *x = aligned_alloc(1024, (n * size + 1023) / 1024 * 1024);
    char *all = aligned_alloc(1024, (n * size + 2 * GUARD + 1023) / 1024 * 1024);
    memset(all, 0x5a, n * size + 2 * GUARD);
    char *y = all + GUARD;
    for (size_t i = 0; i < n; i++)
        set_element(x, dtype, i, (float)((i * 2654435761u >> 8) % 6001) / 1000 - 3);
    struct problem p = {.op = OP_SOFTMAX, .dtype = dtype, .rows = rows, .cols = cols};
    struct arrays a = {.x = x, .y = y};
    const char *why = execute(v, &p, &a);
    cr_assert(!why, "%s [%zu, %zu]: %s", v->name, rows, cols, why);
    double worst = 0, unit = dtype == F32 ? 0 : dtype == F16 ? 1.0 / 2048 : 1.0 / 256;
    double least = dtype == F16 ? 0x1p-25 : 0; /* half of the spacing near 0 */
    for (size_t i = 0; i < rows; i++) {
        double l = 0, largest = 0;
        for (size_t j = 0; j < cols; j++) {
            double e = exp(element(x, dtype, i * cols + j));
            l += e;
            largest = e > largest ? e : largest;
        }
        for (size_t j = 0; j < cols; j++) {
            double want = exp(element(x, dtype, i * cols + j)) / l;
            double err = fabs(element(y, dtype, i * cols + j) - want) - unit * want - least;
            err *= l / largest;
            if (!(err <= worst)) worst = isnan(err) ? INFINITY : err;
        }
    }
    for (int i = 0; i < GUARD; i++)
        cr_assert(all[i] == 0x5a && y[n * size + i] == 0x5a, "%s [%zu, %zu] wrote outside",
                  v->name, rows, cols);
    free(x);
    free(all);
    return worst;
}

static void expect_right(const struct variant *v, enum dtype dtype, size_t rows, size_t cols)
{
    double err = worst_error(v, dtype, rows, cols);
    cr_expect(err <= 2e-6, "%s [%zu, %zu] type %d: error %g, allowed 2e-6", v->name, rows,
              cols, dtype, err);
}

Test(gpu_softmax, one_pass_is_right_around_every_edge_of_its_dispatch)
{
    static const size_t edges[] = {4, 32, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
    for (enum dtype t = F32; t <= BF16; t++) {
        expect_right(&gpu_one_pass, t, 5, 1);
        for (size_t e = 0; e < sizeof edges / sizeof *edges; e++)
            for (size_t cols = edges[e] - 1; cols <= edges[e] + 1; cols++)
                expect_right(&gpu_one_pass, t, 3, cols);
    }
}

/* 17 rows start at every place in a sector of 32 bytes. */
Test(gpu_softmax, short_rows_of_every_length_are_right)
{
    for (enum dtype t = F32; t <= BF16; t++)
        for (size_t cols = 1; cols <= 130; cols++) expect_right(&gpu_one_pass, t, 17, cols);
}

Test(gpu_softmax, rows_may_start_anywhere)
{
    static const struct variant *const all[] = {&gpu_shared, &gpu_two_pass, &gpu_one_pass};
    for (size_t v = 0; v < 3; v++)
        for (enum dtype t = F32; t <= BF16; t++)
            for (size_t cols = 257; cols < 257 + 8; cols++)
                expect_right(all[v], t, 9, cols);
}

Test(gpu_softmax, two_pass_cuts_a_long_row_in_slices)
{
    expect_right(&gpu_two_pass, F32, 1, 100003);
    expect_right(&gpu_two_pass, BF16, 2, 65541);
}

Test(gpu_softmax, one_pass_says_what_it_takes)
{
    static const struct { enum dtype dtype; size_t cols; const char *name; } cases[] = {
        {F32, 1, "gpu_registers"},     {F32, 8192, "gpu_registers"},
        {F32, 8193, "gpu_shared"},     {BF16, 16384, "gpu_registers"},
        {BF16, 16385, "gpu_shared"},   {F32, 1 << 20, "gpu_two_pass"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem p = {.dtype = cases[i].dtype, .rows = 1, .cols = cases[i].cols};
        cr_expect_str_eq(gpu_one_pass.picks(&p), cases[i].name, "%zu elements: %s, not %s",
                         p.cols, gpu_one_pass.picks(&p), cases[i].name);
    }
}

/* The table of traffic: 6, 6, 4 and 4, 3, 3, 2 passes, and stage 1's 3. */
Test(gpu_softmax, predicted_passes_are_those_of_the_table)
{
    static const struct { const struct variant *v; double passes; } cases[] = {
        {&gpu_thread_per_row, 3}, {&gpu_block_per_row, 3}, {&gpu_four_kernels, 6},
        {&gpu_cub, 6},            {&gpu_cub_fused_exp, 4}, {&gpu_three_pass, 4},
        {&gpu_online, 3},         {&gpu_cub_monoid, 3},    {&gpu_two_pass, 3},
        {&gpu_one_pass, 2},
    };
    struct problem p = {.rows = 7, .cols = 1000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cost c = cases[i].v->cost(&p);
        cr_expect(c.passes == cases[i].passes && c.bytes == 4 * 7000 * cases[i].passes,
                  "%s: %g passes, %g bytes, want %g passes", cases[i].v->name,
                  c.passes, c.bytes, cases[i].passes);
    }
}
