/* plan.h: the problem as tiles and parts, and where the rows and keys of a tile lie. */
#ifndef PLAN_H
#define PLAN_H

#include <omp.h>

#include "problem/layout.h"
#include "products.h"
#include "harness.h"
#include "vector/vexp.h"

#define Br 192            /* query rows of a tile share the keys that it reads: 4 panels ... */
#define Bc 64             /* ... of Bc keys each: 12 KiB of scores stay in the first-level cache */
#define ENOUGH_TASKS 64   /* with fewer tiles than this the keys are cut into parts ... */
#define LEAST_PART 512    /* ... of at least so many keys */
#define LOG2E 0x1.715476p+0f

/* The problem as tiles and parts.  A group is the query heads of a sequence that share keys. */
struct plan {
    size_t group;      /* query heads of a group */
    size_t tiles;      /* of all groups; of packed sequences at least as many as there are */
    size_t parts;      /* of the keys of a tile */
    size_t part_keys;
    size_t cols;       /* head_dim_v rounded up to whole vectors */
};

/* The aggregate of Br queries: m and l (Br), o (Br, cols), un-normalised.  m is the point to
 * which l and o are relative, not always the maximum (fold.h). */
struct state { float *m, *l, *o; };

/* One thread's memory: qt (head_dim, PANEL) of each panel, s (Bc, PANEL), v (Bc, cols),
 * correction (PANEL). */
struct scratch { float *qt, *s, *v, *correction; };

