/* bf16_task.h: what one thread of bf16_fold.h works on, and how its inputs are packed for a
 * product: v^T in steps of keys, strips of q as columns, rows of k padded to whole steps. */
#ifndef BF16_TASK_H
#define BF16_TASK_H

#include "bf16.h"
#include "bf16_transpose.h"

/* One thread's memory.  A strip's o is (cols, STRIP): transposed, a query a lane. */
struct work {
    float *c, *l;      /* (BF16_ROWS): reference point and denominator */
    float *o;          /* (4, cols, STRIP) */
    uint32_t *q;       /* (4, d / 2, STRIP) pairs */
    float *s;          /* (BF16_KEYS, STRIP) scores; the pairs of p replace them */
    uint16_t *k;       /* (BF16_KEYS, d): a block whose rows are not whole steps */
};

/* 128 queries of one group and what they see. */
struct task {
    const uint16_t *q, *k, *v;
    const uint32_t *vt;       /* v^T of the group */
    size_t group, first, n_rows;
    struct key_range seen[BF16_ROWS];
};

static struct work work_at(const struct bf16_plan *plan, char *memory)
{
    struct work w = {.c = (float *)(void *)memory};
    w.l = w.c + BF16_ROWS;
    w.o = w.l + BF16_ROWS;
    w.q = (uint32_t *)(void *)(w.o + BF16_ROWS * plan->cols);
    w.s = (float *)(void *)(w.q + BF16_ROWS * plan->d / 2);
    w.k = (uint16_t *)(void *)(w.s + BF16_KEYS * STRIP);
    return w;
}

static void task_at(const struct problem *p, const struct arrays *a,
                    const struct bf16_plan *plan, const uint32_t *vt, size_t index,
                    struct task *t)
{
    t->group = index / plan->tasks;
    t->first = index % plan->tasks * BF16_ROWS;
    t->n_rows = plan->rows - t->first < BF16_ROWS ? plan->rows - t->first : BF16_ROWS;
    t->q = (const uint16_t *)a->q + (t->group * plan->rows + t->first) * p->head_dim;
    t->k = (const uint16_t *)a->k + t->group * p->seqlen_k * p->head_dim;
    t->v = (const uint16_t *)a->v + t->group * p->seqlen_k * p->head_dim_v;
    t->vt = vt + t->group * plan->keys * plan->cols / 2;
    for (size_t r = 0; r < BF16_ROWS; r++)
        t->seen[r] = r < t->n_rows ? visible_keys(p, (t->first + r) % p->seqlen_q)
                                   : (struct key_range){0, 0};
}

/* The keys that some row of a strip sees, and those that all of them see. */
static void strip_ranges(const struct task *t, size_t strip, struct key_range *some,
                         struct key_range *all)
{
    *some = (struct key_range){SIZE_MAX, 0};
    *all = (struct key_range){0, SIZE_MAX};
    for (size_t r = strip * STRIP; r < (strip + 1) * STRIP && r < t->n_rows; r++) {
        struct key_range seen = t->seen[r];
        if (seen.first > all->first) all->first = seen.first;
        if (seen.end < all->end) all->end = seen.end;
        if (seen.first == seen.end) continue;
        if (seen.first < some->first) some->first = seen.first;
        if (seen.end > some->end) some->end = seen.end;
    }
}

/* v^T of 32 keys from `first` on: (cols, 32), 0 beyond head_dim_v and the last key. */
static void pack_values(const struct problem *p, const struct bf16_plan *plan,
                        const uint16_t *v, size_t first, uint16_t *vt)
{
    size_t dv = p->head_dim_v, n = p->seqlen_k - first, whole = n >= BF16_STEP ? dv / 16 * 16 : 0;
    if (n > BF16_STEP) n = BF16_STEP;
    for (size_t c = 0; c < whole; c += 16)
        transpose_pairs_of_rows(v + first * dv + c, dv, (uint32_t *)(void *)(vt + c * BF16_STEP));
    for (size_t c = whole; c < plan->cols; c++)
        for (size_t j = 0; j < BF16_STEP; j++)
            vt[c * BF16_STEP + j] = c < dv && j < n ? v[(first + j) * dv + c] : 0;
}

/* The strips of q (4, d / 2, STRIP): rows as columns, in pairs along d. */
static void pack_queries(const struct problem *p, const struct bf16_plan *plan,
                         const struct task *t, uint32_t *qt)
{
    size_t d = p->head_dim;
    for (size_t r = 0; r < BF16_ROWS; r += 16) {
        uint32_t *strip = qt + r / STRIP * STRIP * plan->d / 2 + r % STRIP;
        size_t whole = r + 16 <= t->n_rows ? d / BF16_STEP * BF16_STEP : 0;
        for (size_t i = 0; i < whole; i += BF16_STEP)
            transpose_pairs(t->q + r * d + i, d, strip + i / 2 * STRIP, STRIP);
        for (size_t i = whole; i < plan->d; i += 2)
            for (size_t u = 0; u < 16; u++) {
                const uint16_t *q_r = t->q + (r + u) * d;
                uint32_t low = r + u < t->n_rows && i < d ? q_r[i] : 0;
                uint32_t high = r + u < t->n_rows && i + 1 < d ? q_r[i + 1] : 0;
                strip[i / 2 * STRIP + u] = low | high << 16;
            }
    }
}

/* Keys first .. first + n - 1 as rows of whole steps, n rounded up to 16: as they lie in
 * memory where that is so, else copied to k with zeros around them. */
static const uint32_t *block_of_keys(const struct problem *p, const struct bf16_plan *plan,
                                     const struct task *t, size_t first, size_t n, uint16_t *k)
{
    size_t d = p->head_dim, rows = bf16_round_up(n, 16);
    const uint16_t *from = t->k + first * d;
    if (d == plan->d && first + rows <= p->seqlen_k) return (const uint32_t *)(const void *)from;
    memset(k, 0, rows * plan->d * sizeof *k);
    for (size_t j = 0; j < n; j++) memcpy(k + j * plan->d, from + j * d, d * sizeof *k);
    return (const uint32_t *)(const void *)k;
}

#endif
