/* bf16.h: attention in bf16 on the CPU: what the variants dot_bf16 and amx have in common.
 *
 *     s^T [keys, 32] = k [keys, d] . q^T [d, 32]          o^T [dv, 32] += v^T [dv, keys] . p^T
 *
 * A task is 128 queries, four strips of 32; a block is 256 keys.  The fold is that of tiled.c:
 * scores, weights, values.  Two things differ.
 *
 * Pairs.  A 16-bit multiply-add takes two neighbouring products at once, so what is summed
 * over lies in pairs of bf16 in 32 bits.  k has its pairs in memory.  q is packed once for a
 * task, v^T once for the whole call, and the weights become pairs as they are rounded.  Then
 * both products have one form, block_product() below, and a variant is that function alone.
 *
 * The reference point.  Weights are 2^(s f - c), f = scale log2 e.  Any c gives the same
 * quotient o / l, so c need not be the maximum: it follows only when a score exceeds it by
 * 2^8.  Almost no block then rescales o (stage 5, rung 6, does the same).
 *
 * The state c is kept in base 2: lse = c ln 2 + ln l.  Sums are float32, weights are rounded
 * to bf16 for the second product and summed unrounded, as on a GPU. */
#ifndef BF16_H
#define BF16_H

#include <stddef.h>
#include <stdint.h>

#include "harness.h"

#define STRIP 32                     /* queries of a strip: two tiles, or two vectors */
#define BF16_ROWS 128                /* queries of a task: four strips share a block in cache */
#define BF16_KEYS 256                /* keys of a block */
#define BF16_STEP 32                      /* what one step of a product sums over: 16 pairs */

/* c (rows, STRIP) = or += sum over the steps t of a_t (rows, 16 pairs) . b_t (16 pairs, STRIP)
 *   a       the element of row r, step t lies at a + t * a_step + r * a_row, 32-bit pairs
 *   b       (steps, 16, STRIP) pairs
 *   rows    a multiple of 16          add  1: c is added to */
typedef void block_product_function(size_t rows, size_t steps, const uint32_t *a, size_t a_row,
                                    size_t a_step, const uint32_t *b, float *c, int add);

/* The sizes of a problem in whole steps and tiles. */
struct bf16_plan {
    size_t groups;  /* batch * heads_kv: each has its own keys */
    size_t rows;    /* query rows of a group: the heads that share keys, one after the other */
    size_t tasks;   /* of a group */
    size_t d;       /* head_dim rounded up to whole steps */
    size_t cols;    /* head_dim_v rounded up to 16 */
    size_t keys;    /* seqlen_k rounded up to whole steps */
};

static inline size_t bf16_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static inline struct bf16_plan bf16_plan_of(const struct problem *p)
{
    struct bf16_plan plan = {.groups = p->batch * p->heads_kv};
    plan.rows = p->heads_kv ? p->heads_q / p->heads_kv * p->seqlen_q : 0;
    plan.tasks = (plan.rows + BF16_ROWS - 1) / BF16_ROWS;
    plan.d = bf16_round_up(p->head_dim, BF16_STEP);
    plan.cols = bf16_round_up(p->head_dim_v, 16);
    plan.keys = bf16_round_up(p->seqlen_k, BF16_STEP);
    return plan;
}

/* Bytes of v^T of all groups, (keys / 32, cols, 32) each. */
static inline size_t bf16_values_bytes(const struct bf16_plan *plan)
{
    return bf16_round_up(plan->groups * plan->keys * plan->cols * 2, 64);
}

/* Bytes of one thread: the state, q, scores, a padded block of k. */
static inline size_t bf16_thread_bytes(const struct bf16_plan *plan)
{
    size_t state = BF16_ROWS * (plan->cols + 2) * 4, q = BF16_ROWS * plan->d * 2;
    size_t s = BF16_KEYS * STRIP * 4, k = BF16_KEYS * plan->d * 2;
    return bf16_round_up(state + q + s + k, 64) + 256; /* not all threads in the same sets */
}

/* dot_bf16.c and amx.c: compiled for instructions that this machine may lack. */
void dot_bf16_attention(const struct problem *p, const struct arrays *a);
void amx_attention(const struct problem *p, const struct arrays *a);
extern const int dot_bf16_is_compiled, amx_is_compiled; /* 0: the compiler knew no such thing */
double amx_products(void); /* the ceiling of the matrix unit: some products, in flops */

#endif
