/* cases.h: the inputs on which every variant is checked.
 *
 * A case is a problem and a recipe for its inputs.  Recipes exist because random numbers
 * hide most bugs: they miss a dropped key, a stray zero score, a maximum that never
 * rises. */
#pragma once

#include "harness.h"

/* Scores, masks and specials: X(enumerator, its name). */
#define RECIPES(X)                                                                       \
    X(RANDOM, random)             /* normal numbers */                                   \
    X(WIDE, wide)                 /* normal numbers, 30 times as wide */                 \
    X(RANGE_80, range_80)         /* scores in -80 .. 80: exp is finite */               \
    X(EQUAL, equal)               /* all scores the same */                              \
    X(ASCENDING, ascending)       /* scores rise from -30 to 30 */                       \
    X(DESCENDING, descending)     /* and fall: the first is the maximum */               \
    X(OUTLIER, outlier)           /* the key at `at` wins by 20 */                       \
    X(STEEP, steep)               /* by 75 every 64 keys: a repair in every block */   \
    X(SPIKE, spike)               /* the key at `at` wins by 500: one repair */        \
    X(SHIFT_20, shift_20)         /* all scores near -20: a stray 0 would win */         \
    X(SHIFT_200, shift_200)       /* to -200 */                                          \
    X(SHIFT_UP, shift_up)         /* to +10000 (rows only) */                            \
    X(LOW, low)                   /* near -1e5, below many a stand-in for -inf */        \
    X(LARGE, large)               /* scores around 1e4, values up to 1e4 */              \
    X(HIGH, high)                 /* q and k near 1100: q . k is above 2^26 */           \
    X(VAST, vast)                 /* scores around 1e30 */                               \
    X(NEAR_MAX, near_max)         /* numbers near 3e38, all positive (mean) */           \
    X(OPPOSITE, opposite)         /* the same of alternating sign (mean) */              \
    X(ZERO_Q, zero_q)             /* q = 0: o is the mean of v, |v| up to 1e4 */         \
    X(MARKERS, markers)           /* q = 0, v_j marks a column: o counts keys */ \
    X(MASK_SOME, mask_some)       /* about a third of the scores is -inf */              \
    X(MASK_ROW, mask_row)         /* row `at` is all -inf, and some elsewhere */         \
    X(MASK_FIRST, mask_first)     /* the first `at` keys are masked for all rows */      \
    X(MASK_LAST, mask_last)       /* the last `at` keys are */                           \
    X(MASK_MIDDLE, mask_middle)   /* 64 keys from `at` on are */                         \
    X(MASK_LANES, mask_lanes)     /* only every eighth key is visible */                 \
    X(MASK_BUT_ONE, mask_but_one) /* only the key at `at` is visible */                  \
    X(NAN_Q, nan_q)               /* query or row `at` holds a NaN */                    \
    X(NAN_K, nan_k)               /* key `at` is NaN; with a bias it is masked */        \
    X(INF_K, inf_k)               /* key `at` is +inf; likewise */                       \
    X(NAN_V, nan_v)               /* value `at` is NaN; likewise */                      \
    X(NAN_V_ONE, nan_v_one)       /* one element of value `at` is NaN: one column */     \
    X(NAN_V_FAR, nan_v_far)       /* the same, seen, but of weight 0 in floats */        \
    X(INF_V, inf_v)               /* value `at` is inf and masked */                     \
    X(INF_SCORE, inf_score)       /* one score is +inf: its row becomes NaN */           \
    X(MINUS_INF, minus_inf)       /* key `at` makes scores -inf by arithmetic */         \
    X(MINUS_INF_V, minus_inf_v)   /* the same, and its value is NaN: never read */       \
    X(MINUS_INF_ALL, minus_inf_all)/* every key does: as if fully masked */              \
    X(BELOW_STEP, below_step)     /* weights just below a step of bf16, one value */   \
    X(POWERS, powers)             /* weights that 16 bits hold exactly: powers.c */      \
    X(NAN_DO, nan_do)             /* row `at` of d_o holds a NaN */                      \
    X(TINY, tiny)                 /* +0, -0, denormals and ones */                       \
    X(FINITE, finite)             /* -10^at (38: the least float) masks row 3 */ \
    X(SINK_INF, sink_inf)         /* the sink of head 0 is inf: NaN in all its rows */   \
    X(SINK_NAN, sink_nan)                                                                \
    X(SINK_HUGE, sink_huge)       /* 3e38: all the weight of its rows */
#define ENUMERATOR(recipe, name) recipe,
enum recipe { RECIPES(ENUMERATOR) N_RECIPES };

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
