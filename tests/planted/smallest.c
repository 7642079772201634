/* smallest.c: how small an error does `check` see?
 *
 *     make smallest [RESULTS=notes/results]
 *
 * Answers of the cases, exact but for one fault of strength x, are judged by the rule of acceptance as a
 * program's would be; the smallest x that some case rejects is found by bisection.  A line for each fault, a
 * pair of columns for each type: on the cases of random numbers alone, and on all.  "-": not seen at x = 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "problem/feature.h"
#include "problem/host_memory.h"
#include "verification/check_variant.h"
#include "verification/compare.h"
#include "verification/reference.h"

/* Where 1 becomes 1 + x, or 1 - x where something is lost. */
enum place { OUTPUT_ITSELF, SCORES, KEY, KEY_OF_O, BEFORE_RISE, BEFORE_RISE_O, D_OF_ROWS, KEY_OF_DQ, QUERY_OF_DK };
static const struct fault {
    enum op op;
    enum place place;
    enum array array; /* OUTPUT_ITSELF: which */
    const char *name;
} faults[] = {
    {OP_SOFTMAX, OUTPUT_ITSELF, ARRAY_Y, "y times 1 + x"},
    {OP_ATTENTION, OUTPUT_ITSELF, ARRAY_O, "o times 1 + x"},
    {OP_ATTENTION, OUTPUT_ITSELF, ARRAY_LSE, "lse plus x max(1, lse)"},
    {OP_ATTENTION, SCORES, 0, "scores times 1 + x"},
    {OP_ATTENTION, KEY, 0, "weight of the last key times 1 - x, in l and o"},
    {OP_ATTENTION, KEY_OF_O, 0, "weight of the last key times 1 - x, in o alone"},
    {OP_ATTENTION, BEFORE_RISE, 0, "last rescaling times 1 - x, of l and o"},
    {OP_ATTENTION, BEFORE_RISE_O, 0, "last rescaling times 1 - x, of o alone"},
    {OP_BACKWARD, OUTPUT_ITSELF, ARRAY_DQ, "dq times 1 + x"},
    {OP_BACKWARD, OUTPUT_ITSELF, ARRAY_DK, "dk times 1 + x"},
    {OP_BACKWARD, OUTPUT_ITSELF, ARRAY_DV, "dv times 1 + x"},
    {OP_BACKWARD, OUTPUT_ITSELF, ARRAY_DSINKS, "dsinks times 1 + x"},
    {OP_BACKWARD, D_OF_ROWS, 0, "D times 1 + x"},
    {OP_BACKWARD, KEY_OF_DQ, 0, "share of the last key times 1 - x, in dq"},
    {OP_BACKWARD, QUERY_OF_DK, 0, "share of the last query times 1 - x, in dk and dv"}};
enum { N_FAULTS = sizeof faults / sizeof *faults };

/* A case, its inputs as floats, and the answers with the fault. */
struct faulty { const struct prepared *c; struct widened in; const struct fault *f; double x, *out[N_ARRAYS]; };

/* o and lse of a row, and its weights in w->p. */
static void forward(struct faulty *a, struct scratch *w, const struct query *q, size_t row)
{
    size_t n = q->n, dv = a->c->inputs->problem.head_dim_v, rise = 0;
    enum place place = a->f->place;
    double m = (double)q->sink, l, lost = 1 - a->x;
    for (size_t j = 0; j < n; j++) {
        w->s[j] *= place == SCORES ? 1 + a->x : 1;
        if (w->s[j] > m) m = w->s[j], rise = j;
    }
    l = m == -INFINITY ? 0 : exp((double)q->sink - m);
    for (size_t j = 0; m > -INFINITY && j < n; j++) {
        double weight = exp(w->s[j] - m);
        int of_both = (place == KEY && j + 1 == n) || (place == BEFORE_RISE && j < rise);
        int of_o = (place == KEY_OF_O && j + 1 == n) || (place == BEFORE_RISE_O && j < rise);
        l += weight * (of_both ? lost : 1);
        w->p[j] = weight * (of_both || of_o ? lost : 1);
    }
    a->out[ARRAY_LSE][row] = m + log(l);
    for (size_t j = 0; j < n; j++) {
        w->p[j] = w->s[j] == -INFINITY ? 0 : w->p[j] / l;
        for (size_t t = 0; w->p[j] != 0 && t < dv; t++) a->out[ARRAY_O][row * dv + t] += w->p[j] * q->v[j * dv + t];
    }
}

/* What the row, whose weights are in w->p, adds to the gradients. */
static void backward(struct faulty *a, const struct scratch *w, const struct query *q, size_t row)
{
    const struct problem *p = &a->c->inputs->problem;
    size_t dv = p->head_dim_v, d = p->head_dim;
    enum place place = a->f->place;
    const float *d_o = a->in.array[ARRAY_DO] + row * dv;
    double D = 0, **out = a->out, lost = 1 - a->x;
    double of_query = place == QUERY_OF_DK && (row + 1) % p->seqlen_q == 0 ? lost : 1;
    for (size_t t = 0; t < dv; t++) D += d_o[t] * out[ARRAY_O][row * dv + t] * (place == D_OF_ROWS ? 1 + a->x : 1);
    for (size_t j = 0; j < q->n; j++) {
        double dp = 0, of_key = place == KEY_OF_DQ && j + 1 == q->n ? lost : 1;
        if (w->p[j] == 0) continue;
        for (size_t t = 0; t < dv; t++) dp += (double)d_o[t] * q->v[j * dv + t];
        double ds = (double)p->scale * w->p[j] * w->slope[j] * (dp - D);
        for (size_t t = 0; t < d; t++) out[ARRAY_DQ][row * d + t] += ds * of_key * q->k[j * d + t];
        for (size_t t = 0; t < d; t++) out[ARRAY_DK][(q->key + j) * d + t] += ds * of_query * q->q[t];
        for (size_t t = 0; t < dv; t++) out[ARRAY_DV][(q->key + j) * dv + t] += w->p[j] * of_query * d_o[t];
    }
    if (q->sink > -INFINITY && out[ARRAY_DSINKS])
        out[ARRAY_DSINKS][q->h] -= exp((double)q->sink - out[ARRAY_LSE][row]) * D;
}

