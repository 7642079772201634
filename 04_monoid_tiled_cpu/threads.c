/* threads.c: the tiles of tile.c on several threads.
 *
 * Tiles of queries share nothing, so any thread may take any of them.  Few queries make
 * few tiles: then threads share the keys too.  They are cut into PARTS parts, whatever
 * the number of threads; any thread may fold any part, and then the parts of each query
 * are merged in order. The same additions happen in the same order with 1, 2 or 7
 * threads, so the answer is the same bit for bit.  A shared sum to which threads add as
 * they finish would differ from run to run. */
#include "problem/heads.h"
#include "score.h"
#include "tile.h"

#define PARTS 16        /* of a row; fixed, so that threads do not change an answer */
#define SMALL (1 << 14) /* so few scores are not worth waking threads for */

/* One head.   h->scratch  PARTS partial results for each query, then their o */
static void attention_of_head(const struct head *h)
{
    size_t n = h->seqlen_q, d = h->head_dim_v, tiles = (n + Br - 1) / Br;
    struct aggregate *parts = (void *)h->scratch; /* (PARTS, n) */
    float *o = (float *)(parts + PARTS * n);
    for (size_t x = 0; x < PARTS * n; x++) parts[x] = (struct aggregate){.o = o + x * d, .d = d};
#pragma omp parallel for collapse(2) schedule(dynamic) if (n * h->seqlen_k > SMALL)
    for (size_t tile = 0; tile < tiles; tile++)
        for (size_t t = 0; t < PARTS; t++) {
            size_t i = tile * Br, first = h->seqlen_k * t / PARTS;
            size_t end = h->seqlen_k * (t + 1) / PARTS;
            fold_tiles(h, i, smaller(Br, n - i), first, end, &parts[t * n + i]);
        }
#pragma omp parallel for if (n * h->seqlen_k > SMALL)
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 1; t < PARTS; t++) aggregate_merge(&parts[i], &parts[t * n + i]);
        aggregate_finish(&parts[i], o_row(h, i), &h->lse[i]);
    }
}

void attention_on_threads(const struct problem *p, const struct arrays *a)
{
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
        h.scratch = a->workspace;
        attention_of_head(&h);
    }
}

size_t threads_workspace(const struct problem *p)
{
    return PARTS * p->seqlen_q * (sizeof(struct aggregate) + p->head_dim_v * sizeof(float));
}

/* Softmax or log-softmax of each row: its parts folded, merged, and written. */
void rows_on_threads(const struct problem *p, const struct arrays *a)
{
    size_t n = p->cols;
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * n;
        float *y = (float *)a->y + i * n;
        struct se parts[PARTS], all = se_unit();
#pragma omp parallel for if (n > SMALL)
        for (size_t t = 0; t < PARTS; t++)
            parts[t] = fold_scores(x + n * t / PARTS, n * (t + 1) / PARTS - n * t / PARTS);
        for (size_t t = 0; t < PARTS; t++) all = se_merge(all, parts[t]);
#pragma omp parallel for if (n > SMALL)
        for (size_t t = 0; t < PARTS; t++) {
            size_t first = n * t / PARTS, length = n * (t + 1) / PARTS - first;
            if (p->op == OP_LOGSOFTMAX) write_logsoftmax(x + first, y + first, length, all);
            else write_softmax(x + first, y + first, length, all);
        }
    }
}
