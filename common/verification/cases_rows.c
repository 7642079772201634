/* cases_rows.c: the cases of operations on rows. */
#include "verification/case_list.h"

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
    add_rows(op, RANDOM, 0, 257, 3, QUICK);
    add_rows(op, RANDOM, 0, 67, 3, BOTH); /* several blocks, where a block has 128 / 4 rows */
    add_rows(op, RANDOM, 0, 64, 64, QUICK);
    add_rows(op, RANDOM, 0, 1000, 130, 0);
    add_rows(op, RANDOM, 0, 1, 100003, 0);
    add_rows(op, RANDOM, 0, 1, 1000003, 0);
    add_rows(op, RANDOM, 0, 70001, 3, 0); /* a grid's y has 65535 blocks */
    add_rows(op, RANDOM, 0, 1001, 20011, ONLY_GPU);
    add_rows(op, WIDE, 0, 5, 2000003, ONLY_GPU);
}

void cases_of_softmax(enum op op)
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

void cases_of_mean(enum op op)
{
    static const size_t sizes[] = {1, 2, 3, 7, 16, 17, 64, 100, 1000, 4097, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        add_rows(op, RANDOM, 0, 3, sizes[i], sizes[i] < 1000 ? BOTH : 0);
    static const enum recipe shapes[] = {EQUAL, ASCENDING, DESCENDING, SHIFT_UP,
                                         LARGE, NEAR_MAX,  OPPOSITE,   TINY};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        add_rows(op, shapes[i], 0, 2, 3, BOTH);
        add_rows(op, shapes[i], 0, 2, 1000, QUICK);
    }
    add_rows(op, EQUAL, 0, 1, 3931, QUICK);
    add_rows(op, EQUAL, 0, 1, 100003, 0);
    add_rows(op, NAN_Q, 1, 3, 50, BOTH);
}

void cases_of_fused(enum op op)
{
    static const size_t sizes[] = {1,  2,   3,   5,    8,    17,   31,
                                   64, 100, 257, 1000, 4099, 50021};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        add_rows(op, RANDOM, 0, 3, sizes[i], sizes[i] < 1000 ? BOTH : 0);
    static const enum recipe shapes[] = {WIDE,       EQUAL,    ASCENDING,
                                         DESCENDING, OUTLIER,  SHIFT_20,
                                         SHIFT_200,  SHIFT_UP, LARGE};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        add_rows(op, shapes[i], 0, 2, 37, BOTH);
        add_rows(op, shapes[i], 0, 2, 1003, 0);
    }
}
