/* random_cases.c: cases drawn at random, for the differential fuzzer: check --random N. */
#include "problem/operation.h"
#include "problem/random.h"
#include "verification/case_list.h"

/* 1 .. limit, every magnitude about equally often, one time in four beside a tile edge. */
static size_t draw_size(struct random *r, size_t limit)
{
    static const size_t edges[] = {16, 32, 48, 64, 128, 176, 256, 512, 1024, 4096};
    size_t n_edges = 0;
    while (n_edges < sizeof edges / sizeof *edges && edges[n_edges] < limit) n_edges++;
    if (n_edges && random_below(r, 4) == 0)
        return edges[random_below(r, n_edges)] - 1 + random_below(r, 3);
    size_t bits = 1;
    while ((size_t)1 << bits < limit) bits++;
    size_t n = 1 + random_below(r, (size_t)1 << (1 + random_below(r, bits)));
    return n < limit ? n : limit;
}

static enum recipe draw_from(struct random *r, const enum recipe *list, size_t n)
{
    return list[random_below(r, n)];
}
#define DRAW_FROM(r, list) draw_from(r, list, sizeof(list) / sizeof *(list))

static void draw_rows(struct random *r, struct test_case *c)
{
    static const enum recipe scores[] = {
        RANDOM,    WIDE, RANGE_80, EQUAL,     ASCENDING, DESCENDING, OUTLIER, SHIFT_20,
        SHIFT_200, LOW,  LARGE,    VAST,      MASK_SOME, MASK_ROW,   MASK_FIRST,
        MASK_LAST, MASK_MIDDLE,    MASK_LANES, MASK_BUT_ONE, NAN_Q,  INF_SCORE, TINY};
    static const enum recipe numbers[] = {RANDOM, EQUAL, ASCENDING, DESCENDING, LARGE};
    struct problem *p = &c->problem;
    p->cols = draw_size(r, random_below(r, 8) ? 5000 : 1 << 20);
    p->rows = draw_size(r, 1 + 20000 / p->cols);
    int is_softmax = p->op == OP_SOFTMAX || p->op == OP_LOGSOFTMAX;
    c->recipe = is_softmax ? DRAW_FROM(r, scores) : DRAW_FROM(r, numbers);
    c->halves = c->recipe != LOW;
    c->executed = p->rows <= 100 && p->rows * p->cols <= 4000; /* a block of threads a row */
}

/* Heads, head dims, masks and scale of an attention problem, small or larger. */
static void draw_attention_shape(struct random *r, struct problem *p, size_t longest)
{
    int one_query = operations[p->op].one_query;
    p->seqlen_q = one_query ? 1 : draw_size(r, longest);
    p->seqlen_k = draw_size(r, longest + longest / 2);
    p->batch = 1 + random_below(r, 2);
    p->heads_kv = 1 + random_below(r, 2);
    p->heads_q = p->heads_kv * (1 + random_below(r, 3));
    p->head_dim = random_below(r, 2) ? 64 : draw_size(r, 160);
    p->head_dim_v = random_below(r, 3) ? p->head_dim : draw_size(r, 160);
    p->causal = !one_query && random_below(r, 2);
    p->has_bias = random_below(r, 3) == 0;
    p->scale = 1 / sqrtf((float)p->head_dim);
    if (random_below(r, 8) == 0) p->scale = 0.01f + 0.5f * random_uniform(r);
    p->n_updates = operations[p->op].updates ? 1 + random_below(r, 9) : 0;
}

