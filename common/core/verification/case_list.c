/* case_list.c: from the table of cases to cases, and their names. */
#include "verification/case_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/operation.h"
#include "problem/random.h"

enum { MOST_CASES = 1400 };

static struct test_case case_list[MOST_CASES];
static size_t n_cases;

#define RECIPE_NAME(recipe, name) #name,
static const char *const recipe_names[N_RECIPES] = {RECIPES(RECIPE_NAME)};

const char *recipe_name(enum recipe recipe) { return recipe_names[recipe]; }

void case_name_add(struct test_case *c, const char *format, ...)
{
    size_t n = strlen(c->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->name + n, sizeof c->name - n, format, arguments);
    va_end(arguments);
}

void add_features(struct test_case *c, enum rows_lie lie, enum bias_form of)
{
    static const char *const lies[] = {"", "-blhd", "-qkv"};
    static const char *const whose[] = {
        "", "-bias_per_batch", "-bias_per_head", "-bias_per_both", "-bias_toeplitz"};
    const struct problem *p = &c->problem;
    case_name_add(c, "%s%s", p->causal ? "-causal" : "", p->has_bias ? "-bias" : "");
    if (p->has_bias_gradient) case_name_add(c, "-dbias");
    if (p->has_window) case_name_add(c, "-window%td,%td", p->window_left, p->window_right);
    if (p->softcap > 0) case_name_add(c, "-cap%g", (double)p->softcap);
    if (p->dropout > 0) case_name_add(c, "-dropout%g", (double)p->dropout);
    case_name_add(c, "%s%s", p->has_sinks ? "-sinks" : "", p->packed ? "-packed" : "");
    if (p->has_lengths) case_name_add(c, "-lengths");
    if (p->cache) case_name_add(c, "-kv_%s", dtype_name(p->cache));
    if (p->page_size) case_name_add(c, "-page%zu", p->page_size);
    case_name_add(c, "%s%s", lies[lie], whose[of]);
}

/* A case in the making. */
struct draft {
    struct test_case c;
    int in, scaled;
    enum rows_lie lie;
    enum bias_form bias;
};

/* What a word of the table sets. */
enum kind { COUNT, FLAG, REAL, RANGE, WORD };
static const struct field {
    const char *name;
    enum kind kind;
    size_t offset;     /* in struct draft */
    const char *words; /* WORD: its values, "all batch " */
} fields[] = {
#define OF(field) offsetof(struct draft, field)
#define P(field) offsetof(struct draft, c.problem.field)
#define SCORE_FIELD(name, value, verbs, kind, field, given, word, how) {word, how, P(field), 0},
    {"rows", COUNT, P(rows), 0},        {"cols", COUNT, P(cols), 0},
    {"q", COUNT, P(seqlen_q), 0},       {"k", COUNT, P(seqlen_k), 0},
    {"d", COUNT, P(head_dim), 0},       {"dv", COUNT, P(head_dim_v), 0},
    {"batch", COUNT, P(batch), 0},      {"heads", COUNT, P(heads_q), 0},
    {"kv", COUNT, P(heads_kv), 0},      {"bias", FLAG, P(has_bias), 0},
    SCORE_OPTIONS(SCORE_FIELD)
    {"dbias", FLAG, P(has_bias_gradient), 0},
    {"sinks", FLAG, P(has_sinks), 0},   {"packed", FLAG, P(packed), 0},
    {"page", COUNT, P(page_size), 0},   {"at", COUNT, OF(c.at), 0},
    {"cache", WORD, P(cache), "f32 f16 bf16 e4m3 int8 "},
    {"lengths", FLAG, P(has_lengths), 0},
    {"in", WORD, OF(in), "full quick executed both gpu "},
    {"lie", WORD, OF(lie), "contiguous blhd qkv "},
    {"bias_per", WORD, OF(bias), "all batch head both toeplitz "},
};

static void set_field(struct draft *d, const struct field *f, const char *value)
{
    void *to = (char *)d + f->offset;
    char *end;
    double x = *value ? strtod(value, &end) : 1;
    size_t n = strcspn(value, ", ");
    const char *word = f->words;
    switch (f->kind) {
    case COUNT: *(size_t *)to = (size_t)x; break;
    case FLAG: *(int *)to = (int)x; break;
    case REAL:
        *(float *)to = (float)x;
        d->scaled |= to == &d->c.problem.scale;
        break;
    case RANGE:
        d->c.problem.has_window = 1;
        d->c.problem.window_left = (ptrdiff_t)x;
        d->c.problem.window_right = strtol(end + 1, NULL, 10);
        break;
    case WORD:
        for (*(int *)to = 0; strncmp(word, value, n) || word[n] != ' '; ++*(int *)to)
            word = strchr(word, ' ') + 1;
    }
}

/* "q=1,2,3 causal": the word's field and the list behind it, "1,2,3"; 0 at the end. */
static int next_word(const char **text, const struct field **f, const char **list)
{
    size_t n = strcspn(*text, "= ");
    if (!**text) return 0;
    for (*f = fields; strlen((*f)->name) != n || strncmp((*f)->name, *text, n); ++*f)
        if (*f + 1 == fields + sizeof fields / sizeof *fields) {
            fprintf(stderr, "case_table.c: no field '%s'\n", *text);
            exit(1);
        }
    *text += n;
    *list = **text == '=' ? ++*text : "";
    *text += strcspn(*text, " ");
    *text += **text == ' ';
    return 1;
}

static size_t items_of(const char *list)
{
    size_t n = 1;
    for (; *list && *list != ' '; list++) n += *list == ',';
    return n;
}

