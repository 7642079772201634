/* schedule.h: which rows of a sequence lie on which rank, and which pieces of the attention matrix
 * a rank computes in which step.  Plain arithmetic, the same for processes (stage 4) and GPUs
 * (stage 5): tests/test_multi_gpu.cc runs it for up to eight ranks.
 *
 * A shard of a sequence has a front and a back chunk.  Queries and keys of a shard lie one chunk
 * after the other, so a run of chunks is a run of rows.  A piece is a rectangle of local queries
 * and local keys, and one call of the kernel. */
#pragma once

#include "harness.h"

/* --- Which rows. --- */

/* Where `part` of `parts` equal parts of n begins and ends: n may be less than parts, and
 * then some parts are empty. */
static inline struct key_range part_of(size_t n, size_t part, size_t parts)
{
    struct key_range range = {n / parts * part, n / parts * (part + 1)};
    size_t rest = n % parts; /* the first `rest` parts are longer by one */
    range.first += part < rest ? part : rest;
    range.end += part + 1 < rest ? part + 1 : rest;
    return range;
}

static inline size_t range_size(struct key_range r) { return r.end - r.first; }

/* Rows and keys that lie together on a rank: front and back chunk, or one and an empty one. */
enum { FRONT, BACK, CHUNKS };
struct chunks { struct key_range at[CHUNKS]; };

/* The chunks of n rows that `rank` of `ranks` holds.
 * zigzag: chunks rank and 2 ranks - 1 - rank of 2 ranks equal ones.  Under a causal mask late
 * queries see many keys and early ones few; a front and a back chunk together see the same
 * number on every rank.  Without zigzag: one contiguous part. */
static inline struct chunks chunks_of(size_t n, size_t rank, size_t ranks, int zigzag)
{
    struct chunks c = {{part_of(n, rank, ranks), {0, 0}}};
    if (zigzag) {
        c.at[FRONT] = part_of(n, rank, 2 * ranks);
        c.at[BACK] = part_of(n, 2 * ranks - 1 - rank, 2 * ranks);
    }
    return c;
}

static inline size_t chunks_size(const struct chunks *c)
{
    return range_size(c->at[FRONT]) + range_size(c->at[BACK]);
}

/* The row of the whole problem that is row i of a rank. */
static inline size_t row_of_whole(const struct chunks *c, size_t i)
{
    size_t front = range_size(c->at[FRONT]);
    return i < front ? c->at[FRONT].first + i : c->at[BACK].first + (i - front);
}

/* The queries and the keys of the whole problem that lie on a rank. */
static inline struct chunks queries_of(const struct strategy *s, const struct problem *whole,
                                       int rank, int ranks)
{
    struct chunks all = {{{0, whole->seqlen_q}, {0, 0}}};
    if (!s->is_ring) return all;
    return chunks_of(whole->seqlen_q, (size_t)rank, (size_t)ranks, s->is_zigzag);
}

static inline struct chunks keys_of(const struct strategy *s, const struct problem *whole,
                                    int rank, int ranks)
{
    return chunks_of(whole->seqlen_k, (size_t)rank, (size_t)ranks, s->is_zigzag);
}

/* Keys of the rank that holds the most, or one or two more. */
static inline size_t most_keys(const struct strategy *s, const struct problem *whole, int ranks)
{
    size_t parts = (size_t)ranks * (s->is_zigzag ? 2 : 1);
    return (whole->seqlen_k + parts - 1) / parts * (s->is_zigzag ? 2 : 1);
}

/* --- Which pieces. --- */

/* Local queries x local keys, all heads.  causal: local query i sees local keys
 * 0 ... i + last of the piece, else all. */
struct piece {
    struct key_range rows, cols;
    int causal;
    ptrdiff_t last;
};

enum { MOST_PIECES = CHUNKS * CHUNKS };

