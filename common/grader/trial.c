/* trial.c: is a worker right?  The judge's variant hands each problem to the worker; the same
 * comparison as for every variant judges what comes back. */
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measurement/timing.h"
#include "problem/variant.h"
#include "verification/check_variant.h"

enum { SPEED_RUNS = 15, SMALL = 8 };

static struct worker *current; /* what the variant's functions talk to */

/* Where the arrays of p lie in the shared file; 0 when it is too small. */
static int lay_out(struct request *q, const struct arrays *a, const void *at[N_ARRAYS])
{
    const struct problem *p = &q->problem;
    struct sizes n = problem_sizes(p);
    size_t size = dtype_size(p->dtype), used = 0;
    const void *const from[N_ARRAYS] = {a->x, a->w, a->q, a->k, a->v, a->bias, a->index,
                                        a->k_new, a->v_new, a->y, a->o, a->lse};
    const size_t bytes[N_ARRAYS] = {
        n.x * size, n.w * size, n.q * size, n.k * size, n.v * size,
        n.bias * sizeof(float), n.index * sizeof(size_t), n.k_new * size, n.v_new * size,
        n.y * size, n.o * size, n.lse * sizeof(float)};
    q->guard = GUARD;
    for (int i = 0; i < N_ARRAYS; i++) {
        int output = i >= AT_Y;
        at[i] = from[i] ? (const char *)from[i] - (output ? GUARD : 0) : NULL;
        if (!from[i] || !bytes[i]) continue;
        q->span[i].offset = used;
        q->span[i].bytes = bytes[i] + (output ? 2 * GUARD : 0);
        used += (q->span[i].bytes + 63) / 64 * 64;
    }
    return used <= region_bytes;
}

/* What the judge's variant does for every operation: the worker does it. */
static void compute(const struct problem *p, const struct arrays *a)
{
    struct request q = {.kind = COMPUTE, .problem = *p};
    struct reply r;
    const void *at[N_ARRAYS];
    current->failure[0] = 0;
    if (!lay_out(&q, a, at)) {
        fprintf(stderr, "judge: a case is larger than the shared file\n");
        exit(3);
    }
    for (int i = 0; i < N_ARRAYS; i++)
        if (q.span[i].bytes)
            memcpy(current->region + q.span[i].offset, at[i], q.span[i].bytes);
    if (!worker_ask(current, &q, &r)) return;
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!q.span[i].bytes) continue;
        const char *new = current->region + q.span[i].offset;
        if (i >= AT_Y) memcpy((void *)at[i], new, q.span[i].bytes);
        else if (memcmp(new, at[i], q.span[i].bytes))
            snprintf(current->failure, sizeof current->failure,
                     "an input was overwritten");
    }
}

void trial_describe(struct trial *t)
{
    struct worker *solution = t->solution;
    struct request q = {.kind = DESCRIBE};
    struct reply r;
    int described = worker_ask(solution, &q, &r);
    if (!described) { /* perhaps its libraries lie where nobody expects them */
        worker_limits.hide_files = 0;
        described = worker_ask(solution, &q, &r);
    }
    if (!described) {
        fprintf(stderr, "judge: %s: %s\n", solution->program, solution->failure);
        exit(3);
    }
    t->variant = (struct variant){
        .name = "exercise", .device = ON_CPU, .types = r.types, .supports = r.supports,
        .max_score = r.max_score, .masked_rows = r.masked_rows, .isolates_v = r.isolates_v};
    t->variant.types |= TYPE(t->dtype);
    t->executed |= r.device == GPU_ON_CPU;
    for (int op = 0, n = 0; op < N_OPS; op++)
        if (r.ops >> op & 1)
            t->variant.does[n++] = (struct op_function){(enum op)op, compute};
}

static size_t elements(const struct problem *p)
{
    struct sizes n = problem_sizes(p);
    return n.x + n.w + n.y + n.q + n.k + n.v + n.bias + n.o + n.lse;
}

/* More than a plain loop does in about a second, or than the shared file should hold? */
static int is_large(const struct test_case *c)
{
    return c->only_gpu || problem_flops(&c->problem) > 4e8 ||
           elements(&c->problem) > (size_t)1 << 22;
}

static void print_array(const char *test_case, const char *name, const void *data, size_t n,
                        int is_double)
{
    if (!data || !n) return;
    printf("array\t%s\t%s\t%s\t", test_case, name, is_double ? "expected" : "is");
    for (size_t i = 0; i < n; i++)
        printf("%s%.9g", i ? " " : "",
               is_double ? ((const double *)data)[i] : (double)((const float *)data)[i]);
    printf("\n");
}

/* A case small enough to be computed by hand: its inputs and the right answer. */
static void print_small(const struct prepared *p)
{
    const struct problem *problem = &p->inputs->problem;
    struct sizes n = problem_sizes(problem);
    const struct arrays *a = &p->inputs->arrays;
    const struct answer *y = &p->standard->answer[ARRAY_Y], *o = &p->standard->answer[ARRAY_O];
    const struct answer *lse = &p->standard->answer[ARRAY_LSE];
    const struct { const char *name; const void *data; size_t n; } all[] = {
        {"x", a->x, n.x}, {"w", a->w, n.w}, {"q", a->q, n.q}, {"k", a->k, n.k},
        {"v", a->v, n.v}, {"bias", a->bias, n.bias}, {"k_new", a->k_new, n.k_new},
        {"v_new", a->v_new, n.v_new}, {"y", y->want, y->n}, {"o", o->want, o->n},
        {"lse", lse->want, lse->n}};
    int count = sizeof all / sizeof *all;
    for (int i = 0; i < count; i++)
        if (all[i].data && all[i].n > SMALL) return;
    for (int i = 0; i < count; i++)
        print_array(p->test_case->name, all[i].name, all[i].data, all[i].n, i >= count - 3);
}

