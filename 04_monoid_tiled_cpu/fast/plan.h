/* plan.h: the problem as tiles and parts, and where the rows and keys of a tile lie.
 *
 * The file that includes it says what it computes with:
 *     Br, PANEL             query rows of a tile; of a panel, which shares one product
 *     Bc, KEY_STEP          keys of a block; what the number of keys of a product is a multiple of
 *     COLS_STEP             the same for columns of v
 *     ENOUGH_TASKS          with fewer tiles than this the keys are cut into parts */
#pragma once

#include <omp.h>

#include "cost.h"
#include "monoid.h"
#include "problem/layout.h"
#include "harness.h"
#include "vector/vexp.h"

#define LEAST_PART 512    /* keys of a part, at least */
#define AHEAD 12          /* rows that are fetched before they are used */
#define LOG2E 0x1.715476p+0f

_Static_assert(Br % PANEL == 0, "a tile is whole panels");
_Static_assert(LEAST_PART % KEY_STEP == 0, "a part is whole steps of keys");

struct product;

/* The problem as tiles and parts.  A group is the query heads of a sequence that share keys. */
struct plan {
    size_t group;      /* query heads of a group */
    size_t tiles;      /* of all groups; of packed sequences at least as many as there are */
    size_t parts;      /* of the keys of a tile */
    size_t part_keys;
    size_t cols;       /* head_dim_v rounded up to COLS_STEP */
    void (*product)(const struct product *); /* of float: which loops multiply (products.h) */
};

/* The aggregate of Br queries: m and l (Br), o (Br, cols), un-normalised.  m is the point to
 * which l and o are relative, not always the maximum (fold.h). */
struct state { float *m, *l, *o; };

/* One tile of queries of one group. */
struct tile {
    const struct problem *p;
    const struct arrays *a;
    const struct plan *plan;
    struct sequence s;
    size_t kv;                /* the head of k and v */
    size_t first, n_rows;     /* rows of the group's list: first .. first + n_rows - 1 */
    struct mask mask;
    struct key_range some_see; /* the keys that at least one row sees */
};

/* Tiles of a sequence of so many queries, for one head of k and v. */
static size_t tiles_of(size_t group, size_t seqlen_q)
{
    return (group * seqlen_q + Br - 1) / Br;
}

static struct plan plan_of(const struct problem *p)
{
    struct plan plan = {.group = p->heads_kv ? p->heads_q / p->heads_kv : 0, .parts = 1};
    plan.cols = round_up(p->head_dim_v, COLS_STEP);
    plan.tiles = p->batch * tiles_of(plan.group, p->seqlen_q);
    if (p->packed) plan.tiles = plan.group * p->total_q / Br + p->batch;
    plan.tiles *= p->heads_kv;
    if (p->invariant) { /* each span a part, or all of them one: these have the same bits */
        size_t spans = (p->seqlen_k + CHAIN_KEYS - 1) / CHAIN_KEYS;
        int apart = plan.tiles < ENOUGH_TASKS && plan.tiles * spans < 8 * ENOUGH_TASKS;
        plan.parts = apart && spans ? spans : 1;
        plan.part_keys = apart ? CHAIN_KEYS : p->seqlen_k;
        return plan;
    }
    if (plan.tiles && plan.tiles < ENOUGH_TASKS) {
        plan.parts = (ENOUGH_TASKS + plan.tiles - 1) / plan.tiles;
        size_t most = (p->seqlen_k + LEAST_PART - 1) / LEAST_PART;
        if (plan.parts > most) plan.parts = most ? most : 1;
    }
    plan.part_keys = round_up((p->seqlen_k + plan.parts - 1) / plan.parts, larger(8, KEY_STEP));
    return plan;
}

static size_t state_floats(const struct plan *plan) { return Br * (plan->cols + 2); }

static struct state state_at(const struct plan *plan, float *memory, size_t index)
{
    float *m = memory + index * state_floats(plan);
    return (struct state){.m = m, .l = m + Br, .o = m + 2 * Br};
}

/* The sequence, head and rows of tile number `index`, counted sequence by sequence; n_rows is
 * 0 behind the last tile of a packed batch. */
