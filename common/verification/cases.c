/* cases.c: the list of cases.
 *
 * Sizes sit on and around the edges of the tiles that the stages use (16, 32, 48, 64,
 * 128, 176 rows or keys); a case is as small as its point allows, so that a scalar
 * variant does the whole list in a second or two. */
#include "verification/cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "problem/random.h"
#include "problem/variant.h"

enum { MOST_CASES = 1000 };

/* What a case is marked as. */
enum { QUICK = 1, EXECUTED = 2, BOTH = QUICK | EXECUTED, ONLY_GPU = 4 };

static struct test_case list[MOST_CASES];
static size_t n_cases;

static const char *const recipe_names[N_RECIPES] = {
    [RANDOM] = "random",
    [WIDE] = "wide",
    [RANGE_80] = "range_80",
    [EQUAL] = "equal",
    [ASCENDING] = "ascending",
    [DESCENDING] = "descending",
    [OUTLIER] = "outlier",
    [SHIFT_20] = "shift_20",
    [SHIFT_200] = "shift_200",
    [SHIFT_UP] = "shift_up",
    [LOW] = "low",
    [LARGE] = "large",
    [VAST] = "vast",
    [NEAR_MAX] = "near_max",
    [OPPOSITE] = "opposite",
    [ZERO_Q] = "zero_q",
    [MARKERS] = "markers",
    [MASK_SOME] = "mask_some",
    [MASK_ROW] = "mask_row",
    [MASK_FIRST] = "mask_first",
    [MASK_LAST] = "mask_last",
    [MASK_MIDDLE] = "mask_middle",
    [MASK_LANES] = "mask_lanes",
    [MASK_BUT_ONE] = "mask_but_one",
    [NAN_Q] = "nan_q",
    [NAN_K] = "nan_k",
    [INF_K] = "inf_k",
    [NAN_V] = "nan_v",
    [NAN_V_ONE] = "nan_v_one",
    [NAN_V_FAR] = "nan_v_far",
    [INF_V] = "inf_v",
    [INF_SCORE] = "inf_score",
    [MINUS_INF] = "minus_inf",
    [MINUS_INF_V] = "minus_inf_v",
    [MINUS_INF_ALL] = "minus_inf_all",
    [TINY] = "tiny",
};

const char *recipe_name(enum recipe recipe)
{
    return recipe_names[recipe];
}

/* Appends to a case's name. */
static void name_add(struct test_case *c, const char *format, ...)
{
    size_t n = strlen(c->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->name + n, sizeof c->name - n, format, arguments);
    va_end(arguments);
}

static struct test_case *add(enum op op, enum recipe recipe, size_t at, int marks)
{
    if (n_cases == MOST_CASES) {
        fprintf(stderr, "cases.c: more than %d cases\n", MOST_CASES);
        exit(1);
    }
    struct test_case *c = &list[n_cases++];
    c->problem.op = op;
    c->recipe = recipe;
    c->at = at;
    c->quick = (marks & QUICK) != 0;
    c->executed = (marks & EXECUTED) != 0;
    c->only_gpu = (marks & ONLY_GPU) != 0;
    c->halves = recipe != VAST && recipe != NEAR_MAX && recipe != OPPOSITE;
    name_add(c, "%s-%s", op_name(op), recipe_names[recipe]);
    if (at) name_add(c, "@%zu", at);
    return c;
}

static void add_rows(enum op op, enum recipe recipe, size_t at, size_t rows, size_t cols,
                     int marks)
{
    struct test_case *c = add(op, recipe, at, marks);
    c->problem.rows = rows;
    c->problem.cols = cols;
    if (recipe == LOW) c->halves = 0; /* -1e5 is no float16 */
    name_add(c, "-%zux%zu", rows, cols);
}

