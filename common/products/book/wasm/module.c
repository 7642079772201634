/* module.c: memory that JavaScript fills and reads, the exponential, and where a stage's
 * trace goes. */
#include "figures.h"

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

/* Steps and weights of the row of n scores as a stage computes them; returns how many steps. */
int EXPORT(stage_row)(int stage, int n)
{
    return stage == 1 ? row_1(n) : stage == 2 ? row_2(n) : row_3(n);
}
