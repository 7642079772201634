/* cases_attention.c: the cases of attention and of its relatives. */
#include "problem/operation.h"
#include "verification/case_list.h"

void cases_of_attention(enum op op)
{
    attention_shapes(op);
    attention_scores(op);
    attention_any(op);
    attention_calls(op);
}

/* The log form: a smaller selection of the same. */
void cases_of_log_form(enum op op)
{
    static const size_t sizes[][2] = {{1, 1},   {2, 5},    {5, 2},    {17, 33},
                                      {64, 64}, {33, 129}, {113, 203}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int causal = 0; causal < 2; causal++)
            add_attention(op, RANDOM, 0,
                          SHAPE(.q = sizes[i][0], .k = sizes[i][1], .d = 40, .dv = 24,
                                .causal = causal, .heads = 2, .kv = 1), i < 5 ? BOTH : 0);
    static const enum recipe kinds[] = {
        WIDE, EQUAL, ASCENDING, DESCENDING, OUTLIER, SHIFT_20, SHIFT_200, LARGE, ZERO_Q};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_attention(op, kinds[i], 0, SHAPE(.q = 10, .k = 70),
                      BOTH);
    struct shape masked = SHAPE(.q = 18, .k = 70, .bias = 1);
    add_attention(op, RANDOM, 0, masked, BOTH);
    add_attention(op, MASK_SOME, 0, masked, BOTH);
    add_attention(op, MASK_ROW, 3, masked, BOTH);
    add_attention(op, MASK_FIRST, 65, masked, BOTH);
}

/* One query: the answers for all prefixes of the keys, or after updates. */
void cases_of_one_query(enum op op)
{
    static const size_t sizes[] = {1,  2,  3,  4,   7,   8,   16,  17,
                                   33, 64, 65, 100, 129, 257, 1000};
    static const enum recipe kinds[] = {WIDE,    EQUAL,    ASCENDING, DESCENDING,
                                        OUTLIER, SHIFT_20, SHIFT_200, LARGE,
                                        ZERO_Q,  MARKERS};
    size_t first = n_cases;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        add_attention(op, RANDOM, 0,
                      SHAPE(.q = 1, .k = sizes[i], .d = 16, .dv = i % 2 ? 24 : 16,
                            .batch = 1 + i % 2, .heads = 2, .kv = 1 + (i + 1) % 2),
                      sizes[i] < 129 ? BOTH : 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        add_attention(op, kinds[i], 5, SHAPE(.q = 1, .k = 37, .d = 16), BOTH);
        add_attention(op, kinds[i], 100, SHAPE(.q = 1, .k = 200, .d = 32), 0);
    }
    struct shape masked = SHAPE(.q = 1, .k = 40, .d = 16, .bias = 1);
    add_attention(op, MASK_FIRST, 17, masked, BOTH);
    add_attention(op, MASK_SOME, 0, masked, BOTH);
    add_attention(op, MASK_LAST, 17, masked, BOTH);
    if (!operations[op].updates) return;
    /* the bad key is replaced */
    add_attention(op, NAN_K, 20, SHAPE(.q = 1, .k = 37, .d = 16), BOTH);
    for (size_t i = first; i < n_cases; i++) {
        case_list[i].problem.n_updates = 1 + (i - first) % 3 * 8; /* 1, 9 or 17 */
        case_name_add(&case_list[i], "-u%zu", case_list[i].problem.n_updates);
    }
}