static void add_row_sizes(enum op op)
{
    static const size_t every[] = {1,    2,    3,    4,    5,    7,    8,    9,    13,
                                   15,   16,   17,   31,   32,   33,   47,   48,   49,
                                   63,   64,   65,   97,   127,  128,  129,  175,  176,
                                   177,  255,  256,  257,  511,  512,  513,  1000, 1023,
                                   1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 10007};
    static const size_t some[] = {1, 2, 3, 8, 17, 31, 33, 64, 129, 257, 1000, 1025};
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        int marks = 0;
        for (size_t k = 0; k < sizeof some / sizeof *some; k++)
            if (some[k] == every[i]) marks = BOTH;
        add_rows(op, RANDOM, 0, every[i] <= 257 ? 3 : 2, every[i], marks);
    }
    add_rows(op, RANDOM, 0, 1, 1, QUICK);
    add_rows(op, RANDOM, 0, 257, 3, BOTH);
    add_rows(op, RANDOM, 0, 64, 64, QUICK);
    add_rows(op, RANDOM, 0, 1000, 130, 0);
    add_rows(op, RANDOM, 0, 1, 100003, 0);
    add_rows(op, RANDOM, 0, 1, 1000003, 0);
    add_rows(op, RANDOM, 0, 70001, 3, 0); /* a grid's y has 65535 blocks */
    add_rows(op, RANDOM, 0, 1001, 20011, ONLY_GPU);
    add_rows(op, WIDE, 0, 5, 2000003, ONLY_GPU);
}

static void add_softmax(enum op op)
{
    add_row_sizes(op);
    static const enum recipe shapes[] = {
        WIDE,     RANGE_80, EQUAL, ASCENDING, DESCENDING, SHIFT_20,   SHIFT_200,
        SHIFT_UP, LOW,      LARGE, VAST,      MASK_SOME,  MASK_LANES, TINY};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        add_rows(op, shapes[i], 0, 4, 37, BOTH);
        add_rows(op, shapes[i], 0, 3, 1025, QUICK);
        add_rows(op, shapes[i], 0, 2, 20011, 0);
    }
    static const size_t at[] = {0,   1,   15,  16,  31,   32,   63,  64,
                                127, 128, 255, 256, 1023, 1024, 1029};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        int marks = i % 4 == 0 ? QUICK : 0;
        add_rows(op, OUTLIER, at[i], 2, 1030, marks);
        add_rows(op, MASK_BUT_ONE, at[i], 2, 1030, marks);
        if (at[i]) add_rows(op, MASK_FIRST, at[i], 2, 1030, marks);
        if (at[i]) add_rows(op, MASK_LAST, at[i], 2, 1030, marks);
    }
    static const size_t middles[] = {1, 64, 448};
    for (size_t i = 0; i < sizeof middles / sizeof *middles; i++)
        add_rows(op, MASK_MIDDLE, middles[i], 2, 513, i == 1 ? BOTH : 0);
    add_rows(op, MASK_ROW, 1, 3, 130, BOTH);
    add_rows(op, MASK_ROW, 0, 1, 1, BOTH);
    add_rows(op, MASK_ROW, 0, 2, 5000, 0);
    add_rows(op, MASK_FIRST, 5000, 1, 5001, 0);
    add_rows(op, NAN_Q, 1, 3, 70, BOTH);
    add_rows(op, NAN_Q, 0, 2, 3000, 0);
    add_rows(op, INF_SCORE, 1, 3, 70, BOTH);
    add_rows(op, INF_SCORE, 0, 2, 3000, 0);
}

static void add_means(void)
{
    static const size_t sizes[] = {1, 2, 3, 7, 16, 17, 64, 100, 1000, 4097, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        add_rows(OP_MEAN, RANDOM, 0, 3, sizes[i], sizes[i] < 1000 ? BOTH : 0);
    static const enum recipe shapes[] = {EQUAL, ASCENDING, DESCENDING, SHIFT_UP,
                                         LARGE, NEAR_MAX,  OPPOSITE,   TINY};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        add_rows(OP_MEAN, shapes[i], 0, 2, 3, BOTH);
        add_rows(OP_MEAN, shapes[i], 0, 2, 1000, QUICK);
    }
    add_rows(OP_MEAN, NAN_Q, 1, 3, 50, BOTH);
}

static void add_fused(void)
{
    static const size_t sizes[] = {1,  2,   3,   5,    8,    17,   31,
                                   64, 100, 257, 1000, 4099, 50021};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        add_rows(OP_FUSED_REDUCTION, RANDOM, 0, 3, sizes[i], sizes[i] < 1000 ? BOTH : 0);
    static const enum recipe shapes[] = {WIDE,       EQUAL,    ASCENDING,
                                         DESCENDING, OUTLIER,  SHIFT_20,
                                         SHIFT_200,  SHIFT_UP, LARGE};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        add_rows(OP_FUSED_REDUCTION, shapes[i], 0, 2, 37, BOTH);
        add_rows(OP_FUSED_REDUCTION, shapes[i], 0, 2, 1003, 0);
    }
}

