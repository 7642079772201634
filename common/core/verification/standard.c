/* standard.c: the answer of a problem and what is allowed, whatever its operation. */
#include "verification/standard.h"

#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/feature.h"
#include "problem/host_memory.h"
#include "verification/reference.h"

/* What fills in the right answer and its likely error, in the order of problem/operation.c. */
static reference_function *const references[] = {
    [OP_SOFTMAX] = reference_rows, [OP_LOGSOFTMAX] = reference_rows,
    [OP_ATTENTION] = reference_attention, [OP_LOGSOFTMAX_ATTENTION] = reference_attention,
    [OP_MEAN] = reference_rows, [OP_SCAN] = reference_attention,
    [OP_UPDATE] = reference_attention, [OP_FUSED_REDUCTION] = reference_rows,
    [OP_BACKWARD] = reference_backward};
_Static_assert(sizeof references / sizeof *references == N_OPS, "each operation's entry");

struct standard *standard_room(const struct problem *p)
{
    struct standard *s = xcalloc(1, sizeof *s);
    s->problem = *p;
    s->v_is_finite = 1;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct answer *of = &s->answer[i];
        if (array_role(p, i) != OUTPUT) continue;
        of->n = array_dense_count(p, i);
        double **const parts[] = {&of->want, &of->likely, &of->own, &of->allowed};
        for (int k = 0; k < 4; k++) *parts[k] = xcalloc(of->n, sizeof(double));
    }
    return s;
}

void standard_free(struct standard *s)
{
    if (!s) return;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct answer *of = &s->answer[i];
        free(of->want), free(of->likely), free(of->own), free(of->allowed);
    }
    free(s->broken);
    free(s);
}

struct problem problem_without_layout(const struct problem *p)
{
    struct problem plain = *p;
    plain.packed = plain.has_lengths = 0;
    plain.total_q = plain.total_k = 0;
    plain.page_size = plain.n_pages = plain.pages_per_sequence = 0;
    plain.q_strides = plain.k_strides = (struct strides){0, 0, 0};
    plain.v_strides = plain.o_strides = (struct strides){0, 0, 0};
    return plain;
}

/* Where row i of head h begins. */
static size_t row_at(const struct rows *r, enum array array, struct strides by, size_t h,
                     size_t i)
{
    return array_is_of_keys(array) ? key_at(r->p, r->a, &r->s, by, h, i)
                                   : query_at(r->p, &r->s, by, h, i);
}

void rows_copy(enum array i, size_t size, void *to, const struct rows *rows_to,
               const void *from, const struct rows *rows_from)
{
    struct extents e = array_extents(rows_to->p, i);
    struct strides by_to = array_strides(rows_to->p, i);
    struct strides by_from = array_strides(rows_from->p, i);
    const struct sequence *s = &rows_to->s;
    size_t rows = array_is_of_keys(i) ? s->seqlen_k : s->seqlen_q;
    size_t bytes = (e.rank > 3 ? e.size[3] : 1) * size;
    for (size_t h = 0; h < e.size[1]; h++)
        for (size_t row = 0; row < rows; row++)
            memcpy((char *)to + row_at(rows_to, i, by_to, h, row) * size,
                   (const char *)from + row_at(rows_from, i, by_from, h, row) * size, bytes);
}

/* One sequence of an attention problem, as a plain problem of its own: copies make it plain. */
struct part {
    struct problem p;    /* batch 1 */
    struct arrays a;     /* its inputs */
    struct sequence s;   /* in the whole problem */
    void *memory[N_ARRAYS];
};

/* The bias is that of the longest sequences; the part has its own lengths. */
static void gather_bias(const struct part *part, const struct problem *p, const float *bias,
                        float *own)
{
    size_t heads = p->has_bias_strides ? p->heads_q : 1, n = part->s.seqlen_k;
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < part->s.seqlen_q; i++)
            memcpy(own + bias_at(&part->p, 0, h, i), bias + bias_at(p, part->s.batch, h, i),
                   n * sizeof *own);
}

