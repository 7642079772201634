/* Stage 3: the surrogate denominator, the normalised output, and what is not stored. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define main online_main
#define stage online_stage
#include "../03_online_softmax/variants.c"
#undef main
#undef stage
#include "problem/random.h"

#define U 0x1p-24

enum { N = 2000 };
static float seen_m[N], seen_l[N]; /* what softmax_row watches */

static void see(const char *name, size_t j, double number, const float *row, size_t n)
{
    (void)row, (void)n;
    if (!strcmp(name, "m")) seen_m[j] = (float)number;
    if (!strcmp(name, "l")) seen_l[j] = (float)number;
}

/* After every score, not only the last: l = sum_{t <= j} e^{x_t - m_j}. */
Test(online, surrogate_is_the_denominator_of_every_prefix)
{
    static float x[N], y[N];
    for (int kind = 0; kind < 3; kind++) {
        struct random r = {(uint64_t)kind};
        for (int j = 0; j < N; j++)
            x[j] = kind == 0   ? 5 * random_normal(&r)
                   : kind == 1 ? 0.05f * (float)j
                               : 2.0f;
        watcher = see;
        softmax_row(x, y, N);
        watcher = NULL;
        for (int j = 0; j < N; j++) {
            double m = -INFINITY, l = 0;
            if (j > 40 && j % 53) continue;
            for (int t = 0; t <= j; t++) m = fmax(m, x[t]);
            for (int t = 0; t <= j; t++) l += exp(x[t] - m);
            /* d_mean <= ln n, kappa = 1.1, D = R = j */
            double bound = (log(j + 1.0) + 1.1 + j + 2.1 * j) * U * l;
            cr_assert(seen_m[j] == (float)m && fabs(seen_l[j] - l) <= bound,
                      "kind %d, j = %d: (%g, %.9g), want (%g, %.9g)", kind, j, seen_m[j],
                      seen_l[j], m, l);
        }
    }
}

/* 0 floats per score beyond q, k, v and o: no workspace at any length. */
Test(online, attention_stores_no_score)
{
    const struct variant *const v[] = {&online, &online_normalised, &two_loops};
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = 4096, .seqlen_k = 4096, .head_dim = 64,
                        .head_dim_v = 64};
    for (int i = 0; i < 3; i++) {
        cr_assert(variant_scratch(v[i], &p) == 0, "%s", v[i]->name);
        cr_assert(v[i]->cost(&p).bytes == attention_io_bytes(&p), "%s", v[i]->name);
    }
}