static void draw_attention(struct random *r, struct test_case *c)
{
    static const enum recipe plain[] = {
        RANDOM,   WIDE,      EQUAL, ASCENDING, DESCENDING, OUTLIER, SHIFT_20,
        SHIFT_200, LOW,      LARGE, VAST,      ZERO_Q,     MARKERS, TINY};
    static const enum recipe spoiled[] = {NAN_Q, NAN_K, NAN_V, NAN_V_ONE, NAN_V_FAR};
    static const enum recipe biased[] = {MASK_SOME,  MASK_ROW,     MASK_FIRST, MASK_LAST,
                                         MASK_MIDDLE, MASK_LANES,  MASK_BUT_ONE, NAN_K,
                                         INF_K,      NAN_V,        INF_V,      INF_SCORE};
    static const enum recipe mild[] = {RANDOM, WIDE, EQUAL, OUTLIER, SHIFT_20, ZERO_Q};
    struct problem *p = &c->problem;
    int small = random_below(r, 2) == 0;
    draw_attention_shape(r, p, small ? 80 : 220);
    if (p->op != OP_ATTENTION) c->recipe = DRAW_FROM(r, mild);
    else if (p->has_bias) c->recipe = DRAW_FROM(r, biased);
    else if (random_below(r, 6) == 0) c->recipe = DRAW_FROM(r, spoiled);
    else c->recipe = DRAW_FROM(r, plain);
    c->halves = c->recipe != VAST;
    c->executed = small && p->batch * p->heads_q <= 4 && p->head_dim <= 128 &&
                  p->head_dim_v <= 128;
}

/* What calls ask for beyond that (case_table.c): half of the problems have none of it, the
 * others any combination.  Adds them to its name. */
static void draw_call(struct random *r, struct test_case *c)
{
    struct problem *p = &c->problem;
    static const size_t pages[] = {1, 7, 16, 48, 64, 256};
    int backward = p->op == OP_BACKWARD; /* its problems have neither pages nor lengths */
    if ((p->op != OP_ATTENTION && !backward) || random_below(r, 2)) {
        add_features(c, CONTIGUOUS, BIAS_FOR_ALL);
        return;
    }
    p->has_window = random_below(r, 2) == 0;
    p->window_left = (ptrdiff_t)random_below(r, p->seqlen_k + 2) - 1;
    p->window_right = (ptrdiff_t)random_below(r, 20) - 1;
    if (random_below(r, 3) == 0) p->softcap = 1 + 49 * random_uniform(r);
    p->has_sinks = random_below(r, 3) == 0;
    if (random_below(r, 4) == 0) p->dropout = 0.9f * random_uniform(r), p->seed = random_bits(r);
    p->packed = random_below(r, 3) == 0;
    if (backward) p->page_size = 0;
    else if (random_below(r, 3) == 0) p->page_size = pages[random_below(r, 6)];
    else p->has_lengths = random_below(r, 3) == 0;
    if (p->packed || p->has_lengths) p->batch += random_below(r, 3);
    enum rows_lie lie = (enum rows_lie)random_below(r, 3);
    enum bias_form of = p->has_bias ? (enum bias_form)random_below(r, 5) : BIAS_FOR_ALL;
    p->has_bias_gradient = backward && p->has_bias && of != BIAS_TOEPLITZ && random_below(r, 2);
    lay_out(p, lie);
    give_bias(p, of);
    add_features(c, lie, of);
}

struct test_case test_case_draw(enum op op, uint64_t seed)
{
    struct random r = {seed ^ 0x5deece66du};
    struct test_case c = {.problem = {.op = op}};
    int rows = operations[op].family == ON_ROWS;
    if (rows) draw_rows(&r, &c);
    else draw_attention(&r, &c);
    const struct problem *p = &c.problem;
    size_t n = c.recipe == NAN_Q || c.recipe == MASK_ROW ? rows ? p->rows : p->seqlen_q
               : rows && c.recipe == INF_SCORE ? p->rows
               : rows ? p->cols : p->seqlen_k;
    c.at = random_below(&r, n);
    case_name_add(&c, "%s-%s@%zu", op_name(op), recipe_name(c.recipe), c.at);
    if (rows) {
        case_name_add(&c, "-%zux%zu", p->rows, p->cols);
        return c;
    }
    case_name_add(&c, "-%zux%zu-d%zuv%zu", p->seqlen_q, p->seqlen_k, p->head_dim,
                  p->head_dim_v);
    struct random of_call = {seed ^ 0xca11};
    draw_call(&of_call, &c);
    return c;
}