/* What is left out is 1 (batch, heads), 64 (d), heads (kv), d (dv), 0 (causal, bias),
 * 1/sqrt(d) (scale). */
struct shape {
    size_t q, k, d, dv, batch, heads, kv;
    int causal, bias, scaled;
    float scale;
};
#define SHAPE(...) (struct shape){__VA_ARGS__}

static void add_attention(enum op op, enum recipe recipe, size_t at, struct shape s,
                          int marks)
{
    struct test_case *c = add(op, recipe, at, marks);
    struct problem *p = &c->problem;
    p->batch = s.batch ? s.batch : 1;
    p->heads_q = s.heads ? s.heads : 1;
    p->heads_kv = s.kv ? s.kv : p->heads_q;
    p->seqlen_q = s.q;
    p->seqlen_k = s.k;
    p->head_dim = s.d ? s.d : 64;
    p->head_dim_v = s.dv ? s.dv : p->head_dim;
    p->causal = s.causal;
    p->has_bias = s.bias;
    p->scale = s.scaled ? s.scale : 1 / sqrtf((float)p->head_dim);
    name_add(c, "-%zux%zu-d%zu", p->seqlen_q, p->seqlen_k, p->head_dim);
    if (p->head_dim_v != p->head_dim) name_add(c, "v%zu", p->head_dim_v);
    if (p->batch * p->heads_q > 1)
        name_add(c, "-b%zuh%zukv%zu", p->batch, p->heads_q, p->heads_kv);
    if (p->causal) name_add(c, "-causal");
    if (p->has_bias) name_add(c, "-bias");
    if (s.scaled) name_add(c, "-scale%g", s.scale);
}

/* Every tile edge, alone and against another; both orders; causal and not. */
static void add_lengths(enum op op)
{
    static const size_t edges[] = {1,   2,   3,   5,   7,   13,  15,  16,  17, 31,
                                   32,  33,  47,  48,  49,  63,  64,  65,  95, 97,
                                   127, 128, 129, 175, 176, 177, 255, 256, 257};
    static const size_t n = sizeof edges / sizeof *edges;
    for (size_t i = 0; i < n; i++) {
        size_t e = edges[i], other = edges[(i * 7 + 3) % n];
        int few = i % 3 == 0 && e < 200 ? EXECUTED : 0;
        add_attention(op, RANDOM, 0, SHAPE(.q = e, .k = e, .causal = (int)(i % 2)),
                      few | (i % 4 == 1 && e < 130 ? QUICK : 0));
        add_attention(op, RANDOM, 0,
                      SHAPE(.q = other, .k = e, .causal = (int)((i + 1) % 2)),
                      i % 5 == 0 && e < 200 && other < 200 ? BOTH : 0);
    }
    static const size_t pairs[][2] = {{2, 5}, {5, 2}, {113, 203}, {203, 113}, {128, 217},
                                      {217, 128}, {1, 239}, {239, 1}, {3, 799}, {799, 3},
                                      {108, 256}, {640, 128}, {128, 640}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int causal = 0; causal < 2; causal++) {
            size_t q = pairs[i][0], k = pairs[i][1];
            int small = i < 2 ? BOTH : i < 4 && causal ? BOTH : i == 6 ? EXECUTED : 0;
            add_attention(op, RANDOM, 0, SHAPE(.q = q, .k = k, .causal = causal), small);
        }
    add_attention(op, RANDOM, 0, SHAPE(.q = 1023, .k = 1024, .causal = 1), 0);
    add_attention(op, RANDOM, 0, SHAPE(.q = 1024, .k = 1023, .d = 32), 0);
    add_attention(op, RANDOM, 0, SHAPE(.q = 16, .k = 4099), 0);
    add_attention(op, RANDOM, 0, SHAPE(.q = 1, .k = 20011, .d = 40), 0);
}

