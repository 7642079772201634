/* cases_shapes.c: cases of attention that vary the shape. */
#include "problem/random.h"
#include "verification/case_list.h"

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
    /* a few more tiles than multiprocessors: the last ones are cut along their keys */
    add_attention(op, RANDOM, 0, SHAPE(.q = 3, .k = 3400, .heads = 17), EXECUTED);
    for (size_t d = 64; d <= 256; d *= 2)
        for (int steep = 0; steep <= 1; steep++)
            add_attention(op, steep ? STEEP : RANDOM, 0,
                          SHAPE(.q = 7, .k = d == 128 ? 7300 : 3700, .d = d, .heads = 150,
                                .kv = 2), ONLY_GPU);
    /* every instance of stage 5's last rungs: head dims, both masks, short and long tiles */
    for (size_t d = 64; d <= 256; d *= 2)
        for (int causal = 0; causal <= 1; causal++)
            for (size_t k = 896; k <= 4096; k += 3200) {
                add_attention(op, STEEP, 0,
                              SHAPE(.q = 300, .k = k, .d = d, .causal = causal), ONLY_GPU);
                add_attention(op, SPIKE, k - 200,
                              SHAPE(.q = 300, .k = k, .d = d, .causal = causal), ONLY_GPU);
            }
}

void attention_shapes(enum op op)
{
    add_lengths(op);
    add_dims(op);
    add_heads(op);
}

void attention_any(enum op op)
{
    add_any(op);
    add_large(op);
}