/* Sequence b of p. */
static struct part part_new(const struct problem *p, const struct arrays *a, size_t b)
{
    struct part part = {.p = problem_without_layout(p), .a = *a, .s = sequence_of(p, a, b)};
    struct rows whole = {p, a, part.s}, of_part = {&part.p, &part.a, part.s};
    of_part.s.batch = of_part.s.q_first = of_part.s.k_first = 0;
    part.p.batch = 1;
    part.p.first_head += b * p->heads_q;
    part.p.seqlen_q = part.s.seqlen_q;
    part.p.seqlen_k = part.s.seqlen_k;
    for (int i = ARRAY_Q_SCALE; i <= ARRAY_V_SCALE; i++)
        if (array_of(a, i)) array_set(&part.a, i, (const float *)array_of(a, i) + b * p->heads_kv);
    part.p.bias_strides = (struct strides){0, part.s.seqlen_q * part.s.seqlen_k, part.s.seqlen_k};
    for (int i = 0; i < N_ARRAYS; i++) {
        if (array_role(&part.p, i) != INPUT || !(array_has_rows(i) || i == ARRAY_BIAS)) continue;
        void *own = part.memory[i] = xcalloc(array_bytes(&part.p, i), 1);
        array_set(&part.a, i, own);
        if (i == ARRAY_BIAS) gather_bias(&part, p, a->bias, own);
        else rows_copy(i, array_element(p, i), own, &of_part, array_of(a, i), &whole);
    }
    return part;
}

static void part_free(struct part *part)
{
    for (int i = 0; i < N_ARRAYS; i++) free(part->memory[i]);
}

static struct standard *standard_of_plain(const struct problem *p, const struct arrays *a)
{
    struct standard *s = standard_room(p);
    references[p->op](s, p, a);
    allow(s, a);
    return s;
}

/* Adds the gradient of the part's bias to that of the whole. */
static void take_bias(struct answer *x, const struct answer *y, const struct problem *p, const struct part *from)
{
    size_t heads = p->has_bias_strides ? p->heads_q : 1;
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < from->s.seqlen_q; i++)
            for (size_t j = 0; j < from->s.seqlen_k; j++) {
                size_t to = bias_at(p, from->s.batch, h, i) + j, own = bias_at(&from->p, 0, h, i) + j;
                x->want[to] += y->want[own], x->allowed[to] += y->allowed[own];
            }
}

/* Copies the answers of a part to their rows. */
static void take_part(struct standard *s, struct standard *part, const struct part *from)
{
    struct problem dense = s->problem;
    dense.q_strides = dense.k_strides = dense.v_strides = dense.o_strides =
        (struct strides){0, 0, 0};
    struct sequence own = {0, 0, 0, from->s.seqlen_q, from->s.seqlen_k};
    struct rows to = {&dense, &from->a, from->s}, of_part = {&from->p, &from->a, own};
    for (int i = 0; i < N_ARRAYS; i++) {
        const struct answer *x = &s->answer[i], *y = &part->answer[i];
        if (i == ARRAY_DBIAS && x->n) take_bias(&s->answer[i], y, &s->problem, from);
        for (size_t e = 0; i == ARRAY_DSINKS && e < x->n; e++) /* a sum over the sequences */
            x->want[e] += y->want[e], x->allowed[e] += y->allowed[e];
        if (!x->n || !array_has_rows(i)) continue;
        rows_copy(i, sizeof(double), x->want, &to, y->want, &of_part);
        rows_copy(i, sizeof(double), x->allowed, &to, y->allowed, &of_part);
    }
    if (part->max_score > s->max_score) s->max_score = part->max_score;
    s->empty_rows += part->empty_rows;
    s->v_is_finite &= part->v_is_finite;
    if (part->broken && !s->broken) s->broken = part->broken, part->broken = NULL;
}

/* Packed sequences, pages and strides: each sequence is gathered and judged as a plain
 * problem, and its rows are put where they belong. */
static struct standard *standard_of_parts(const struct problem *p, const struct arrays *a)
{
    struct standard *s = standard_room(p);
    for (size_t b = 0; b < p->batch; b++) {
        struct part part = part_new(p, a, b);
        if (part.s.seqlen_q) {
            struct standard *of_part = standard_of_plain(&part.p, &part.a);
            take_part(s, of_part, &part);
            standard_free(of_part);
        }
        part_free(&part);
    }
    return s;
}

struct standard *standard_new(const struct problem *p, const struct arrays *a)
{
    return problem_features(p) & LAYOUTS ? standard_of_parts(p, a) : standard_of_plain(p, a);
}

void forward_answer(const struct problem *p, struct arrays *a)
{
    struct problem forward = *p;
    forward.op = OP_ATTENTION;
    struct standard *s = standard_new(&forward, a);
    const struct answer *o = &s->answer[ARRAY_O], *lse = &s->answer[ARRAY_LSE];
    for (size_t e = 0; e < o->n; e++)
        dtypes[array_dtype(p, ARRAY_O)].store(a->o, array_at(p, ARRAY_O, e), (float)o->want[e]);
    for (size_t e = 0; e < lse->n; e++) a->lse[e] = (float)lse->want[e];
    standard_free(s);
}
