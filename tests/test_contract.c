/* test_contract.c: what the harness and the variants share, held against its definition.
 * The reference uses the same functions, so a mistake in them would change both sides of
 * every check and stay unseen there. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "dropout.h"
#include "problem/feature.h"
#include "problem/layout.h"
#include "problem/choice.h"
#include "problem/variant.h"
#include "problem/arrays.h"

extern const struct variant naive_simd, naive_threads, safe_simd, safe_threads;

static const struct problem plain = {.op = OP_ATTENTION, .batch = 1, .heads_q = 2,
                                     .heads_kv = 2, .seqlen_q = 5, .seqlen_k = 7,
                                     .head_dim = 8, .head_dim_v = 8, .scale = 1};

/* The definition: query i stands at key i_0 = i + seqlen_k - seqlen_q and sees the keys
 * i_0 - window_left to i_0 + window_right, and with causal none behind i_0. */
static int sees(const struct problem *p, size_t i, size_t j)
{
    long i_0 = (long)i + (long)p->seqlen_k - (long)p->seqlen_q + (long)p->shift, key = (long)j;
    if (j >= p->seqlen_k || (p->causal && key > i_0)) return 0;
    if (!p->has_window) return 1;
    return (p->window_left < 0 || key >= i_0 - p->window_left) &&
           (p->window_right < 0 || key <= i_0 + p->window_right);
}

/* Steps p through all masks, sizes and shifts of a few queries and keys; 0 at the end. */
static int next_mask(struct problem *p)
{
    if (++p->seqlen_q < 7) return 1;
    p->seqlen_q = 1;
    if (++p->seqlen_k < 9) return 1;
    p->seqlen_k = 0;
    if (++p->shift < 4) return 1;
    p->shift = -3;
    if (++p->causal < 2) return 1;
    p->causal = 0;
    if (p->has_window && ++p->window_left < 4) return 1;
    p->window_left = -1;
    if (p->has_window && ++p->window_right < 3) return 1;
    p->window_right = -1;
    return ++p->has_window < 2;
}

/* The first problem of next_mask(). */
static struct problem first_mask(void)
{
    struct problem p = plain;
    p.seqlen_q = 1, p.seqlen_k = 0, p.shift = -3, p.window_left = p.window_right = -1;
    return p;
}

Test(contract, visible_keys_are_those_of_the_definition)
{
    struct problem p = first_mask();
    do
        for (size_t i = 0; i < p.seqlen_q; i++) {
            struct key_range keys = visible_keys(&p, i), before = visible_keys(&p, i - (i > 0));
            cr_expect(keys.first <= keys.end && keys.end <= p.seqlen_k);
            cr_expect(before.first <= keys.first && before.end <= keys.end); /* tiles rely on it */
            for (size_t j = 0; j < 10; j++)
                cr_expect((keys.first <= j && j < keys.end) == sees(&p, i, j),
                          "causal %d, window %d: %td %td, shift %td, %zu queries, %zu keys: "
                          "query %zu, key %zu", p.causal, p.has_window, p.window_left,
                          p.window_right, p.shift, p.seqlen_q, p.seqlen_k, i, j);
        }
    while (next_mask(&p));
}

Test(contract, keys_of_a_tile_are_union_and_intersection)
{
    struct problem p = first_mask();
    do
        for (size_t first = 0; first < p.seqlen_q; first++)
            for (size_t end = first + 1; end <= p.seqlen_q; end++)
                for (size_t j = 0; j < p.seqlen_k; j++) {
                    size_t n = 0;
                    for (size_t i = first; i < end; i++) n += (size_t)sees(&p, i, j);
                    struct key_range some = some_row_sees(problem_mask(&p), first, end);
                    struct key_range all = all_rows_see(problem_mask(&p), first, end);
                    cr_expect((some.first <= j && j < some.end) == (n > 0));
                    cr_expect((all.first <= j && j < all.end) == (n == end - first));
                }
    while (next_mask(&p));
}

static void nothing(const struct problem *p, const struct arrays *a)
{
    (void)p, (void)a;
}

/* A field of the problem changed gives its feature, and a variant that has never heard of the feature
 * is refused by its name. */
