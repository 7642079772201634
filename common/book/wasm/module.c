/* module.c: memory that JavaScript fills and reads, the exponential, and where a stage's
 * trace goes. */
#include "figures.h"

#include "problem/half.h"
#include "vector/vexp.h"

struct step steps[MOST_STEPS];
int n_steps, loop;

/* Inputs and outputs of the calls, by name. */
float scores[MOST_SCORES], weights[MOST_SCORES];
float arena[1 << 15];

struct step *EXPORT(steps_address)(void) { return steps; }
int EXPORT(step_floats)(void) { return (int)(sizeof(struct step) / sizeof(float)); }
float *EXPORT(scores_address)(void) { return scores; }
float *EXPORT(weights_address)(void) { return weights; }
float *EXPORT(arena_address)(void) { return arena; }

/* e^x for every x, by the tree's own polynomial. */
float expf(float x)
{
    return isnan(x) ? x : vexp_up(vset(x))[0];
}

#ifdef __wasm__
void *memset(void *to, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++) ((unsigned char *)to)[i] = (unsigned char)byte;
    return to;
}
#endif

float EXPORT(to_type)(float x, int type)
{
    if (type == F16) return half_to_float(float_to_half(x));
    if (type == BF16) return bfloat_to_float(float_to_bfloat(x));
    return x;
}

void add_state(size_t index, float x, float m, float l, float correction)
{
    if (n_steps == MOST_STEPS) return;
    struct step *s = &steps[n_steps++];
    *s = (struct step){.index = (float)index, .x = x, .m = m, .l = l,
                       .correction = correction, .loop = (float)loop};
}

void (*watcher)(const char *name, size_t j, double number, const float *row, size_t n);

static size_t n_scores, next; /* the first step of this loop that is not there yet */

/* Step j of this loop, with the state before it. */
static struct step *add_step(size_t j, float m, float l)
{
    if (n_steps == MOST_STEPS) n_steps--;
    steps[n_steps] = (struct step){.index = (float)j, .x = scores[j], .m = m, .l = l,
                                   .correction = 1, .loop = (float)loop};
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

/* What a stage watches, as steps: a new loop begins where j falls. */
static void collect(const char *name, size_t j, double number, const float *row, size_t n)
{
    struct step *s = n_steps ? &steps[n_steps - 1] : NULL;
    if (name[0] == 'y') return;
    if (j + 1 < next) {
        pass_over(n_scores);
        next = 0;
        loop++;
    }
    if (j + 1 != next) {
        pass_over(j);
        s = add_step(j, n_steps ? steps[n_steps - 1].m : NAN, NAN);
    }
    if (name[0] == 'm') s->m = (float)number;
    if (name[0] == 'l') s->l = (float)number;
    if (name[0] == 'c') s->correction = (float)number;
    if (name[0] != 'o') return;
    s->n_o = (float)n;
    for (size_t c = 0; c < n && c < MOST_DIMS; c++) s->o[c] = row[c];
}

/* The steps and the weights of softmax_row on the row of n scores. */
int traced_row(function_of_row *softmax_row, int n)
{
    n_steps = 0, loop = 1, next = 0, n_scores = (size_t)n;
    watcher = collect;
    softmax_row(scores, weights, (size_t)n);
    watcher = NULL;
    pass_over((size_t)n);
    return n_steps;
}
