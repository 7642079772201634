/* 3_tile.c: a tile of 16 queries and 32 keys: the queries share each key that is read.
 *
 * Two loops change places: the one over queries now runs inside the one over chunks of keys.  So
 * K and V come from memory once for 16 queries, and between two queries 32 keys stay in the
 * nearest cache.  This is the loop of FlashAttention-2 (Dao 2023, section 3.1), and rung 1 of stage
 * 5 is tile.h on a GPU: make diff 5 */
#include "cost.h"
#include "tile.h"

/* Attention of one head: Br queries at a time. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i += Br) {
        struct aggregate x[Br];
        size_t rows = smaller(Br, h->seqlen_q - i);
        for (size_t r = 0; r < rows; r++)
            x[r] = (struct aggregate){.o = o_row(h, i + r), .d = h->head_dim_v};
        fold_tiles(h, i, rows, 0, h->seqlen_k, x);
        for (size_t r = 0; r < rows; r++) aggregate_finish(&x[r], x[r].o, &h->lse[i + r]);
    }
}

const struct variant tile = {
    .name = "tile", .idea = "16 queries share 32 keys",
    RUNG,
    .by_head = {{OP_ATTENTION, attention_head}},
};
