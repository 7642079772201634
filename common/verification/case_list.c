/* case_list.c: how cases are added to the list, and named. */
#include "verification/case_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/operation.h"
#include "verification/inputs_layout.h"

enum { MOST_CASES = 1400 };

struct test_case case_list[MOST_CASES];
size_t n_cases;

static const char *const recipe_names[N_RECIPES] = {
    [RANDOM] = "random",
    [WIDE] = "wide",
    [RANGE_80] = "range_80",
    [EQUAL] = "equal",
    [ASCENDING] = "ascending",
    [DESCENDING] = "descending",
    [OUTLIER] = "outlier",
    [STEEP] = "steep",
    [SPIKE] = "spike",
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
    [FINITE] = "finite",
    [SINK_INF] = "sink_inf",
    [SINK_NAN] = "sink_nan",
    [SINK_HUGE] = "sink_huge",
};

const char *recipe_name(enum recipe recipe)
{
    return recipe_names[recipe];
}

void case_name_add(struct test_case *c, const char *format, ...)
{
    size_t n = strlen(c->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->name + n, sizeof c->name - n, format, arguments);
    va_end(arguments);
}

void lay_out(struct problem *p, enum rows_lie lie)
{
    size_t row_q = p->heads_q * p->head_dim, row_k = p->heads_kv * p->head_dim;
    size_t row_v = p->heads_kv * p->head_dim_v, row_o = p->heads_q * p->head_dim_v;
    if (p->packed) packed_totals(p);
    if (p->page_size) {
        p->pages_per_sequence = (p->seqlen_k + p->page_size - 1) / p->page_size;
        p->n_pages = p->batch * p->pages_per_sequence + 2;
    }
    if (lie == CONTIGUOUS) return;
    if (lie == QKV_SLICES) row_q = row_k = row_v = row_q + row_k + row_v, row_o += 8;
    size_t keys = p->page_size ? p->page_size : p->seqlen_k;
    p->q_strides = (struct strides){p->seqlen_q * row_q, p->head_dim, row_q};
    p->k_strides = (struct strides){keys * row_k, p->head_dim, row_k};
    p->v_strides = (struct strides){keys * row_v, p->head_dim_v, row_v};
    p->o_strides = (struct strides){p->seqlen_q * row_o, p->head_dim_v, row_o};
}

void features_name(const struct problem *p, enum rows_lie lie, char *text, size_t size)
{
    static const char *const lies[] = {"", "-blhd", "-qkv"};
    char window[60] = "", cap[24] = "", page[32] = "";
    if (p->has_window)
        snprintf(window, sizeof window, "-window%td,%td", p->window_left, p->window_right);
    if (p->softcap > 0) snprintf(cap, sizeof cap, "-cap%g", (double)p->softcap);
    if (p->page_size) snprintf(page, sizeof page, "-page%zu", p->page_size);
    snprintf(text, size, "%s%s%s%s%s%s%s%s", p->causal ? "-causal" : "",
             p->has_bias ? "-bias" : "", window, cap, p->has_sinks ? "-sinks" : "",
             p->packed ? "-packed" : "", page, lies[lie]);
}

/* The strides of a bias: a row for all queries of a batch, a matrix per head or per both, or for
 * each head a number per distance j - i (as ALiBi's): rows run backwards. */
static void give_bias(struct problem *p, enum bias_of of)
{
    size_t row = p->seqlen_k, matrix = p->seqlen_q * row;
    p->has_bias_strides = of != BIAS_OF_ALL;
    if (of == BIAS_PER_BATCH) p->bias_strides = (struct strides){row, 0, 0};
    if (of == BIAS_PER_HEAD) p->bias_strides = (struct strides){0, matrix, row};
    if (of == BIAS_PER_BOTH) p->bias_strides = (struct strides){p->heads_q * matrix, matrix, row};
    if (of == BIAS_TOEPLITZ)
        p->bias_strides = (struct strides){0, p->seqlen_q + p->seqlen_k - 1, SIZE_MAX};
}

static struct test_case *add(enum op op, enum recipe recipe, size_t at, int marks)
{
    if (n_cases == MOST_CASES) {
        fprintf(stderr, "case_list.c: more than %d cases\n", MOST_CASES);
        exit(1);
    }
    struct test_case *c = &case_list[n_cases++];
    c->problem.op = op;
    c->recipe = recipe;
    c->at = at;
    c->quick = (marks & QUICK) != 0;
    c->executed = (marks & EXECUTED) != 0;
    c->only_gpu = (marks & ONLY_GPU) != 0;
    c->halves = recipe != VAST && recipe != NEAR_MAX && recipe != OPPOSITE;
    case_name_add(c, "%s-%s", op_name(op), recipe_names[recipe]);
    if (at) case_name_add(c, "@%zu", at);
    return c;
}

struct test_case *add_rows(enum op op, enum recipe recipe, size_t at, size_t rows,
                           size_t cols, int marks)
{
    struct test_case *c = add(op, recipe, at, marks);
    c->problem.rows = rows;
    c->problem.cols = cols;
    if (recipe == LOW) c->halves = 0; /* -1e5 is no float16 */
    case_name_add(c, "-%zux%zu", rows, cols);
    return c;
}

struct test_case *add_attention(enum op op, enum recipe recipe, size_t at, struct shape s,
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
    p->has_window = s.window;
    p->window_left = s.left;
    p->window_right = s.right;
    p->softcap = s.softcap;
    p->has_sinks = s.sinks;
    give_bias(p, s.bias_of);
    p->packed = s.packed;
    p->page_size = s.page;
    lay_out(p, s.lie);
    p->scale = s.scaled ? s.scale : 1 / sqrtf((float)p->head_dim);
    case_name_add(c, "-%zux%zu-d%zu", p->seqlen_q, p->seqlen_k, p->head_dim);
    if (p->head_dim_v != p->head_dim) case_name_add(c, "v%zu", p->head_dim_v);
    if (p->batch * p->heads_q > 1)
        case_name_add(c, "-b%zuh%zukv%zu", p->batch, p->heads_q, p->heads_kv);
    char features[80];
    features_name(p, s.lie, features, sizeof features);
    static const char *const of[] = {"", "_per_batch", "_per_head", "_per_both", "_toeplitz"};
    case_name_add(c, "%s%s%s", features, s.bias_of ? "-bias" : "", of[s.bias_of]);
    if (s.scaled) case_name_add(c, "-scale%g", s.scale);
    return c;
}
