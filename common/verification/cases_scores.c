/* cases_scores.c: cases of attention that vary scores, masks and specials. */
#include "verification/case_list.h"

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
    /* on the diagonal: the row before does not see the key, also when a block is repaired */
    for (size_t d = 64; d <= 128; d += 64)
        add_attention(op, SPIKE, 150, SHAPE(.q = 160, .k = 160, .d = d, .causal = 1), BOTH);
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

/* Masks that are numbers: beside others they weigh nothing, and in a row of nothing else they
 * are scores like any other. */
static void add_finite_masks(enum op op)
{
    static const size_t powers[] = {4, 9, 11, 15, 30, 38};
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++) {
        add_attention(op, FINITE, powers[i], SHAPE(.q = 18, .k = 70, .bias = 1), BOTH);
        add_attention(op, FINITE, powers[i],
                      SHAPE(.q = 66, .k = 300, .d = 40, .heads = 2, .kv = 1, .bias = 1), 0);
    }
}

void attention_scores(enum op op)
{
    add_scores(op);
    add_masks(op);
    add_finite_masks(op);
    add_nans(op);
    add_scales(op);
}
