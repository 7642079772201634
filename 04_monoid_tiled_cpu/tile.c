/* tile.c: a tile of the score matrix, Br queries by Bc keys, is folded at a time.
 *
 * stage.c goes through all keys once for each query.  A tile is the same fold for Br
 * queries that share each key and value: they are read from memory once and used Br
 * times.  And a tile makes one correction where its keys, one after the other, would make
 * Bc:
 *
 *     s_ij = score                                   scores of the tile
 *     m_new = max(m_i, max_j s_ij),  f = e^(m_i - m_new)
 *     p_ij = e^(s_ij - m_new)                        their weights
 *     l_i = f l_i + sum_j p_ij,  o_i = f o_i + sum_j p_ij v_j
 *
 * This is FlashAttention (Dao et al. 2022): nothing larger than a tile is ever stored.
 * Every kernel of fast/ and of stage 5 is this loop, with its products, its exponentials
 * and its copies done by other instructions. */
#include "tile.h"

#include "score.h"

/* Folds one tile into the partial results x (rows): the queries i .. i + rows - 1, rows
 * <= Br, and the keys first .. end - 1, at most Bc.  A key that a query does not see
 * scores -INFINITY. */
static void fold_tile(const struct head *h, size_t i, size_t rows, size_t first, size_t end,
                      struct aggregate *x)
{
    float s[Br][Bc];
    for (size_t r = 0; r < rows; r++)
        for (size_t j = first; j < end; j++) s[r][j - first] = score(h, i + r, j);
    for (size_t r = 0; r < rows; r++) {
        float m_new = x[r].m;
        for (size_t j = first; j < end; j++)
            if (s[r][j - first] > m_new || isnan(s[r][j - first])) m_new = s[r][j - first];
        if (m_new == -INFINITY) continue; /* no key that this query sees, so far */
        float f = se_factor(x[r].m, m_new), *o = x[r].o;
        x[r].m = m_new;
        x[r].l *= f;
        for (size_t d = 0; d < h->head_dim_v; d++) o[d] *= f;
        for (size_t j = first; j < end; j++) {
            float p = expf(s[r][j - first] - m_new);
            if (s[r][j - first] == -INFINITY) continue; /* v_j may hold NaN */
            x[r].l += p;
            for (size_t d = 0; d < h->head_dim_v; d++) o[d] += p * v_row(h, j)[d];
        }
    }
}

/* x (rows) = the partial results of the queries i .. i + rows - 1 for the keys first ..
 * end - 1, in tiles.  No query is asked about keys that none of them sees. */
void fold_tiles(const struct head *h, size_t i, size_t rows, size_t first, size_t end,
                struct aggregate *x)
{
    end = smaller(end, visible(h, i + rows - 1)); /* the last query sees most */
    for (size_t r = 0; r < rows; r++) aggregate_unit(&x[r]);
    for (size_t j = first; j < end; j += Bc)
        fold_tile(h, i, rows, j, smaller(j + Bc, end), x);
}

/* Attention of one head, in tiles. */
void attention_in_tiles(const struct head *h)
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
