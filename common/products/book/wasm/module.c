/* module.c: memory that JavaScript fills and reads, the exponential, and where a stage's
 * trace goes. */
#include "figures.h"

#include "vector/half.h"

/* One line of a stage's trace; loop: from 1; sums: whether l has begun. */
static struct step { float index, x, m, l, correction, loop, sums; } steps[MOST_STEPS];
static int n_steps, loop;

/* Inputs and outputs of the calls, by name. */
float scores[MOST_SCORES], weights[MOST_SCORES];
float arena[1 << 15];

struct step *EXPORT(steps_address)(void) { return steps; }
int EXPORT(step_floats)(void) { return (int)(sizeof(struct step) / sizeof(float)); }
float *EXPORT(scores_address)(void) { return scores; }
float *EXPORT(weights_address)(void) { return weights; }
float *EXPORT(arena_address)(void) { return arena; }

/* e^x rounded once, from the browser's in double: as a C library's, denormal results included. */
float expf(float x)
{
    return (float)exp(x);
}

void *memset(void *to, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++) ((unsigned char *)to)[i] = (unsigned char)byte;
    return to;
}

float EXPORT(to_type)(float x, int type)
{
    if (type == F16) return half_to_float(float_to_half(x));
    if (type == BF16) return bfloat_to_float(float_to_bfloat(x));
    return x;
}

void (*watcher)(const char *name, size_t j, double number, const float *row, size_t n);

static size_t n_scores, next; /* the first step of this loop that is not there yet */
static int ended;             /* the stage has said that the loop is over */

/* Step j of this loop, with the state before it. */
static struct step *add_step(size_t j, float m, float l)
{
    if (n_steps == MOST_STEPS) n_steps--;
    steps[n_steps] = (struct step){.index = (float)j, .x = scores[j], .m = m, .l = l,
                                   .correction = 1, .loop = (float)loop,
                                   .sums = n_steps && steps[n_steps - 1].sums};
    next = j + 1;
    return &steps[n_steps++];
}

/* Steps that nobody watched change nothing: masked scores. */
static void pass_over(size_t end)
{
    while (next < end)
        add_step(next, n_steps ? steps[n_steps - 1].m : -INFINITY,
                 n_steps ? steps[n_steps - 1].l : 0);
}

/* What a stage watches, as steps. */
static void collect(const char *name, size_t j, double number, const float *row, size_t n)
{
    struct step *s = n_steps ? &steps[n_steps - 1] : NULL;
    (void)row, (void)n;
    if (name[0] == 'y') return;
    if (name[0] == 'l' && name[1] == 'o') { /* "loop" */
        pass_over(n_scores);
        ended = 1;
        return;
    }
    if (ended) next = 0, ended = 0, loop++;
    if (j + 1 != next) {
        pass_over(j);
        s = add_step(j, n_steps ? steps[n_steps - 1].m : -INFINITY, n_steps ? s->l : 0);
    }
    if (name[0] == 'm') s->m = (float)number;
    if (name[0] == 'l') s->l = (float)number, s->sums = 1;
    if (name[0] == 'c') s->correction = (float)number;
}

int traced_row(function_of_row *softmax_row, int n)
{
    n_steps = 0, loop = 1, next = 0, ended = 0, n_scores = (size_t)n;
    watcher = collect;
    softmax_row(scores, weights, (size_t)n);
    watcher = NULL;
    pass_over((size_t)n);
    return n_steps;
}

/* What the lessons do, with every stored number rounded to a type of 16 bits: the scores, each
 * term, the sum.  Stage 1 subtracts no maximum, stage 2 finds it first, stage 3 on the way. */
static void rounded_row(int stage, int n, int type)
{
    float m = stage == 1 ? 0 : -INFINITY, l = 0;
    n_steps = 0, loop = 1, n_scores = (size_t)n;
    for (int j = 0; stage == 2 && j < n; j++) {
        m = scores[j] > m ? scores[j] : m;
        add_step((size_t)j, m, 0);
    }
    if (stage == 2) loop = 2;
    if (stage == 2 && m == -INFINITY) m = 0;
    for (int j = 0; j < n; j++) {
        float m_new = stage == 3 && scores[j] > m ? scores[j] : m;
        float correction = m_new == m ? 1 : expf(m - m_new);
        float x = scores[j] == -INFINITY ? scores[j] : scores[j] - m_new;
        if (stage != 3) l = to_type(l + to_type(expf(to_type(x, type)), type), type);
        else if (scores[j] != -INFINITY) l = to_type(l * correction + expf(x), type);
        m = m_new;
        struct step *s = add_step((size_t)j, m, l);
        s->correction = correction, s->sums = 1;
    }
    for (int j = 0; j < n; j++) {
        float term = stage == 3 ? expf(scores[j] - m)
                                : to_type(expf(to_type(scores[j] - m, type)), type);
        weights[j] = stage > 1 && l == 0 ? 0 : to_type(term / l, type);
    }
}

/* Steps and weights of the row of n scores as a stage computes them; returns how many steps. */
int EXPORT(stage_row)(int stage, int n, int type)
{
    if (type == F32) return stage == 1 ? row_1(n) : stage == 2 ? row_2(n) : row_3(n);
    rounded_row(stage, n, type);
    return n_steps;
}