static struct tile tile_rows(const struct problem *p, const struct arrays *a,
                             const struct plan *plan, size_t index)
{
    struct tile t = {.p = p, .a = a, .plan = plan};
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

/* Row r of a tile: query i of head h of its sequence. */
struct query { size_t h, i; };

static struct query query_of(const struct tile *t, size_t r)
{
    size_t row = t->first + r;
    return (struct query){t->kv * t->plan->group + row / t->s.seqlen_q, row % t->s.seqlen_q};
}

/* That of the row behind it. */
static struct query next_query(const struct tile *t, struct query q)
{
    return ++q.i == t->s.seqlen_q ? (struct query){q.h + 1, 0} : q;
}

static struct key_range row_sees(const struct tile *t, size_t r)
{
    return mask_keys(t->mask, (t->first + r) % t->s.seqlen_q);
}

/* The keys that all of some rows of a tile see, and those that at least one of them sees. */
struct sight { struct key_range all, some; };

/* That of rows first .. first + n_rows - 1, which are queries i .. end - 1 or, of several heads,
 * from some query to the last and on from query 0. */
static struct sight sight_of(const struct tile *t, size_t first, size_t n_rows)
{
    if (!n_rows) return (struct sight){{0, 0}, {0, 0}};
    size_t i = (t->first + first) % t->s.seqlen_q, end = i + n_rows;
    if (end > t->s.seqlen_q) i = 0, end = t->s.seqlen_q;
    return (struct sight){all_rows_see(t->mask, i, end), some_row_sees(t->mask, i, end)};
}

static struct tile tile_at(const struct problem *p, const struct arrays *a,
                           const struct plan *plan, size_t index)
{
    struct tile t = tile_rows(p, a, plan, index);
    t.mask = mask_of_lengths(p, t.s.seqlen_q, t.s.seqlen_k);
    t.some_see = sight_of(&t, 0, t.n_rows).some;
    return t;
}

/* Asks for so many bytes, as a rule of the row AHEAD rows on.  A core fetches ahead by itself only
 * within a page of 4 KiB, and a page holds few keys. */
INLINE void fetch(const void *from, size_t bytes)
{
    enum { LINE = 64 };
    for (size_t t = 0; t < bytes; t += LINE) __builtin_prefetch((const char *)((uintptr_t)from + t));
}

/* Number `at` of an array of the type. */
static void *number_at(enum dtype type, const void *array, size_t at)
{
    return (char *)(uintptr_t)array + at * dtype_size(type);
}

static const void *q_of(const struct tile *t, struct query q)
{
    return number_at(t->p->dtype, t->a->q, query_at(t->p, &t->s, strides_of_q(t->p), q.h, q.i));
}

/* n keys from number j on that lie together: rows k_stride and v_stride apart.  The scales are those
 * of 8 bits, else 1. */
struct keys { const void *k, *v; size_t k_stride, v_stride, j, n; float k_scale, v_scale; };

/* Those from key j on, at most `most`; they end where the page does. */
static struct keys keys_from(const struct tile *t, size_t j, size_t most)
{
    const struct problem *p = t->p;
    const struct arrays *a = t->a;
    struct strides of_k = strides_of_k(p), of_v = strides_of_v(p);
    size_t page = p->page_size ? p->page_size - j % p->page_size : most;
    size_t head = t->s.batch * p->heads_kv + t->kv;
    return (struct keys){
        .k = number_at(k_dtype(p), a->k, key_at(p, a, &t->s, of_k, t->kv, j)),
        .v = number_at(v_dtype(p), a->v, key_at(p, a, &t->s, of_v, t->kv, j)),
        .k_stride = of_k.row, .v_stride = of_v.row, .j = j, .n = smaller(most, page),
        .k_scale = p->cache && a->k_scale ? a->k_scale[head] : 1,
        .v_scale = p->cache && a->v_scale ? a->v_scale[head] : 1};
}

/* The bias of row r for the keys from j on, or NULL. */
static const float *bias_row(const struct tile *t, size_t r, size_t j)
{
    struct query q = query_of(t, r);
    return t->p->has_bias ? t->a->bias + bias_at(t->p, t->s.batch, q.h, q.i) + j : NULL;
}