/* The piece of global queries x global keys.  0 when no query sees a key. */
static inline int piece_of(const struct problem *whole, struct key_range queries,
                           struct key_range keys, struct piece *piece)
{
    size_t n_q = range_size(queries), n_k = range_size(keys);
    piece->causal = 0;
    piece->last = 0;
    if (n_q == 0 || n_k == 0) return 0;
    if (!whole->causal) return 1;
    piece->last = problem_mask(whole).last + (ptrdiff_t)queries.first - (ptrdiff_t)keys.first;
    piece->causal = piece->last + 1 < (ptrdiff_t)n_k; /* query 0 does not see all */
    return piece->last + (ptrdiff_t)n_q > 0;          /* the last query sees something */
}

/* Two pieces without a mask that are one rectangle: a grows, 1. */
static inline int join_pieces(struct piece *a, const struct piece *b)
{
    int same_rows = a->rows.first == b->rows.first && a->rows.end == b->rows.end;
    int same_cols = a->cols.first == b->cols.first && a->cols.end == b->cols.end;
    if (a->causal || b->causal) return 0;
    if (same_rows && a->cols.end == b->cols.first) a->cols.end = b->cols.end;
    else if (same_cols && a->rows.end == b->rows.first) a->rows.end = b->rows.end;
    else return 0;
    return 1;
}

/* The pieces of a shard's queries and of the keys of one shard, as few as possible.  Returns
 * their number.
 *
 * With equally many queries and keys, a rank's own chunks are one causal piece: in local rows
 * as in global ones, query i sees key j when j <= i.  Keys of another rank are in full view or
 * hidden, chunk by chunk, so that each step is one rectangle. */
static inline int pieces_of(const struct problem *whole, const struct chunks *queries,
                            const struct chunks *keys, struct piece pieces[MOST_PIECES])
{
    int n = 0;
    size_t row = 0, n_q = chunks_size(queries), n_k = chunks_size(keys);
    int own = whole->causal && whole->shift == 0 && whole->seqlen_q == whole->seqlen_k &&
              queries->at[FRONT].first == keys->at[FRONT].first &&
              queries->at[BACK].first == keys->at[BACK].first && n_q == n_k && n_q > 0;
    if (own) {
        struct piece all = {{0, n_q}, {0, n_k}, 1, 0};
        pieces[0] = all;
        return 1;
    }
    for (int c = 0; c < CHUNKS; row += range_size(queries->at[c++])) {
        size_t col = 0;
        for (int b = 0; b < CHUNKS; col += range_size(keys->at[b++])) {
            struct piece x = {{row, row + range_size(queries->at[c])},
                              {col, col + range_size(keys->at[b])}, 0, 0};
            if (!piece_of(whole, queries->at[c], keys->at[b], &x)) continue;
            if (n == 0 || !join_pieces(&pieces[n - 1], &x)) pieces[n++] = x;
        }
    }
    for (int i = 0; i + 1 < n; i++) /* front and back queries that see the same keys */
        for (int j = i + 1; j < n; j++)
            if (join_pieces(&pieces[i], &pieces[j])) pieces[j--] = pieces[--n];
    return n;
}

/* The rank whose keys `me` has in hand in a step of the ring. */
static inline int owner_of(int me, int step, int ranks)
{
    return (me - step + ranks) % ranks;
}

/* Where the keys of a step lie: a rank's own stay in place 0, arriving ones take turns in the
 * places 1 and 2.  What arrives in step s is used in step s + 1. */
static inline int place_of_step(int step) { return step == 0 ? 0 : 1 + (step - 1) % 2; }

/* The problem of one piece, for a kernel. */
static inline struct problem problem_of_piece(const struct problem *whole,
                                              const struct piece *x)
{
    struct problem p = *whole;
    p.seqlen_q = range_size(x->rows);
    p.seqlen_k = range_size(x->cols);
    p.causal = x->causal;
    p.shift = 0;
    if (x->causal) p.shift = x->last - ((ptrdiff_t)p.seqlen_k - (ptrdiff_t)p.seqlen_q);
    return p;
}
