/* heads.c: a variant that knows one row or one head, on a whole problem. */
#include "problem/heads.h"

#include <omp.h>

#include "problem/arrays.h"

#define LEAST_WORK ((size_t)1 << 14) /* fewer elements are done before a second core wakes up */
#define QUERIES 8                    /* of a head that a core takes at a time */

void (*watcher)(const char *name, size_t j, double number, const float *row, size_t n);

static void each_row(const struct variant *v, const struct problem *p, const struct arrays *a,
                     function_of_row *function)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols, n_y = p->rows ? array_count(p, ARRAY_Y) / p->rows : 0;
#pragma omp parallel for schedule(static)                                                      \
    if (v->all_cores && p->rows > 1 && p->rows * n >= LEAST_WORK)
    for (size_t i = 0; i < p->rows; i++) function(x + i * n, y + i * n_y, n);
}

/* The queries i to i + n - 1 of a head, as a head. */
static struct head some_queries(struct head h, size_t i, size_t n)
{
    h.q += i * h.head_dim;
    h.o += i * h.head_dim_v;
    h.lse += i;
    if (h.bias) h.bias += i * h.seqlen_k;
    if (h.s) h.s += i * h.seqlen_k;
    if (h.p) h.p += i * h.seqlen_k;
    h.last += (ptrdiff_t)i;
    h.seqlen_q = h.seqlen_q - i < n ? h.seqlen_q - i : n;
    return h;
}

/* A head at a time where s and p are stored, so that there is one s and one p, and each core keeps
 * its part of them; else all heads together. */
static void each_head(const struct variant *v, const struct problem *p, const struct arrays *a,
                      function_of_head *function)
{
    size_t heads = n_heads(p), together = v->stores_scores ? 1 : heads;
    size_t cores = v->all_cores ? (size_t)omp_get_max_threads() : 1;
    size_t n = cores > 1 && !v->stores_scores ? QUERIES : (p->seqlen_q + cores - 1) / cores;
    size_t parts = n ? (p->seqlen_q + n - 1) / n : 0;
    omp_set_schedule(v->stores_scores ? omp_sched_static : omp_sched_dynamic, 1);
    for (size_t first = 0; first < heads; first += together) {
#pragma omp parallel for schedule(runtime) if (v->all_cores)
        for (size_t t = 0; t < together * parts; t++) {
            struct head h = head_of(p, a, first + t / parts);
            h.scratch = a->workspace; /* of a variant that works on one core */
            if (v->stores_scores) {
                h.s = a->workspace;
                h.p = h.s + p->seqlen_q * p->seqlen_k;
            }
            h = some_queries(h, t % parts * n, n);
            function(&h);
        }
    }
}

/* The function of v for op in one of its lists, or NULL. */
#define LOOK_UP(type, name, most)                                     \
    static type *name(const struct variant *v, enum op op)            \
    {                                                                 \
        for (int i = 0; i < (most) && v->name[i].function; i++)       \
            if (v->name[i].op == op) return v->name[i].function;      \
        return NULL;                                                  \
    }
LOOK_UP(function_of_row, by_row, MOST_OF_A_KIND)
LOOK_UP(function_of_head, by_head, MOST_OF_A_KIND)
LOOK_UP(variant_function, does, N_OPS)

int variant_does(const struct variant *v, enum op op)
{
    return by_row(v, op) || by_head(v, op) || does(v, op);
}

size_t variant_scratch(const struct variant *v, const struct problem *p)
{
    if (v->stores_scores && by_head(v, p->op))
        return size_times(size_times(p->seqlen_q, p->seqlen_k), 2 * sizeof(float));
    return v->workspace ? v->workspace(p) : 0;
}

void variant_call(const struct variant *v, const struct problem *p, const struct arrays *a)
{
    function_of_row *row = by_row(v, p->op);
    function_of_head *head = by_head(v, p->op);
    if (row) each_row(v, p, a, row);
    else if (head) each_head(v, p, a, head);
    else does(v, p->op)(p, a);
}