Test(contract, each_feature_has_its_bit_and_its_name)
{
#define WITH(change) ({ struct problem p_ = plain; p_.change; p_; })
    const struct { struct problem p; unsigned features; const char *name; } rows[] = {
        {plain, 0, NULL},
        {{.op = OP_SOFTMAX, .rows = 3, .cols = 4}, 0, NULL},
        {WITH(causal = 1), WITH_CAUSAL, "a causal mask"},
        {WITH(has_bias = 1), WITH_BIAS, "a bias"},
        {WITH(heads_q = 4), WITH_GROUPS, "heads_q != heads_kv"},
        {WITH(head_dim_v = 9), WITH_HEAD_DIM_V, "head_dim_v"},
        {WITH(has_window = 1), WITH_WINDOW, "window"},
        {WITH(has_window = p_.shift = 1), WITH_SHIFT | WITH_WINDOW, ""},
        {WITH(softcap = 30), WITH_SOFTCAP, "soft cap"},
        {WITH(has_sinks = 1), WITH_SINKS, "sinks"},
        {WITH(has_bias_gradient = 1), WITH_BIAS_GRADIENT, "gradient of a bias"},
        {WITH(dropout = 0.1f), WITH_DROPOUT, "dropout"},
        {WITH(packed = 1), WITH_PACKED, "packed"},
        {WITH(page_size = 16), WITH_PAGES, "pages"},
        {WITH(has_lengths = 1), WITH_LENGTHS, "keys of each sequence"},
        {WITH(o_strides.row = 9), WITH_STRIDES, "strides"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct variant v = {.name = "deaf", .types = ALL_TYPES,
                            .does = {{OP_ATTENTION, nothing}, {OP_SOFTMAX, nothing}}};
        const char *refused = variant_refuses(&v, &rows[i].p);
        cr_expect(problem_features(&rows[i].p) == rows[i].features, "row %zu", i);
        cr_expect(rows[i].name ? refused && strstr(refused, rows[i].name) : !refused,
                  "row %zu: %s", i, refused);
        v.supports = rows[i].features;
        cr_expect_null(variant_refuses(&v, &rows[i].p), "row %zu", i);
    }
}

/* The generator's published example, of counter and key 0; and a row of keys is its keys one by one. */
Test(contract, dropout_draws_by_philox)
{
    const struct dropout zero = {{0, 0}, 0, 0, 1};
    const uint32_t want[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    struct four got = philox(&zero, 0, 0, 0);
    for (int k = 0; k < 4; k++) cr_expect_eq(got.x[k], want[k]);
    struct problem p = {.dropout = 0.25f, .seed = 5};
    struct dropout d = dropout_of(&p);
    float counts[50];
    for (uint32_t i = 0; i < 40; i++) {
        kept_keys(&d, 3, i, 7, 50, counts);
        for (uint32_t j = 0; j < 50; j++)
            cr_expect_eq(counts[j], is_kept(&d, 3, i, 7 + j) ? d.factor : 0, "%u %u", i, j);
    }
}

/* Pairs, bytes and scores are counted with the mask, not with the flags that make it: a causal
 * mask shifted by -3 shows 8 queries 0 0 0 1 2 3 4 5 keys, of which there are 5. */
Test(contract, counts_follow_the_mask)
{
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                        .seqlen_q = 8, .seqlen_k = 8, .head_dim = 4, .head_dim_v = 4,
                        .causal = 1, .shift = -3};
    cr_expect(problem_pairs(&p) == 15, "%g", problem_pairs(&p));
    cr_expect(attention_io_bytes(&p) == 4 * (8 * (8 + 5) + 8), "%g", attention_io_bytes(&p));
    p.shift = 0;
    cr_expect(problem_pairs(&p) == 32, "%g", problem_pairs(&p));
    cr_expect(attention_io_bytes(&p) == 4 * (8 * (8 + 8) + 8), "%g", attention_io_bytes(&p));
    p.causal = 0;
    cr_expect(problem_pairs(&p) == 64, "%g", problem_pairs(&p));
}

/* Where layout.h says that rows lie, against the formulas: the reference gathers by the same
 * functions, and would make the same mistake. */
Test(contract, rows_lie_where_the_definition_says)
{
    enum { HEADS = 3, D = 8, PAGE = 4 };
    static const int32_t cu[] = {0, 5, 5, 11}, table[] = {7, 2, 9, 0, 4, 1, 3, 8, 5};
    const struct problem whole = {.op = OP_ATTENTION, .batch = 3, .heads_q = HEADS,
                                  .heads_kv = HEADS, .seqlen_q = 6, .seqlen_k = 11,
                                  .head_dim = D, .head_dim_v = D};
    struct problem packed = whole, paged = whole, strided = whole;
    struct arrays a = {.cu_seqlens_q = cu, .cu_seqlens_k = cu, .page_table = table};
    packed.packed = 1, packed.total_q = packed.total_k = 11;
    paged.page_size = PAGE, paged.pages_per_sequence = 3, paged.n_pages = 10;
    strided.q_strides = strided.o_strides = strided.k_strides = (struct strides){1000, 10, 30};
    for (size_t b = 0; b < 3; b++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t i = 0; i < 6; i++) {
                struct sequence s = sequence_of(&whole, &a, b), t = sequence_of(&packed, &a, b);
                cr_expect(query_at(&whole, &s, strides_of_q(&whole), h, i) ==
                          ((b * HEADS + h) * 6 + i) * D);
                cr_expect(key_at(&whole, &a, &s, strides_of_k(&whole), h, i) ==
                          ((b * HEADS + h) * 11 + i) * D);
                cr_expect(key_at(&paged, &a, &s, strides_of_k(&paged), h, i) ==
                          (((size_t)table[3 * b + i / PAGE] * HEADS + h) * PAGE + i % PAGE) * D);
                cr_expect(query_at(&strided, &s, strides_of_q(&strided), h, i) ==
                          1000 * b + 10 * h + 30 * i);
                cr_expect(key_at(&strided, &a, &s, strides_of_k(&strided), h, i) ==
                          1000 * b + 10 * h + 30 * i);
                cr_expect(o_row_at(&strided, lse_at(&strided, &s, h, i)) ==
                          1000 * b + 10 * h + 30 * i);
                cr_expect(t.seqlen_q == (b == 0 ? 5 : b == 1 ? 0 : 6));
                if (i >= t.seqlen_q) continue;
                size_t row = h * 11 + (size_t)cu[b] + i;
                cr_expect(query_at(&packed, &t, strides_of_q(&packed), h, i) == row * D);
                cr_expect(key_at(&packed, &a, &t, strides_of_v(&packed), h, i) == row * D);
                cr_expect(lse_at(&packed, &t, h, i) == row && o_row_at(&packed, row) == row * D);
            }
}