/* The worker crashed or took too long on this case.  Can the solution do it? */
static void try_solution(const struct trial *t, const struct prepared *p)
{
    struct worker *solution = t->solution;
    const char *could_not;
    double begin = seconds_now();
    current = solution;
    struct verdict verdict = check_variant(&t->variant, p, 0, &could_not);
    if (solution->failure[0] || could_not || !verdict.ok)
        machine_fails(p->test_case->name, solution->failure[0] ? solution->failure :
                      could_not ? could_not : verdict.reason);
    if (t->worker->waited && seconds_now() - begin > worker_limits.wall_s / 4)
        machine_fails(p->test_case->name, "the solution takes long too");
}

/* Prints its line.  Returns whether the worker was right; -1 for a case that the solution
 * does not promise, and then prints nothing. */
static int judge_case(const struct trial *t, const struct test_case *c)
{
    struct worker *w = t->worker;
    struct prepared p = prepare(c, t->dtype, test_case_seed(c) + t->seed);
    if (not_promised(&t->variant, &p)) {
        prepared_free(&p);
        return -1;
    }
    const char *could_not;
    char index[80] = "";
    int repeat = c->quick && (c->recipe == RANDOM || c->recipe == ASCENDING);
    current = w;
    int were = w->crashes + w->hangs;
    struct verdict verdict = check_variant(&t->variant, &p, repeat, &could_not);
    if (could_not) machine_fails(c->name, could_not);
    if (w->crashes + w->hangs > were && !t->unsolved) try_solution(t, &p);
    const char *why = could_not ? could_not : verdict.reason;
    if (w->failure[0]) why = w->failure;
    int ok = !w->failure[0] && !could_not && verdict.ok;
    if (!ok && verdict.array && !w->failure[0])
        snprintf(index, sizeof index, "%s", verdict.array);
    size_t used = strlen(index);
    if (used) verdict_index(&verdict, index + used, sizeof index - used);
    printf("case\t%s\t%s\t%zu\t%s\t%s\t", c->name, dtype_name(t->dtype),
           elements(&c->problem), ok ? "ok" : why, index);
    printf("%.9g\t%.9g\t%.3g\t%.3g\n", verdict.got, verdict.want, verdict.err,
           verdict.allowed);
    if (!ok) print_small(&p);
    prepared_free(&p);
    return ok;
}

/* A shape on which a plain variant takes some milliseconds. */
static struct test_case speed_case(const struct trial *t)
{
    const struct variant *v = &t->variant;
    struct test_case c = {.name = "speed", .recipe = RANDOM};
    struct problem *p = &c.problem;
    p->op = OP_ATTENTION;
    if (variant_does(v, OP_SOFTMAX)) p->op = OP_SOFTMAX;
    if (variant_does(v, OP_LOGSOFTMAX)) p->op = OP_LOGSOFTMAX;
    if (variant_does(v, OP_MEAN)) p->op = OP_MEAN;
    if (p->op != OP_ATTENTION) {
        p->rows = 64;
        p->cols = p->op == OP_MEAN ? 16384 : 4096;
        return c;
    }
    p->batch = p->heads_q = p->heads_kv = 1;
    p->seqlen_q = p->seqlen_k = t->executed ? 128 : 256;
    p->head_dim = p->head_dim_v = 64;
    p->scale = 0.125f;
    return c;
}

void trial_speed(const struct trial *t)
{
    struct test_case c = speed_case(t);
    struct inputs *in = inputs_new(&c, t->dtype, 1);
    struct outputs out = outputs_new(&c.problem);
    double least[2] = {INFINITY, INFINITY};
    outputs_bind(&out, &in->arrays);
    double begin = seconds_now();
    for (int i = 0; i < SPEED_RUNS || seconds_now() - begin < 0.5; i++)
        for (int k = 0; k < 2; k++) {
            current = k ? t->solution : t->worker;
            double start = seconds_now();
            compute(&c.problem, &in->arrays);
            if (current->failure[0]) return;
            double taken = seconds_now() - start;
            if (taken < least[k]) least[k] = taken;
        }
    printf("speed\t%.9g\t%.9g\n", least[0], least[1]);
    outputs_free(&out);
    inputs_free(in);
}

/* Judges a case, if the solution supports and does not refuse it.  Returns whether it ran. */
static int count_case(struct trial *t, const struct test_case *c)
{
    struct request q = {.kind = REFUSES, .problem = c->problem};
    struct reply r = {.ok = 1};
    if (variant_refuses(&t->variant, &c->problem)) return 0;
    if (!worker_ask(t->solution, &q, &r)) machine_fails(c->name, t->solution->failure);
    if (!r.ok) return 0;
    int ok = judge_case(t, c);
    if (ok < 0) return 0;
    t->n_cases += 1;
    t->n_failed += !ok;
    fflush(stdout);
    return 1;
}

void trial_listed(struct trial *t, int quick)
{
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++) {
        if (!variant_does(&t->variant, c[i].problem.op) || (quick && !c[i].quick)) continue;
        if ((t->executed && !c[i].executed) || is_large(&c[i])) continue;
        count_case(t, &c[i]);
    }
}

void trial_drawn(struct trial *t, size_t draw)
{
    for (size_t i = 0, ran = 0; i < 20 * draw && ran < draw; i++) {
        enum op op = (enum op)(i % N_OPS);
        if (!variant_does(&t->variant, op)) continue;
        struct test_case c = test_case_draw(op, t->seed * 1000003 + i);
        if (is_large(&c) || (t->executed && problem_flops(&c.problem) > 3e6)) continue;
        ran += (size_t)count_case(t, &c);
    }
}