/* The outputs: the right ones with one times 1 + x, or computed with a fault inside. */
static void answer(struct faulty *a)
{
    const struct problem *p = &a->c->inputs->problem;
    const struct answer *right = a->c->standard->answer;
    size_t rows = p->batch * p->heads_q * p->seqlen_q;
    int inside = a->f->place != OUTPUT_ITSELF;
    for (int i = 0; i < N_ARRAYS; i++) {
        if (right[i].n) a->out[i] = xcalloc(right[i].n, sizeof(double));
        for (size_t e = 0; !inside && e < right[i].n; e++) {
            double want = right[i].want[e], more = i == ARRAY_LSE ? fmax(1, fabs(want)) : want;
            a->out[i][e] = want + (i == (int)a->f->array ? a->x * more : 0);
        }
    }
    if (!inside) return;
    struct scratch w = scratch_new(p);
    if (!a->out[ARRAY_O]) a->out[ARRAY_O] = xcalloc(rows * p->head_dim_v, sizeof(double));
    if (!a->out[ARRAY_LSE]) a->out[ARRAY_LSE] = xcalloc(rows, sizeof(double));
    for (size_t row = 0; row < rows; row++) {
        struct query q = query_of(p, &a->c->inputs->arrays, &a->in, row);
        score_row(&w, p, &q);
        forward(a, &w, &q, row);
        if (p->op == OP_BACKWARD) backward(a, &w, &q, row);
    }
    free(w.s);
}

static int accepts(struct faulty a, double x)
{
    struct outputs outputs = outputs_new(&a.c->inputs->problem);
    a.x = x;
    answer(&a);
    for (int i = 0; i < N_ARRAYS; i++) {
        struct output *o = &outputs.array[i];
        for (size_t e = 0; e < o->n; e++) dtypes[o->dtype].store(o->data, e, (float)a.out[i][e]);
        free(a.out[i]);
    }
    int ok = compare(a.c->standard, &outputs).ok;
    outputs_free(&outputs);
    return ok;
}

/* The smallest x seen so far, and the case that saw it. */
struct seen { double x; const char *name; };
static struct seen seen[N_FAULTS][BF16 + 1][2]; /* of random numbers; of all */

/* Bisects where this case sees more than those before it. */
static void look(const struct prepared *c, size_t fault, struct seen *best)
{
    const struct problem *p = &c->inputs->problem;
    struct faulty a = {.c = c, .in = widened_new(p, &c->inputs->arrays), .f = &faults[fault]};
    double low = 0x1p-30, high = best->name ? best->x * 0.95 : 1;
    if (!accepts(a, high) && accepts(a, 0)) {
        while (high / low > 1.05) {
            double x = sqrt(low * high);
            *(accepts(a, x) ? &low : &high) = x;
        }
        *best = (struct seen){high, c->test_case->name};
    }
    widened_free(&a.in);
}

static void look_everywhere(const struct test_case *of, enum dtype type)
{
    struct prepared c = prepare(of, type, test_case_seed(of));
    int clean = isfinite(c.standard->max_score) && c.standard->v_is_finite;
    for (size_t f = 0; clean && f < N_FAULTS; f++)
        for (int all = of->recipe != RANDOM; of->problem.op == faults[f].op && all < 2; all++)
            look(&c, f, &seen[f][type][all]);
    prepared_free(&c);
}

int main(void)
{
    size_t n;
    const struct test_case *cases = test_cases(&n);
    for (size_t i = 0; i < n; i++) {
        const struct problem *p = &cases[i].problem;
        int has_faults = p->op == OP_SOFTMAX || p->op == OP_ATTENTION || p->op == OP_BACKWARD;
        if (!has_faults || cases[i].only_gpu || problem_features(p) & LAYOUTS || problem_flops(p) > 1e8) continue;
        for (int type = F32; type <= BF16; type++)
            if (type == F32 || cases[i].halves) look_everywhere(&cases[i], (enum dtype)type);
    }
    printf("operation,fault,f32 random,f32,f16 random,f16,bf16 random,bf16,case that sees it in bf16\n");
    for (size_t f = 0; f < N_FAULTS; f++) {
        printf("%s,\"%s\"", op_name(faults[f].op), faults[f].name);
        for (int k = 0; k < 6; k++) {
            const struct seen *s = &seen[f][k / 2][k % 2];
            printf(s->name ? ",%.1e" : ",-", s->x);
        }
        printf(",\"%s\"\n", seen[f][BF16][1].name ? seen[f][BF16][1].name : "-");
    }
    return 0;
}
