/* test_part_tuned.cc: the last rung on parts of the keys, executed on the CPU: the steps of a
 * ring one after another, each merged with the answer in the kernel (hopper/answer.h). */
#include <criterion/criterion.h>

#include <math.h>
#include <vector>

#include "../05_flash_cuda/multi_gpu/part_tuned.cu"

extern "C" {
#include "problem/dtype.h"
}

/* Two heads that share keys.  The piece takes queries 3 ... 72 of 80 in memory. */
enum { HEADS = 2, ALL = 80, FIRST = 3, QUERIES = 70, KEYS = 150 };

struct inputs { std::vector<uint16_t> q, k, v; size_t d; };

static float value(const std::vector<uint16_t> &x, size_t i)
{
    return dtypes[BF16].load(x.data(), i);
}

static std::vector<uint16_t> drawn(size_t n, double step)
{
    std::vector<uint16_t> x(n);
    for (size_t i = 0; i < n; i++)
        dtypes[BF16].store(x.data(), i, (float)(2 * sin(step * (double)i)));
    return x;
}

/* o and lse of a query, in double.  Keys beyond `last` are hidden. */
static double answer_of(const struct inputs &x, size_t row, size_t last,
                        std::vector<double> &o)
{
    std::vector<double> s(last + 1);
    double m = -INFINITY, l = 0;
    for (size_t j = 0; j <= last; j++) {
        for (size_t c = 0; c < x.d; c++)
            s[j] += 0.1 * value(x.q, row * x.d + c) * value(x.k, j * x.d + c);
        m = fmax(m, s[j]);
    }
    o.assign(x.d, 0.0);
    for (size_t j = 0; j <= last; j++) {
        double p = exp(s[j] - m);
        l += p;
        for (size_t c = 0; c < x.d; c++) o[c] += p * value(x.v, j * x.d + c);
    }
    for (double &c : o) c /= l;
    return m + log(l);
}

/* What a step leaves behind is an answer to the keys so far. */
struct ring_state {
    std::vector<uint16_t> o;
    std::vector<float> answer, lse;
};

/* Keys first ... end - 1.  causal: query i of the piece sees keys 0 ... i + 20 of all. */
template <class C>
static void step_of_ring(const struct inputs &x, struct ring_state &to, size_t first,
                         size_t end, bool causal)
{
    int counter;
    struct problem p = {.op = OP_ATTENTION, .dtype = BF16, .batch = 1, .heads_q = HEADS,
                        .heads_kv = 1, .seqlen_q = QUERIES, .seqlen_k = end - first,
                        .head_dim = x.d, .head_dim_v = x.d, .causal = causal, .scale = 0.1f};
    if (causal) p.shift = 20 - (ptrdiff_t)first - ((ptrdiff_t)p.seqlen_k - QUERIES);
    const struct part part = {
        .q = x.q.data() + FIRST * x.d, .k = x.k.data() + first * x.d,
        .v = x.v.data() + first * x.d, .q_rows = ALL, .k_rows = KEYS - first,
        .o = to.o.data() + FIRST * x.d, .answer = to.answer.data() + FIRST * x.d,
        .lse = to.lse.data() + FIRST, .merges = first > 0, .keeps = end < KEYS,
        .workspace = &counter};
    launch_piece<C>(&p, &part);
}

/* Rows outside of the piece stay as they were. */
static void expect_rows(const struct inputs &x, const struct ring_state &got, bool causal)
{
    std::vector<double> want;
    for (size_t row = 0; row < HEADS * ALL; row++) {
        size_t i = row % ALL - FIRST;
        if (row % ALL < FIRST || i >= QUERIES) {
            cr_assert(isnan(got.lse[row]) && isnan(value(got.o, row * x.d)),
                      "row %zu was written", row);
            continue;
        }
        size_t last = causal && i + 20 < KEYS ? i + 20 : KEYS - 1;
        double lse = answer_of(x, row, last, want);
        cr_assert(fabs(got.lse[row] - lse) < 2e-3 * (1 + fabs(lse)),
                  "d %zu, causal %d, row %zu: lse %g, want %g", x.d, causal, row, got.lse[row],
                  lse);
        for (size_t c = 0; c < x.d; c++)
            cr_assert(fabs(value(got.o, row * x.d + c) - want[c]) < 0.03,
                      "d %zu, causal %d, row %zu, column %zu: %g, want %g", x.d, causal, row, c,
                      value(got.o, row * x.d + c), want[c]);
    }
}

/* Three steps.  Under the causal mask some rows see nothing of the last two parts. */
template <class C> static void expect_the_whole(size_t d, bool causal)
{
    const size_t ends[] = {0, 40, 41, KEYS};
    struct inputs x = {drawn(HEADS * ALL * d, 0.7), drawn(KEYS * d, 1.3), drawn(KEYS * d, 0.3),
                       d};
    struct ring_state to;
    to.o.assign(HEADS * ALL * d, 0x7fc0); /* NaN */
    to.answer.assign(HEADS * ALL * d, NAN);
    to.lse.assign(HEADS * ALL, NAN);
    for (int i = 0; i < 3; i++) step_of_ring<C>(x, to, ends[i], ends[i + 1], causal);
    expect_rows(x, to, causal);
}

using bf16 = __nv_bfloat16;

Test(part_tuned, steps_of_a_ring_are_the_whole)
{
    for (bool causal : {false, true}) {
        expect_the_whole<config<bf16, 128, 128, 2, 128, 2, true>>(128, causal);
        expect_the_whole<config<bf16, 64, 64, 3, 128, 3, true>>(40, causal);
        expect_the_whole<config<bf16, 256, 256, 2, 64, 2, true>>(256, causal);
    }
}
