/* cases_calls.c: what calls from real models ask for: windows, soft caps, sinks, packed
 * sequences, pages, strides, each alone and together. */
#include "verification/case_list.h"

/* Windows narrower and wider than a tile, one-sided, of one key, beside every kind of mask. */
static void add_windows(enum op op)
{
    static const int windows[][2] = {{0, 0},  {3, 0},   {0, 3},   {7, 5},    {-1, 4},
                                     {4, -1}, {-1, -1}, {63, 0},  {64, 64},  {100, 1}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        struct shape s = SHAPE(.q = 33, .k = 70, .d = 40, .window = 1,
                               .left = windows[i][0], .right = windows[i][1]);
        add_attention(op, RANDOM, 0, s, i < 5 && i != 3 ? BOTH : QUICK);
        s.q = 130, s.k = 130, s.causal = (int)(i % 2);
        add_attention(op, i % 3 ? RANDOM : MARKERS, 0, s, i == 4 ? QUICK : 0);
        s.q = 300, s.k = 290, s.d = 64;
        add_attention(op, i % 2 ? SHIFT_20 : OUTLIER, 150, s, 0);
    }
    /* several tiles, whose windows begin and end in different blocks; then windows so wide that a
     * kernel may take larger blocks */
    add_attention(op, RANDOM, 0, SHAPE(.q = 200, .k = 300, .d = 64, .window = 1, .left = 70,
                                       .right = 20), BOTH);
    add_attention(op, RANDOM, 0, SHAPE(.q = 700, .k = 4300, .d = 64, .heads = 2, .window = 1,
                                       .left = 2500), ONLY_GPU);
    /* more queries than keys: rows that see nothing, also behind the end of the window */
    add_attention(op, RANDOM, 0, SHAPE(.q = 90, .k = 40, .window = 1, .left = 9, .right = 2),
                  QUICK);
    add_attention(op, MASK_SOME, 0, SHAPE(.q = 60, .k = 70, .bias = 1, .window = 1, .left = 5,
                                          .right = 9), QUICK);
    /* a bad key or value outside of every window that it could leak into */
    add_attention(op, NAN_V, 5, SHAPE(.q = 70, .k = 70, .window = 1, .left = 6), QUICK);
    add_attention(op, NAN_K, 64, SHAPE(.q = 70, .k = 70, .window = 1, .left = 6, .right = 2),
                  QUICK);
    /* a step of decoding with a window: most keys lie before it */
    add_attention(op, RANDOM, 0, SHAPE(.q = 1, .k = 700, .heads = 4, .kv = 2, .causal = 1,
                                       .window = 1, .left = 127), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 2, .k = 1500, .window = 1, .left = 600), 0);
}

static void add_caps_and_sinks(enum op op)
{
    static const enum recipe kinds[] = {RANDOM, WIDE, LARGE, SHIFT_20, ASCENDING, ZERO_Q,
                                        EQUAL};
    static const float caps[] = {30, 50, 0.5f, 15, 2, 50, 1};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct shape s = SHAPE(.q = 21, .k = 70, .heads = 5, .kv = 1, .softcap = caps[i]);
        add_attention(op, kinds[i], 0, s, i < 3 ? BOTH : QUICK);
        s.softcap = 0, s.sinks = 1;
        add_attention(op, kinds[i], 0, s, i < 2 ? BOTH : QUICK);
        s.q = 120, s.k = 200, s.causal = 1, s.softcap = caps[i];
        add_attention(op, kinds[i], 0, s, i == 1 ? QUICK : 0);
    }
    for (int kind = SINK_INF; kind <= SINK_HUGE; kind++) {
        add_attention(op, (enum recipe)kind, 0, SHAPE(.q = 9, .k = 70, .heads = 3, .kv = 1,
                                                      .sinks = 1), BOTH);
        add_attention(op, (enum recipe)kind, 0, SHAPE(.q = 40, .k = 20, .heads = 2, .causal = 1,
                                                      .sinks = 1), 0);
    }
    for (float cap = 1e4f; cap < 1e9f; cap *= 10) /* so far above the scores that it does nothing */
        add_attention(op, RANDOM, 0, SHAPE(.q = 9, .k = 70, .softcap = cap), BOTH);
    add_attention(op, MASK_ROW, 3, SHAPE(.q = 18, .k = 70, .bias = 1, .heads = 2, .sinks = 1),
                  QUICK);
    add_attention(op, MASK_FIRST, 70, SHAPE(.q = 18, .k = 70, .bias = 1, .sinks = 1), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 70, .k = 33, .causal = 1, .sinks = 1), QUICK);
    add_attention(op, NAN_Q, 3, SHAPE(.q = 9, .k = 70, .sinks = 1, .softcap = 30), QUICK);
    add_attention(op, MASK_SOME, 0, SHAPE(.q = 9, .k = 70, .bias = 1, .softcap = 30), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 1, .k = 3000, .heads = 2, .sinks = 1), 0);
}