static void add_dims(enum op op)
{
    static const size_t dims[] = {1,  2,  7,  16,  32,  40,  59,  63,
                                  65, 80, 96, 111, 128, 160, 192, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        size_t d = dims[i];
        int small = d == 1 || d == 40 || d == 59 || d == 128;
        int marks = small ? BOTH : d == 256 ? QUICK : 0;
        add_attention(op, RANDOM, 0, SHAPE(.q = 37, .k = 67, .d = d), marks);
        add_attention(op, RANDOM, 0, SHAPE(.q = 130, .k = 131, .d = d, .causal = 1), 0);
    }
    static const size_t two[][2] = {{64, 128}, {128, 64}, {40, 72}, {1, 64},
                                    {64, 1},   {7, 59},   {80, 96}, {192, 128},
                                    {96, 33},  {256, 16}, {16, 256}};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        add_attention(op, RANDOM, 0,
                      SHAPE(.q = 35, .k = 70, .d = two[i][0], .dv = two[i][1],
                            .causal = (int)(i % 2)), i < 4 ? BOTH : i < 6 ? QUICK : 0);
}

static void add_heads(enum op op)
{
    static const size_t groups[][3] = {{2, 1, 1}, {1, 2, 1}, {2, 4, 2}, {1, 8, 1},
                                       {3, 6, 3}, {2, 3, 3}, {1, 6, 2}, {1, 5, 5}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        size_t b = groups[i][0], h = groups[i][1], kv = groups[i][2];
        struct shape s =
            SHAPE(.q = 19, .k = 35, .d = 32, .batch = b, .heads = h, .kv = kv);
        add_attention(op, RANDOM, 0, s, i < 3 ? BOTH : 0);
        s.causal = 1;
        s.bias = 1;
        s.dv = 24;
        add_attention(op, RANDOM, 0, s, i == 2 ? BOTH : 0);
        s = SHAPE(.q = 66, .k = 130, .batch = b, .heads = h, .kv = kv,
                  .causal = (int)i % 2);
        add_attention(op, RANDOM, 0, s, 0);
    }
}

/* Scores of every kind, small (q 21, k 70) and over several tiles (q 49, k 300). */
static void add_scores(enum op op)
{
    static const enum recipe kinds[] = {WIDE,     EQUAL,     ASCENDING, DESCENDING,
                                        SHIFT_20, SHIFT_200, LOW,       LARGE,
                                        VAST,     ZERO_Q,    MARKERS,   TINY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        enum recipe kind = kinds[i];
        add_attention(op, kind, 0, SHAPE(.q = 21, .k = 70), BOTH);
        add_attention(op, kind, 0, SHAPE(.q = 70, .k = 77, .d = 40, .causal = 1),
                      EXECUTED);
        add_attention(op, kind, 0, SHAPE(.q = 49, .k = 300, .d = 128), 0);
        add_attention(op, kind, 0, SHAPE(.q = 3, .k = 5, .d = 7, .heads = 2), QUICK);
        add_attention(op, kind, 0, SHAPE(.q = 130, .k = 129, .batch = 2, .causal = 1), 0);
        if (kind != TINY && kind != VAST)
            add_attention(op, kind, 0, SHAPE(.q = 8, .k = 2050), 0);
    }
    static const size_t at[] = {0,  15,  16,  31,  32,  47,  48,  63,
                                64, 127, 128, 175, 176, 255, 256, 299};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        add_attention(op, OUTLIER, at[i], SHAPE(.q = 33, .k = 300),
                      i % 5 == 0 ? QUICK : 0);
        add_attention(op, OUTLIER, at[i], SHAPE(.q = 300, .k = 300, .d = 32, .causal = 1),
                      0);
        if (at[i] < 130 && i % 2 == 0)
            add_attention(op, OUTLIER, at[i], SHAPE(.q = 9, .k = at[i] + 1), EXECUTED);
    }
}

