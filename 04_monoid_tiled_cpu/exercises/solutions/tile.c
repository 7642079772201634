/* tile.c: exercise of stage 4, 30 points: attention in tiles, the whole loop.
 *
 * A tile is Br queries times Bc keys.  The keys of a tile are fetched once for all its queries: that
 * is why attention in tiles moves 1/Br of the bytes.
 * Task: fill tiles_of_head().  For each block of Br queries go through the keys in tiles of Bc;
 * fetch(h, j_0, n, &tile) brings n <= Bc keys from j_0 on into a tile.  Take every key into the
 * state of each query (m, l, o) that sees it; tile_score() is given.  At the end divide, and write
 * o_row(h, i) and h->lse[i].
 * May be assumed: head_dim, head_dim_v <= MAX_COLS.  seqlen_q and seqlen_k may be any number, also
 * no multiple of Br and Bc.  Query i sees the first visible(h, i) keys; one whose score is -INFINITY
 * takes no part, whatever its row of v holds.  A query that sees none gives o = 0, lse = -INFINITY.
 * h->k and h->v are not there: fetch() alone reads them.  If it is called more often than
 * ceil(seqlen_q / Br) ceil(seqlen_k / Bc) times, the first result becomes NaN.
 *
 * Half of the points: cases ascending, shift_200, low, nan_v, mask_row.
 * Time: 3 hours.
 * Hint: four loops: blocks of queries, tiles of keys, the queries of the block, the keys of the tile.
 * Hint: the state lives as long as the block of queries: arrays m[Br], l[Br] and o[Br][MAX_COLS].
 * Hint: the last block has seqlen_q - i_0 queries, the last tile seqlen_k - j_0 keys.
 * Hint: the innermost step is the one of stage 3, with a row of the tile in place of a row of v.
 * Right or wrong:  make exercise 4 EX=tile */
#include "course/exercise.h"

enum {
    Br = 8,  /* queries of a block; one of 6, 8, 12 */
    Bc = 16, /* keys of a tile; one of 8, 16, 24 */
    MAX_COLS = 256
};

struct tile { float k[Bc][MAX_COLS], v[Bc][MAX_COLS]; };

static size_t n_fetched;
static const float *keys, *values; /* fetch() knows where they are */

/* Keys j_0 .. j_0 + n - 1 into a tile; n <= Bc. */
static void fetch(const struct head *h, size_t j_0, size_t n, struct tile *t)
{
    n_fetched++;
    for (size_t j = 0; j < n && j < Bc; j++) {
        for (size_t d = 0; d < h->head_dim; d++) t->k[j][d] = keys[(j_0 + j) * h->head_dim + d];
        for (size_t d = 0; d < h->head_dim_v; d++) t->v[j][d] = values[(j_0 + j) * h->head_dim_v + d];
    }
}

/* The score of query i and key j_0 + j, which is row j of the tile. */
static float tile_score(const struct head *h, size_t i, const struct tile *t, size_t j_0, size_t j)
{
    float bias = bias_of(h, i, j_0 + j), dot = 0;
    if (bias == -INFINITY) return -INFINITY;
    for (size_t d = 0; d < h->head_dim; d++) dot += q_row(h, i)[d] * t->k[j][d];
    return h->scale * dot + bias;
}

/* >>> your part: functions, #include and #define may be added here */
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Attention of one head, block by block. */
static void tiles_of_head(const struct head *h)
{
    /* solution begin */
    static struct tile t;
    static float m[Br], l[Br], o[Br][MAX_COLS];
    for (size_t i_0 = 0; i_0 < h->seqlen_q; i_0 += Br) {
        size_t rows = smaller(Br, h->seqlen_q - i_0);
        for (size_t r = 0; r < rows; r++) {
            m[r] = -INFINITY, l[r] = 0;
            for (size_t d = 0; d < h->head_dim_v; d++) o[r][d] = 0;
        }
        for (size_t j_0 = 0; j_0 < h->seqlen_k; j_0 += Bc) {
            size_t n = smaller(Bc, h->seqlen_k - j_0);
            fetch(h, j_0, n, &t);
            for (size_t r = 0; r < rows; r++)
                for (size_t j = 0; j < n && j_0 + j < visible(h, i_0 + r); j++) {
                    float s = tile_score(h, i_0 + r, &t, j_0, j);
                    if (s == -INFINITY) continue;
                    float m_new = s > m[r] ? s : m[r], correction = expf(m[r] - m_new);
                    float weight = expf(s - m_new);
                    l[r] = l[r] * correction + weight;
                    for (size_t d = 0; d < h->head_dim_v; d++)
                        o[r][d] = o[r][d] * correction + weight * t.v[j][d];
                    m[r] = m_new;
                }
        }
        for (size_t r = 0; r < rows; r++) {
            for (size_t d = 0; d < h->head_dim_v; d++)
                o_row(h, i_0 + r)[d] = l[r] == 0 ? 0 : o[r][d] / l[r];
            h->lse[i_0 + r] = m[r] + logf(l[r]);
        }
    }
    /* skeleton
    // Your code, with calls of fetch() and tile_score().
    solution end */
}
/* <<< end of your part */

static void attention_head(const struct head *h)
{
    struct head rest = *h;
    n_fetched = 0, keys = h->k, values = h->v;
    rest.k = rest.v = NULL;
    tiles_of_head(&rest);
    if (n_fetched > (h->seqlen_q + Br - 1) / Br * ((h->seqlen_k + Bc - 1) / Bc) && h->seqlen_q)
        h->o[0] = NAN; /* keys were fetched too often */
}

PROGRAM(4, tile, "queries and keys in tiles",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}})