/* The defaults, the layout and the name of an attention problem. */
static void add_heads(struct draft *d)
{
    struct test_case *c = &d->c;
    struct problem *p = &c->problem;
    if (!p->batch) p->batch = 1;
    if (!p->heads_q) p->heads_q = 1;
    if (!p->heads_kv) p->heads_kv = p->heads_q;
    if (!p->head_dim) p->head_dim = 64;
    if (!p->head_dim_v) p->head_dim_v = p->head_dim;
    if (!d->scaled) p->scale = 1 / sqrtf((float)p->head_dim);
    give_bias(p, d->bias);
    lay_out(p, d->lie);
    case_name_add(c, "-%zux%zu-d%zu", p->seqlen_q, p->seqlen_k, p->head_dim);
    if (p->head_dim_v != p->head_dim) case_name_add(c, "v%zu", p->head_dim_v);
    if (p->batch * p->heads_q > 1)
        case_name_add(c, "-b%zuh%zukv%zu", p->batch, p->heads_q, p->heads_kv);
    add_features(c, d->lie, d->bias);
    if (d->scaled) case_name_add(c, "-scale%g", p->scale);
    if (p->n_updates) case_name_add(c, "-u%zu", p->n_updates);
}

static void add(struct draft *d)
{
    struct test_case *c = &d->c;
    const struct problem *p = &c->problem;
    if (n_cases == MOST_CASES) {
        fprintf(stderr, "case_list.c: more than %d cases\n", MOST_CASES);
        exit(1);
    }
    c->quick = d->in == QUICK || d->in == BOTH;
    c->executed = d->in == EXECUTED || d->in == BOTH;
    c->only_gpu = d->in == ONLY_GPU;
    c->halves = c->recipe != VAST && c->recipe != NEAR_MAX && c->recipe != OPPOSITE &&
                !(p->rows && c->recipe == LOW); /* -1e5 is no float16 */
    case_name_add(c, "%s-%s", op_name(p->op), recipe_names[c->recipe]);
    if (c->at) case_name_add(c, "@%zu", c->at);
    if (p->rows) case_name_add(c, "-%zux%zu", p->rows, p->cols);
    else add_heads(d);
    case_list[n_cases++] = *c;
}

/* Case i of a row, with that recipe. */
static void add_case(enum op op, enum recipe recipe, const char *text, size_t i,
                     size_t nth)
{
    struct draft d = {.c = {.recipe = recipe, .problem = {.op = op}}};
    const struct field *f;
    const char *list;
    while (next_word(&text, &f, &list)) {
        size_t n = items_of(list), last = f->offset == OF(in) && i >= n;
        for (size_t k = last ? n - 1 : i % n; k; k--) list = strchr(list, ',') + 1;
        set_field(&d, f, list);
    }
    if (operations[op].updates) d.c.problem.n_updates = 1 + nth % 3 * 8;
    add(&d);
}

static void add_cases(enum op op, const struct cases *row, size_t first)
{
    size_t n = 1, length;
    const struct field *f;
    const char *list;
    for (const char *text = row->problems; next_word(&text, &f, &list);)
        n = items_of(list) > n ? items_of(list) : n;
    for (const char *name = row->recipes; *name; name += length + (name[length] == ' ')) {
        int r = 0;
        length = strcspn(name, " ");
        while (strlen(recipe_names[r]) != length || strncmp(recipe_names[r], name, length)) r++;
        for (size_t i = 0; i < n; i++)
            add_case(op, (enum recipe)r, row->problems, i, n_cases - first);
    }
}

/* Shapes drawn at random: combinations that nobody thought of. */
static void add_any(void)
{
    struct random r = {2024};
    static const enum recipe kinds[] = {RANDOM, SHIFT_20, OUTLIER, ZERO_Q, WIDE};
    for (size_t i = 0; i < 60; i++) { /* one draw a statement: their order is fixed */
        struct draft d = {.c.problem.op = OP_ATTENTION, .in = i % 10 == 0 ? QUICK : FULL};
        struct problem *p = &d.c.problem;
        p->seqlen_q = 1 + random_below(&r, 200);
        p->seqlen_k = 1 + random_below(&r, 300);
        p->batch = 1 + random_below(&r, 2);
        p->heads_kv = 1 + random_below(&r, 2);
        p->heads_q = p->heads_kv * (1 + random_below(&r, 3));
        p->head_dim = 1 + random_below(&r, 130);
        if (i % 2) p->head_dim = p->head_dim % 2 ? 64 : 128;
        p->head_dim_v = 1 + random_below(&r, 130);
        if (i % 3) p->head_dim_v = p->head_dim;
        p->causal = (int)random_below(&r, 2);
        p->has_bias = random_below(&r, 3) == 0;
        size_t at = random_below(&r, p->seqlen_k);
        d.c.recipe = p->has_bias ? MASK_SOME : kinds[i % 5];
        d.c.at = d.c.recipe == OUTLIER ? at : 0;
        add(&d);
    }
}

const struct test_case *test_cases(size_t *n)
{
    for (int op = 0, first_call = !n_cases; first_call && op < N_OPS; op++) {
        size_t first = n_cases;
        for (const struct cases *f = cases_of[op]; f->recipes; f++)
            add_cases((enum op)op, f, first);
        if (op == OP_ATTENTION) add_any();
    }
    *n = n_cases;
    return case_list;
}

const struct test_case *test_case_find(const char *name)
{
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(c[i].name, name)) return &c[i];
    return NULL;
}

uint64_t test_case_seed(const struct test_case *c) { return random_seed(c->name); }