static void add_masks(enum op op)
{
    struct shape small = SHAPE(.q = 18, .k = 70, .bias = 1);
    struct shape large =
        SHAPE(.q = 66, .k = 300, .d = 40, .heads = 2, .kv = 1, .bias = 1);
    struct shape causal = SHAPE(.q = 70, .k = 130, .causal = 1, .bias = 1);
    static const size_t tiles[] = {1, 16, 32, 64, 65};
    add_attention(op, RANDOM, 0, small, BOTH);
    add_attention(op, RANDOM, 0, large, 0);
    add_attention(op, RANDOM, 0, causal, EXECUTED);
    add_attention(op, SHIFT_20, 0, causal, 0);
    add_attention(op, MASK_SOME, 0, small, BOTH);
    add_attention(op, MASK_SOME, 0, large, 0);
    add_attention(op, MASK_SOME, 0, causal, 0);
    add_attention(op, MASK_ROW, 3, small, BOTH);
    add_attention(op, MASK_ROW, 0, large, 0);
    add_attention(op, MASK_ROW, 69, causal, 0);
    add_attention(op, MASK_ROW, 0, SHAPE(.q = 1, .k = 1, .bias = 1), BOTH);
    add_attention(op, MASK_LANES, 0, small, BOTH);
    add_attention(op, MASK_LANES, 0, causal, 0);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        add_attention(op, MASK_FIRST, tiles[i], small, i >= 3 ? BOTH : 0);
        add_attention(op, MASK_LAST, tiles[i], small, i >= 3 ? BOTH : 0);
        add_attention(op, MASK_FIRST, tiles[i], causal, 0);
    }
    static const size_t wide_tiles[] = {128, 129, 176, 256, 299};
    for (size_t i = 0; i < sizeof wide_tiles / sizeof *wide_tiles; i++) {
        add_attention(op, MASK_FIRST, wide_tiles[i], large, i == 1 ? QUICK : 0);
        add_attention(op, MASK_LAST, wide_tiles[i], large, 0);
        add_attention(op, MASK_BUT_ONE, wide_tiles[i], large, i == 4 ? QUICK : 0);
    }
    add_attention(op, MASK_FIRST, 70, small, BOTH); /* nothing left */
    add_attention(op, MASK_MIDDLE, 3, small, BOTH);
    add_attention(op, MASK_MIDDLE, 64, causal, EXECUTED);
    add_attention(op, MASK_MIDDLE, 128, large, QUICK);
    add_attention(op, MASK_BUT_ONE, 69, small, BOTH);
    /* more queries than keys: the first rows see nothing */
    add_attention(op, ZERO_Q, 0, SHAPE(.q = 100, .k = 33, .causal = 1), BOTH);
    add_attention(op, MARKERS, 0, SHAPE(.q = 140, .k = 70, .d = 16, .causal = 1), QUICK);
}

/* A given scale, also one that turns the largest product into the smallest score, and 0,
 * by which nothing masked may be multiplied. */
static void add_scales(enum op op)
{
    static const float scales[] = {1.5f, -0.25f, 0};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        struct shape s = SHAPE(.q = 21, .k = 70, .scaled = 1, .scale = scales[i]);
        add_attention(op, RANDOM, 0, s, BOTH);
        s.causal = 1;
        s.k = 17;
        add_attention(op, RANDOM, 0, s, EXECUTED);
        s.causal = 0;
        s.bias = 1;
        s.k = 150;
        add_attention(op, MASK_SOME, 0, s, 0);
    }
}

/* Shapes drawn at random: combinations that nobody thought of. */
static void add_any(enum op op)
{
    struct random r = {2024};
    static const enum recipe kinds[] = {RANDOM, SHIFT_20, OUTLIER, ZERO_Q, WIDE};
    for (size_t i = 0; i < 60; i++) { /* one draw a statement: their order is fixed */
        struct shape s = {.q = 1 + random_below(&r, 200)};
        s.k = 1 + random_below(&r, 300);
        s.batch = 1 + random_below(&r, 2);
        s.kv = 1 + random_below(&r, 2);
        s.heads = s.kv * (1 + random_below(&r, 3));
        s.d = 1 + random_below(&r, 130);
        if (i % 2) s.d = s.d % 2 ? 64 : 128;
        s.dv = 1 + random_below(&r, 130);
        if (i % 3) s.dv = s.d;
        s.causal = (int)random_below(&r, 2);
        s.bias = random_below(&r, 3) == 0;
        size_t at = random_below(&r, s.k);
        enum recipe kind = s.bias ? MASK_SOME : kinds[i % 5];
        add_attention(op, kind, kind == OUTLIER ? at : 0, s, i % 10 == 0 ? QUICK : 0);
    }
    add_attention(op, RANDOM, 0, SHAPE(.q = 1, .k = 5000, .d = 128, .heads = 8, .kv = 2),
                  0);
    add_attention(op, RANDOM, 0, SHAPE(.q = 4, .k = 3001, .batch = 2, .heads = 4, .kv = 1,
                                       .causal = 1), 0);
}

