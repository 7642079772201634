/* tile.c: exercise of stage 4, 30 points: attention in tiles, the whole loop.
 *
 * A tile is Br queries times Bc keys.  The keys of a tile are fetched once for all its queries: that
 * is why attention in tiles moves 1/Br of the bytes.
 * Task: fill tiles_of_head().  For each block of Br queries go through the keys in tiles of Bc;
 * fetch(j_0, n, &tile) brings n <= Bc keys from j_0 on into a tile.  Take every key into the
 * state of each query (m, l, o) that sees it.  Divide, and hand each block over by put().
 * May be assumed: head_dim, head_dim_v <= MAX_COLS; Br, Bc <= MAX_ROWS.  seqlen_q and seqlen_k may be any number, also
 * no multiple of Br and Bc.  Query i sees the first visible(h, i) keys; one whose score is -INFINITY
 * takes no part, whatever its row of v holds.  A query that sees none gives o = 0, lse = -INFINITY.
 * fetch() alone reads keys.  It gives a tile once for each block of queries; a block's rows are taken
 * when the tiles that it sees have been fetched.
 *
 * Point: cases ascending, shift_200, nan_v, mask_row.
 * Time: 3 hours.
 * Hint: four loops: blocks of queries, tiles of keys, the queries of the block, the keys of the tile.
 * Hint: the state lives as long as the block of queries: arrays m[MAX_ROWS], l and o[MAX_ROWS][MAX_COLS].
 * Hint: the last block has seqlen_q - i_0 queries, the last tile seqlen_k - j_0 keys.
 * Hint: the innermost step is the one of stage 3, with a row of the tile in place of a row of v.
 * Right or wrong:  make exercise 4 EX=tile */
#include "stage.h"
#include "course/exercise.h"

enum { MAX_ROWS = 24, MAX_COLS = 64 };
static size_t Br, Bc, head_dim, head_dim_v;

struct tile { float k[MAX_ROWS][MAX_COLS], v[MAX_ROWS][MAX_COLS]; };

/* Keys j_0 .. j_0 + n - 1 into a tile; n = Bc, or what is left. */
static void fetch(size_t j_0, size_t n, struct tile *t)
{
    float both[n * (head_dim + head_dim_v)], *next = both;
    ask('f', (long)j_0, (long)n, NULL, 0, both, n * (head_dim + head_dim_v));
    for (size_t j = 0; j < n; j++)
        for (size_t d = 0; d < head_dim; d++) t->k[j][d] = *next++;
    for (size_t j = 0; j < n; j++)
        for (size_t d = 0; d < head_dim_v; d++) t->v[j][d] = *next++;
}

/* Hands over the rows i_0 .. i_0 + rows - 1 of o and lse, a whole block of Br or what is left. */
static void put(size_t i_0, size_t rows, float (*o)[MAX_COLS], const float *lse)
{
    float all[rows * (head_dim_v + 1)], *next = all;
    for (size_t r = 0; r < rows; r++) {
        for (size_t d = 0; d < head_dim_v; d++) *next++ = o[r][d];
        *next++ = lse[r];
    }
    ask('o', (long)i_0, (long)rows, all, rows * (head_dim_v + 1), NULL, 0);
}

/* The score of query i and key j_0 + j, which is row j of the tile. */
static float tile_score(const struct head *h, size_t i, const struct tile *t, size_t j_0, size_t j)
{
    /* solution begin */
    float bias = bias_of(h, i, j_0 + j), dot = 0;
    if (bias == -INFINITY) return -INFINITY;
    for (size_t d = 0; d < h->head_dim; d++) dot += q_row(h, i)[d] * t->k[j][d];
    return h->scale * dot + bias;
    /* skeleton
    return 0;
    solution end */
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Attention of one head, block by block. */
static void tiles_of_head(const struct head *h)
{
    /* solution begin */
    static struct tile t;
    static float m[MAX_ROWS], l[MAX_ROWS], lse[MAX_ROWS], o[MAX_ROWS][MAX_COLS];
    for (size_t i_0 = 0; i_0 < h->seqlen_q; i_0 += Br) {
        size_t rows = smaller(Br, h->seqlen_q - i_0);
        for (size_t r = 0; r < rows; r++) {
            m[r] = -INFINITY, l[r] = 0;
            for (size_t d = 0; d < h->head_dim_v; d++) o[r][d] = 0;
        }
        for (size_t j_0 = 0; j_0 < h->seqlen_k; j_0 += Bc) {
            size_t n = smaller(Bc, h->seqlen_k - j_0);
            fetch(j_0, n, &t);
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
            for (size_t d = 0; d < h->head_dim_v; d++) o[r][d] = l[r] == 0 ? 0 : o[r][d] / l[r];
            lse[r] = m[r] + logf(l[r]);
        }
        put(i_0, rows, o, lse);
    }
    /* skeleton
    // Your code, with calls of fetch() and put().
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = head_of(c);
    Br = (size_t)c->n[6], Bc = (size_t)c->n[7], head_dim = h.head_dim, head_dim_v = h.head_dim_v;
    h.k = h.v = NULL;
    tiles_of_head(&h);
}
