/* cases.h: the inputs on which every variant is checked.
 *
 * A case is a problem and a recipe for its inputs.  Recipes exist because random numbers
 * hide most bugs: they miss a dropped key, a stray zero score, a maximum that never
 * rises. */
#ifndef CASES_H
#define CASES_H

#include "harness.h"

enum recipe {
    RANDOM,      /* normal numbers */
    WIDE,        /* normal numbers, 30 times as wide */
    RANGE_80,    /* scores anywhere in -80 .. 80, where exp itself is still finite */
    EQUAL,       /* all scores the same */
    ASCENDING,   /* scores rise from -30 to 30: a new maximum at every step */
    DESCENDING,  /* and fall: the first is the maximum */
    OUTLIER,     /* the key at `at` wins by 20 */
    STEEP,       /* scores rise by 75 every 64 keys: rung 14 of stage 5 repairs every block */
    SPIKE,       /* the key at `at` wins by 500: rung 14 repairs one block */
    SHIFT_20,    /* a common component shifts all scores to -20: a stray 0 would win */
    SHIFT_200,   /* to -200 */
    SHIFT_UP,    /* to +10000 (rows only) */
    LOW,         /* finite scores near -1e5, below many a stand-in for -inf */
    LARGE,       /* scores around 1e4, values up to 1e4 */
    VAST,        /* scores around 1e30 */
    NEAR_MAX,    /* numbers near 3e38, all positive (mean) */
    OPPOSITE,    /* numbers near 3e38 of alternating sign (mean) */
    ZERO_Q,      /* q = 0: o is the mean of v, |v| up to 1e4 */
    MARKERS,     /* q = 0, v_j = seqlen_k e_(j mod head_dim_v): o counts the keys */
    MASK_SOME,   /* about a third of the scores is -inf */
    MASK_ROW,    /* row `at` is all -inf, and some elsewhere */
    MASK_FIRST,  /* the first `at` keys are masked for all rows */
    MASK_LAST,   /* the last `at` keys are */
    MASK_MIDDLE, /* 64 keys from `at` on are */
    MASK_LANES,  /* only every eighth key is visible */
    MASK_BUT_ONE,/* only the key at `at` is visible */
    NAN_Q,       /* query `at` holds a NaN; for rows: row `at` does */
    NAN_K,       /* key `at` is NaN; with a bias it is masked, and nothing may happen */
    INF_K,       /* key `at` is +inf; likewise */
    NAN_V,       /* value `at` is NaN; likewise */
    NAN_V_ONE,   /* one element of value `at` is NaN: one column */
    NAN_V_FAR,   /* value `at` is NaN and seen, but its weight is 0 in floats */
    INF_V,       /* value `at` is inf and masked */
    INF_SCORE,   /* one score is +inf: its row becomes NaN */
    MINUS_INF,   /* key `at` makes every score -inf by arithmetic: it weighs 0 */
    MINUS_INF_V, /* the same, and value `at` is NaN: nobody looks at it */
    MINUS_INF_ALL, /* every key does: all rows are as if fully masked */
    TINY,        /* +0, -0, denormals and ones */
    FINITE,      /* q = 0, and -10^at (38: the least float) masks row 3 and a third elsewhere */
    SINK_INF,    /* the sink of head 0 is inf: NaN in all its rows */
    SINK_NAN,
    SINK_HUGE,   /* 3e38: all the weight of its rows */
    N_RECIPES
};

struct test_case {
    char name[120];       /* unique and stable: op-recipe-shape */
    struct problem problem; /* of type F32; see halves */
    enum recipe recipe;
    size_t at;            /* the key, row or count that the recipe singles out */
    int quick;            /* belongs to check --quick */
    int executed;         /* small enough for CUDA kernels executed on the CPU */
    int only_gpu;         /* too large for anything but a GPU */
    int halves;           /* its numbers fit f16 and bf16 too */
};

/* All cases, operation by operation; the same array at every call. */
const struct test_case *test_cases(size_t *n);

/* The case of that name, or NULL. */
const struct test_case *test_case_find(const char *name);

/* The seed a case has unless another is given. */
uint64_t test_case_seed(const struct test_case *c);

const char *recipe_name(enum recipe recipe); /* "shift_20" */

/* A case of this operation drawn at random: shape, masks, magnitudes, specials.  The seed
 * decides everything, so the operation and the seed repeat it. */
struct test_case test_case_draw(enum op op, uint64_t seed);

/* A case's problem with its inputs in one type.  Outputs are not allocated. */
struct inputs {
    struct problem problem;
    struct arrays arrays;
};
struct inputs *inputs_new(const struct test_case *c, enum dtype dtype, uint64_t seed);
void inputs_free(struct inputs *in);

#endif