/* Many heads, and sizes at which a GPU is full: several waves of blocks, long loops. */
static void add_large(enum op op)
{
    add_attention(op, RANDOM, 0,
                  SHAPE(.q = 1, .k = 2, .d = 8, .heads = 70000, .kv = 35000), 0);
    add_attention(op, RANDOM, 0, SHAPE(.q = 17, .k = 33, .batch = 3, .heads = 50), 0);
    for (size_t d = 64; d <= 128; d += 64) {
        int causal = d == 64;
        add_attention(op, RANDOM, 0,
                      SHAPE(.q = 1000, .k = 1024, .d = d, .batch = 2, .heads = 12,
                            .kv = 4, .causal = causal), ONLY_GPU);
        add_attention(op, RANDOM, 0,
                      SHAPE(.q = 1, .k = 20000, .d = d, .batch = 2, .heads = 32, .kv = 8),
                      ONLY_GPU);
        add_attention(op, SHIFT_20, 0,
                      SHAPE(.q = 4097, .k = 4095, .d = d, .causal = causal), ONLY_GPU);
        add_attention(op, MARKERS, 0,
                      SHAPE(.q = 2048, .k = 2048, .d = d, .causal = !causal), ONLY_GPU);
        add_attention(op, OUTLIER, 4000,
                      SHAPE(.q = 300, .k = 8000, .d = d, .heads = 3, .kv = 1), ONLY_GPU);
    }
}

/* With a bias the bad key is masked everywhere; causal hides it from earlier rows. */
static void add_nans(enum op op)
{
    static const enum recipe bad[] = {NAN_K, INF_K, NAN_V, INF_V};
    static const size_t at[] = {0, 37, 64, 69};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t k = 0; k < sizeof at / sizeof *at; k++)
            add_attention(op, bad[i], at[k], SHAPE(.q = 20, .k = 70, .bias = 1),
                          k == 1 ? BOTH : 0);
    static const enum recipe seen[] = {NAN_Q, NAN_K, NAN_V, NAN_V_ONE, NAN_V_FAR};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        add_attention(op, seen[i], 11, SHAPE(.q = 20, .k = 70, .heads = 2), BOTH);
        /* the first key, before there is a maximum */
        add_attention(op, seen[i], 0, SHAPE(.q = 5, .k = 70), BOTH);
        add_attention(op, seen[i], 64, SHAPE(.q = 9, .k = 130), i ? EXECUTED : 0);
        add_attention(op, seen[i], 40, SHAPE(.q = 70, .k = 70, .causal = 1), EXECUTED);
        add_attention(op, seen[i], 69, SHAPE(.q = 70, .k = 70, .causal = 1), 0);
        add_attention(op, seen[i], 129, SHAPE(.q = 130, .k = 200, .causal = 1), 0);
    }
    static const enum recipe minus_inf[] = {MINUS_INF, MINUS_INF_V, MINUS_INF_ALL};
    for (size_t i = 0; i < sizeof minus_inf / sizeof *minus_inf; i++) {
        add_attention(op, minus_inf[i], 11, SHAPE(.q = 20, .k = 70, .heads = 2), BOTH);
        add_attention(op, minus_inf[i], 0, SHAPE(.q = 5, .k = 70), 0);
        add_attention(op, minus_inf[i], 64, SHAPE(.q = 1, .k = 130), QUICK);
        add_attention(op, minus_inf[i], 40, SHAPE(.q = 70, .k = 70, .causal = 1), 0);
        add_attention(op, minus_inf[i], 37, SHAPE(.q = 20, .k = 70, .bias = 1), 0);
        add_attention(op, minus_inf[i], 129, SHAPE(.q = 130, .k = 1100), 0);
    }
    /* a query that sees nothing */
    add_attention(op, NAN_Q, 2, SHAPE(.q = 90, .k = 40, .causal = 1), QUICK);
    add_attention(op, INF_SCORE, 11, SHAPE(.q = 20, .k = 70, .bias = 1), BOTH);
    add_attention(op, INF_SCORE, 200, SHAPE(.q = 20, .k = 300, .bias = 1), 0);
}