static void add_layouts(enum op op)
{
    static const size_t pages[] = {16, 32, 64, 256};
    for (int lie = BLHD; lie <= QKV_SLICES; lie++) {
        struct shape s = SHAPE(.q = 37, .k = 67, .d = 64, .batch = 2, .heads = 4, .kv = 2,
                               .lie = (enum rows_lie)lie);
        add_attention(op, RANDOM, 0, s, BOTH);
        s.dv = 24, s.d = 40, s.causal = 1;
        add_attention(op, RANDOM, 0, s, QUICK);
        s.q = 1, s.k = 300;
        add_attention(op, RANDOM, 0, s, QUICK);
        s.q = 130, s.k = 129, s.d = s.dv = 128;
        add_attention(op, OUTLIER, 64, s, 0);
        s = SHAPE(.q = 70, .k = 90, .batch = 4, .heads = 2, .packed = 1, .causal = lie == BLHD,
                  .lie = (enum rows_lie)lie);
        add_attention(op, RANDOM, 0, s, BOTH);
        s.packed = 0, s.page = 16;
        add_attention(op, RANDOM, 0, s, QUICK);
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        struct shape s = SHAPE(.q = 1, .k = 530, .batch = 3, .heads = 4, .kv = 2,
                               .page = pages[i]);
        add_attention(op, RANDOM, 0, s, i == 0 ? QUICK : 0);
        s.q = 40, s.k = 130, s.causal = 1, s.d = 40;
        add_attention(op, RANDOM, 0, s, i == 2 ? QUICK : 0);
        s.packed = 1, s.batch = 4;
        add_attention(op, MARKERS, 0, s, i == 1 ? QUICK : 0);
    }
    add_attention(op, RANDOM, 0, SHAPE(.q = 1, .k = 300, .batch = 2, .heads = 4, .kv = 2,
                                       .page = 16), BOTH);
    add_attention(op, RANDOM, 0, SHAPE(.q = 1, .k = 1, .batch = 4, .packed = 1), BOTH);
    add_attention(op, MARKERS, 0, SHAPE(.q = 64, .k = 64, .batch = 6, .packed = 1), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 200, .k = 300, .batch = 5, .heads = 6, .kv = 2,
                                       .packed = 1, .causal = 1), 0);
    add_attention(op, RANDOM, 0, SHAPE(.q = 700, .k = 2500, .d = 64, .batch = 3, .heads = 2,
                                       .packed = 1, .causal = 1), ONLY_GPU);
    add_attention(op, NAN_V, 5, SHAPE(.q = 30, .k = 70, .batch = 4, .packed = 1, .causal = 1),
                  QUICK);
}

static void add_all_together(enum op op)
{
    struct shape s = SHAPE(.q = 50, .k = 140, .d = 64, .batch = 4, .heads = 4, .kv = 2,
                           .window = 1, .left = 40, .right = 0, .softcap = 20, .sinks = 1);
    add_attention(op, RANDOM, 0, s, QUICK);
    s.batch = s.kv = 1, s.heads = 2;
    add_attention(op, RANDOM, 0, s, BOTH);
    s.batch = 4, s.heads = 4, s.kv = 2, s.lie = BLHD;
    add_attention(op, RANDOM, 0, s, QUICK);
    s.packed = 1;
    add_attention(op, RANDOM, 0, s, QUICK);
    s.page = 32;
    add_attention(op, RANDOM, 0, s, QUICK);
    s.bias = 1;
    add_attention(op, MASK_SOME, 0, s, QUICK);
    s.q = 8, s.batch = 2;
    add_attention(op, RANDOM, 0, s, BOTH);
}

/* A bias for each batch, the same for all queries; for each head; for each of both; for each
 * distance of key and query. */
static void add_biases(enum op op)
{
    for (int of = BIAS_PER_BATCH; of <= BIAS_TOEPLITZ; of++) {
        struct shape s = SHAPE(.q = 20, .k = 70, .batch = 2, .heads = 4, .kv = 2, .bias = 1,
                               .bias_of = (enum bias_of)of);
        add_attention(op, RANDOM, 0, s, BOTH);
        s.q = 130, s.k = 131, s.d = 40, s.causal = 1;
        add_attention(op, RANDOM, 0, s, 0);
        s.packed = 1, s.batch = 3;
        add_attention(op, RANDOM, 0, s, 0);
    }
}

void attention_calls(enum op op)
{
    add_windows(op);
    add_caps_and_sinks(op);
    add_layouts(op);
    add_biases(op);
    add_all_together(op);
}