/* One tile of queries of one group. */
struct tile {
    struct sequence s;
    size_t kv;                /* the head of k and v */
    size_t first, n_rows;     /* rows of the group's list: first .. first + n_rows - 1 */
    struct mask mask;
    struct key_range some_see; /* the keys that at least one row sees */
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Tiles of a sequence of so many queries, for one head of k and v. */
static size_t tiles_of(size_t group, size_t seqlen_q)
{
    return (group * seqlen_q + Br - 1) / Br;
}

static struct plan plan_of(const struct problem *p)
{
    struct plan plan = {.group = p->heads_kv ? p->heads_q / p->heads_kv : 0, .parts = 1};
    plan.cols = round_up(p->head_dim_v, LANES);
    plan.tiles = p->batch * tiles_of(plan.group, p->seqlen_q);
    if (p->packed) plan.tiles = plan.group * p->total_q / Br + p->batch;
    plan.tiles *= p->heads_kv;
    if (plan.tiles && plan.tiles < ENOUGH_TASKS) {
        plan.parts = (ENOUGH_TASKS + plan.tiles - 1) / plan.tiles;
        size_t most = (p->seqlen_k + LEAST_PART - 1) / LEAST_PART;
        if (plan.parts > most) plan.parts = most ? most : 1;
    }
    plan.part_keys = round_up((p->seqlen_k + plan.parts - 1) / plan.parts, 8);
    return plan;
}

static size_t state_floats(const struct plan *plan)
{
    return Br * (plan->cols + 2);
}

static size_t scratch_floats(const struct problem *p, const struct plan *plan)
{
    return Br * p->head_dim + (Bc + 1) * PANEL + Bc * plan->cols;
}

/* Each thread has scratch and one state; each part of each tile a state. */
static size_t tiled_workspace(const struct problem *p)
{
    struct plan plan = plan_of(p);
    size_t threads = (size_t)omp_get_max_threads();
    size_t states = plan.parts > 1 ? plan.tiles * plan.parts : threads;
    return (threads * round_up(scratch_floats(p, &plan), 16) + states * state_floats(&plan))
        * sizeof(float);
}

static struct state state_at(const struct plan *plan, float *memory, size_t index)
{
    float *m = memory + index * state_floats(plan);
    return (struct state){.m = m, .l = m + Br, .o = m + 2 * Br};
}

static struct scratch scratch_at(const struct problem *p, const struct plan *plan,
                                 float *memory, size_t thread)
{
    float *qt = memory + thread * round_up(scratch_floats(p, plan), 16);
    float *s = qt + Br * p->head_dim;
    return (struct scratch){.qt = qt, .s = s, .v = s + Bc * PANEL,
                            .correction = s + Bc * PANEL + Bc * plan->cols};
}

/* The sequence, head and rows of tile number `index`, counted sequence by sequence; n_rows is
 * 0 behind the last tile of a packed batch. */
static struct tile tile_rows(const struct problem *p, const struct arrays *a,
                             const struct plan *plan, size_t index)
{
    struct tile t = {.n_rows = 0};
    size_t b = 0, tiles = tiles_of(plan->group, p->seqlen_q);
    if (!p->packed) {
        b = index / (p->heads_kv * tiles);
        index %= p->heads_kv * tiles;
        t.s = sequence_of(p, a, b);
    }
    for (; p->packed && b < p->batch; b++) {
        t.s = sequence_of(p, a, b);
        tiles = tiles_of(plan->group, t.s.seqlen_q);
        if (index < p->heads_kv * tiles) break;
        index -= p->heads_kv * tiles;
    }
    if (b == p->batch) return t;
    size_t rows = plan->group * t.s.seqlen_q;
    t.kv = index / tiles;
    t.first = index % tiles * Br;
    t.n_rows = smaller(rows - t.first, Br);
    return t;
}

/* The keys that all of some rows of a tile see, and those that at least one of them sees. */
struct sight { struct key_range all, some; };

/* That of rows first .. first + n_rows - 1. */
static struct sight sight_of(const struct tile *t, size_t first, size_t n_rows)
{
    struct sight sight = {.all = {0, t->s.seqlen_k}, .some = {t->s.seqlen_k, 0}};
    for (size_t r = first; r < first + n_rows; r++) {
        struct key_range sees = mask_keys(t->mask, (t->first + r) % t->s.seqlen_q);
        sight.all.first = larger(sight.all.first, sees.first);
        sight.all.end = smaller(sight.all.end, sees.end);
        sight.some.first = smaller(sight.some.first, sees.first);
        sight.some.end = larger(sight.some.end, sees.end);
    }
    return sight;
}

static struct tile tile_at(const struct problem *p, const struct arrays *a,
                           const struct plan *plan, size_t index)
{
    struct tile t = tile_rows(p, a, plan, index);
    t.mask = mask_of_lengths(p, t.s.seqlen_q, t.s.seqlen_k);
    t.some_see = sight_of(&t, 0, t.n_rows).some;
    return t;
}

/* Row r of a tile: query i of head h of its sequence. */
struct query { size_t h, i; };

static struct query query_of(const struct plan *plan, const struct tile *t, size_t r)
{
    size_t row = t->first + r;
    return (struct query){t->kv * plan->group + row / t->s.seqlen_q, row % t->s.seqlen_q};
}

static const float *q_row(const struct problem *p, const struct arrays *a,
                          const struct plan *plan, const struct tile *t, size_t r)
{
    struct query q = query_of(plan, t, r);
    return (const float *)a->q + query_at(p, &t->s, strides_of_q(p), q.h, q.i);
}

/* Keys that lie together: rows k_stride and v_stride apart. */
struct keys { const float *k, *v; size_t k_stride, v_stride, n; };

/* Those from key j on, at most `most`; they end where the page does. */
static struct keys keys_from(const struct problem *p, const struct arrays *a,
                             const struct tile *t, size_t j, size_t most)
{
    struct strides of_k = strides_of_k(p), of_v = strides_of_v(p);
    size_t page = p->page_size ? p->page_size - j % p->page_size : most;
    return (struct keys){
        .k = (const float *)a->k + key_at(p, a, &t->s, of_k, t->kv, j),
        .v = (const float *)a->v + key_at(p, a, &t->s, of_v, t->kv, j),
        .k_stride = of_k.row, .v_stride = of_v.row, .n = smaller(most, page)};
}

/* c tanh(s / c) of n floats, the last vector whole. */
static void cap_scores(float *s, size_t n, float c)
{
    for (size_t j = 0; j < n; j += LANES) vstore(s + j, vtanh(vload(s + j) / c) * c);
}

#endif