/* The log form: a smaller selection of the same. */
static void add_log_form(void)
{
    static const size_t sizes[][2] = {{1, 1},   {2, 5},    {5, 2},    {17, 33},
                                      {64, 64}, {33, 129}, {113, 203}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int causal = 0; causal < 2; causal++)
            add_attention(OP_LOGSOFTMAX_ATTENTION, RANDOM, 0,
                          SHAPE(.q = sizes[i][0], .k = sizes[i][1], .d = 40, .dv = 24,
                                .causal = causal, .heads = 2, .kv = 1), i < 5 ? BOTH : 0);
    static const enum recipe kinds[] = {
        WIDE, EQUAL, ASCENDING, DESCENDING, OUTLIER, SHIFT_20, SHIFT_200, LARGE, ZERO_Q};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_attention(OP_LOGSOFTMAX_ATTENTION, kinds[i], 0, SHAPE(.q = 10, .k = 70),
                      BOTH);
    struct shape masked = SHAPE(.q = 18, .k = 70, .bias = 1);
    add_attention(OP_LOGSOFTMAX_ATTENTION, RANDOM, 0, masked, BOTH);
    add_attention(OP_LOGSOFTMAX_ATTENTION, MASK_SOME, 0, masked, BOTH);
    add_attention(OP_LOGSOFTMAX_ATTENTION, MASK_ROW, 3, masked, BOTH);
    add_attention(OP_LOGSOFTMAX_ATTENTION, MASK_FIRST, 65, masked, BOTH);
}

/* One query: the answers for all prefixes, and after updates. */
static void add_scans_and_updates(void)
{
    static const size_t sizes[] = {1,  2,  3,  4,   7,   8,   16,  17,
                                   33, 64, 65, 100, 129, 257, 1000};
    static const enum recipe kinds[] = {WIDE,    EQUAL,    ASCENDING, DESCENDING,
                                        OUTLIER, SHIFT_20, SHIFT_200, LARGE,
                                        ZERO_Q,  MARKERS};
    static const enum op ops[] = {OP_SCAN, OP_UPDATE};
    for (int o = 0; o < 2; o++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            add_attention(ops[o], RANDOM, 0,
                          SHAPE(.q = 1, .k = sizes[i], .d = 16, .dv = i % 2 ? 24 : 16,
                                .batch = 1 + i % 2, .heads = 2, .kv = 1 + (i + 1) % 2),
                          sizes[i] < 129 ? BOTH : 0);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            add_attention(ops[o], kinds[i], 5, SHAPE(.q = 1, .k = 37, .d = 16), BOTH);
            add_attention(ops[o], kinds[i], 100, SHAPE(.q = 1, .k = 200, .d = 32), 0);
        }
        struct shape masked = SHAPE(.q = 1, .k = 40, .d = 16, .bias = 1);
        add_attention(ops[o], MASK_FIRST, 17, masked, BOTH);
        add_attention(ops[o], MASK_SOME, 0, masked, BOTH);
        add_attention(ops[o], MASK_LAST, 17, masked, BOTH);
    }
    /* the bad key is replaced */
    add_attention(OP_UPDATE, NAN_K, 20, SHAPE(.q = 1, .k = 37, .d = 16), BOTH);
    for (size_t i = 0, k = 0; i < n_cases; i++)
        if (list[i].problem.op == OP_UPDATE) {
            list[i].problem.n_updates = 1 + k++ % 3 * 8; /* 1, 9 or 17 */
            name_add(&list[i], "-u%zu", list[i].problem.n_updates);
        }
}

const struct test_case *test_cases(size_t *n)
{
    if (!n_cases) {
        add_softmax(OP_SOFTMAX);
        add_softmax(OP_LOGSOFTMAX);
        add_lengths(OP_ATTENTION);
        add_dims(OP_ATTENTION);
        add_heads(OP_ATTENTION);
        add_scores(OP_ATTENTION);
        add_masks(OP_ATTENTION);
        add_nans(OP_ATTENTION);
        add_scales(OP_ATTENTION);
        add_any(OP_ATTENTION);
        add_large(OP_ATTENTION);
        add_log_form();
        add_means();
        add_scans_and_updates();
        add_fused();
    }
    *n = n_cases;
    return list;
}

const struct test_case *test_case_find(const char *name)
{
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(c[i].name, name)) return &c[i];
    return NULL;
}

uint64_t test_case_seed(const struct test_case *c)
{
    return random_seed(c->name);
}
