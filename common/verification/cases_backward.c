/* cases_backward.c: the cases of the backward pass. */
#include "verification/case_list.h"

static void add_shapes(enum op op)
{
    static const size_t sizes[][2] = {{1, 1},   {2, 5},     {5, 2},    {16, 16}, {17, 33},
                                      {33, 17}, {64, 64},   {65, 129}, {1, 200}, {200, 1},
                                      {128, 128}, {113, 203}, {260, 300}};
    static const size_t dims[][2] = {{1, 1}, {7, 59}, {40, 24}, {64, 128}, {128, 64}, {128, 128},
                                     {256, 16}};
    static const size_t groups[][3] = {{2, 1, 1}, {1, 4, 2}, {2, 6, 2}, {1, 8, 1}, {3, 2, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int causal = 0; causal < 2; causal++)
            add_attention(op, RANDOM, 0, SHAPE(.q = sizes[i][0], .k = sizes[i][1],
                                               .causal = causal), i < 6 ? BOTH : i < 8 ? QUICK : 0);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        add_attention(op, RANDOM, 0, SHAPE(.q = 35, .k = 70, .d = dims[i][0], .dv = dims[i][1],
                                           .causal = (int)(i % 2)), i < 4 ? BOTH : 0);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        add_attention(op, RANDOM, 0, SHAPE(.q = 19, .k = 35, .d = 32, .dv = 24,
                                           .batch = groups[i][0], .heads = groups[i][1],
                                           .kv = groups[i][2], .causal = (int)(i % 2)),
                      i < 3 ? BOTH : QUICK);
}

static void add_scores(enum op op)
{
    static const enum recipe kinds[] = {WIDE,     EQUAL,    ASCENDING, DESCENDING, SHIFT_20,
                                        SHIFT_200, LARGE,   ZERO_Q,    MARKERS,    TINY};
    static const enum recipe seen[] = {NAN_Q, NAN_K, NAN_V, NAN_V_ONE};
    static const enum recipe hidden[] = {NAN_K, INF_K, NAN_V, INF_V};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        add_attention(op, kinds[i], 0, SHAPE(.q = 21, .k = 70), BOTH);
        add_attention(op, kinds[i], 0, SHAPE(.q = 70, .k = 77, .d = 40, .causal = 1), 0);
    }
    for (size_t at = 0; at < 70; at += 23)
        add_attention(op, OUTLIER, at, SHAPE(.q = 33, .k = 70), at ? QUICK : BOTH);
    for (size_t i = 0; i < 4; i++) {
        add_attention(op, seen[i], 11, SHAPE(.q = 20, .k = 70, .heads = 2), QUICK);
        add_attention(op, seen[i], 40, SHAPE(.q = 70, .k = 70, .causal = 1), 0);
        add_attention(op, hidden[i], 37, SHAPE(.q = 20, .k = 70, .bias = 1), QUICK);
    }
}

static void add_masks(enum op op)
{
    struct shape biased = SHAPE(.q = 18, .k = 70, .bias = 1);
    add_attention(op, RANDOM, 0, biased, BOTH);
    add_attention(op, MASK_SOME, 0, biased, BOTH);
    add_attention(op, MASK_ROW, 3, biased, BOTH);
    add_attention(op, MASK_FIRST, 65, biased, QUICK);
    add_attention(op, MASK_BUT_ONE, 69, biased, QUICK);
    add_attention(op, FINITE, 30, biased, 0);
    /* more queries than keys: the first rows see nothing, and their gradients are 0 */
    add_attention(op, RANDOM, 0, SHAPE(.q = 90, .k = 33, .causal = 1), QUICK);
}

static void add_calls(enum op op)
{
    static const int windows[][2] = {{0, 0}, {7, 5}, {-1, 4}, {64, 0}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        add_attention(op, RANDOM, 0, SHAPE(.q = 33, .k = 70, .d = 40, .window = 1,
                                           .left = windows[i][0], .right = windows[i][1]),
                      i < 2 ? BOTH : QUICK);
    static const float caps[] = {0.5f, 2, 30, 1e6f};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        add_attention(op, i % 2 ? RANDOM : WIDE, 0, SHAPE(.q = 21, .k = 70, .softcap = caps[i]),
                      i < 2 ? BOTH : QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 21, .k = 70, .heads = 5, .kv = 1, .sinks = 1), BOTH);
    add_attention(op, RANDOM, 0, SHAPE(.q = 70, .k = 33, .heads = 4, .kv = 2, .causal = 1,
                                       .sinks = 1), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 30, .k = 40, .batch = 5, .heads = 4, .kv = 2,
                                       .packed = 1, .causal = 1), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 1, .k = 1, .batch = 4, .packed = 1), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 37, .k = 67, .d = 40, .dv = 24, .batch = 2,
                                       .heads = 4, .kv = 2, .lie = BLHD), QUICK);
    add_attention(op, RANDOM, 0, SHAPE(.q = 50, .k = 140, .heads = 2, .kv = 1, .window = 1,
                                       .left = 40, .softcap = 20, .sinks = 1, .bias = 1), QUICK);
}

void cases_of_backward(enum op op)
{
    add_shapes(op);
    add_scores(op);
    add_masks(op);
    add_calls(op);
}
