/* microkernel.c: the two products of products.h in blocks that stay in registers.
 *
 * Both are C += A . B with A read one float at a time and broadcast, B read as vectors, and
 * a block of C held in registers for the whole inner loop (Goto and van de Geijn 2008).
 * A block has rows x vectors accumulators, which with a row of B and one broadcast must fit
 * the registers (32 of AVX-512 and ARM, 16 of AVX2 and SSE), and at least 8 of them, because
 * two multiply-adds start a cycle and each takes four. */
#include "products.h"

#if LANES == 16
#define KEY_ROWS 8      /* block of s: KEY_ROWS keys x QUERY_VECTORS vectors of queries */
#define QUERY_VECTORS 3
#define VALUE_VECTORS 4 /* block of o: QUERY_ROWS queries x VALUE_VECTORS vectors of columns */
#elif defined __aarch64__
#define KEY_ROWS 6
#define QUERY_VECTORS 4
#define VALUE_VECTORS 4
#else
#define KEY_ROWS 6
#define QUERY_VECTORS 2
#define VALUE_VECTORS 2
#endif
#define QUERY_ROWS 6
#define REST_ROWS 4     /* of the rows that are left; after them one at a time */

_Static_assert(PANEL % (QUERY_VECTORS * LANES) == 0, "a panel is whole blocks of queries");
_Static_assert(PANEL % QUERY_ROWS == 0, "a panel is whole strips of queries");

/* With the 32 registers of AVX-512 gcc writes four steps of the inner loops out: the counter of
 * a loop takes issue slots that loads and multiply-adds could use.  With 16 it would spill
 * addresses. */
#if LANES == 16 && !defined __clang__
#define FOUR_STEPS _Pragma("GCC unroll 4")
#else
#define FOUR_STEPS
#endif

/* rows keys times vectors * LANES queries.
 *   k (rows, head_dim), rows k_stride apart
 *   qt (head_dim, PANEL) and s (rows, PANEL), at the first query of the block
 * rows and vectors are constants where this is inlined.  The first step multiplies: then no
 * sum has to be set to 0. */
INLINE void scores_block(int rows, int vectors, const float *k, size_t k_stride,
                         size_t head_dim, const float *qt, float *s)
{
    vfloat b[UNROLL_MOST], c[UNROLL_MOST][UNROLL_MOST];
    UNROLL(n, vectors, b[n] = vload(qt + n * LANES));
    UNROLL(j, rows, vfloat a = vset(k[(size_t)j * k_stride]);
           UNROLL(n, vectors, c[j][n] = a * b[n]));
    FOUR_STEPS
    for (size_t t = 1; t < head_dim; t++) {
        UNROLL(n, vectors, b[n] = vload(qt + t * PANEL + n * LANES));
        UNROLL(j, rows, vfloat a = vset(k[(size_t)j * k_stride + t]);
               UNROLL(n, vectors, c[j][n] = vfma(a, b[n], c[j][n])));
    }
    UNROLL(j, rows, UNROLL(n, vectors, vstore(s + j * PANEL + n * LANES, c[j][n])));
}

/* rows queries times vectors * LANES columns.
 *   p (n_keys, PANEL), at the first query     v (n_keys, v_stride), at the first column
 *   correction (rows)                      o (rows, cols), at the first column
 * The sum over the tile is added to o at the end: shorter chains of additions, smaller error,
 * and the multiply-add that adds it rescales o. */
INLINE void values_block(int rows, int vectors, const float *p, size_t n_keys, const float *v,
                         size_t v_stride, size_t cols, const float *correction, float *o)
{
    vfloat b[UNROLL_MOST], c[UNROLL_MOST][UNROLL_MOST];
    UNROLL(n, vectors, b[n] = vload(v + n * LANES));
    UNROLL(i, rows, vfloat a = vset(p[i]); UNROLL(n, vectors, c[i][n] = a * b[n]));
    FOUR_STEPS
    for (size_t j = 1; j < n_keys; j++) {
        UNROLL(n, vectors, b[n] = vload(v + j * v_stride + n * LANES));
        UNROLL(i, rows, vfloat a = vset(p[j * PANEL + i]);
               UNROLL(n, vectors, c[i][n] = vfma(a, b[n], c[i][n])));
    }
    UNROLL(i, rows,
           UNROLL(n, vectors, float *o_i = o + i * cols + n * LANES;
                  vstore(o_i, vfma(vload(o_i), vset(correction[i]), c[i][n]))));
}

/* Each block is a function of its own: inlined into the loop around it, gcc 12 unrolls and
 * jams the two loops and no longer keeps the accumulators in registers. */
#define ALONE static __attribute__((noinline)) void

#define SCORES(name, rows, vectors)                                                        \
    ALONE name(const float *k, size_t k_stride, size_t head_dim, const float *qt, float *s) \
    {                                                                                      \
        scores_block(rows, vectors, k, k_stride, head_dim, qt, s);                         \
    }
#define VALUES(name, rows, vectors)                                                        \
    ALONE name(const float *p, size_t n_keys, const float *v, size_t v_stride, size_t cols, \
               const float *correction, float *o)                                          \
    {                                                                                      \
        values_block(rows, vectors, p, n_keys, v, v_stride, cols, correction, o);          \
    }

/* Of each width: a whole block, one of the rows that are left, a row at a time. */
#define SCORES_OF(vectors)                                                                 \
    SCORES(scores_##vectors, KEY_ROWS, vectors)                                            \
    SCORES(scores_rest_##vectors, REST_ROWS, vectors)                                      \
    SCORES(scores_one_##vectors, 1, vectors)
#define VALUES_OF(vectors)                                                                 \
    VALUES(values_##vectors, QUERY_ROWS, vectors)                                          \
    VALUES(values_rest_##vectors, REST_ROWS, vectors)                                      \
    VALUES(values_one_##vectors, 1, vectors)

#define EACH_2(define) define(1) define(2)
#define EACH_3(define) EACH_2(define) define(3)
#define EACH_4(define) EACH_3(define) define(4)
#define NAMES_2(name) name##1, name##2
#define NAMES_3(name) NAMES_2(name), name##3
#define NAMES_4(name) NAMES_3(name), name##4
#define JOIN(a, b) a##b
#define UP_TO(what, n) JOIN(what, n) /* n may be a macro */

UP_TO(EACH_, QUERY_VECTORS)(SCORES_OF)
UP_TO(EACH_, VALUE_VECTORS)(VALUES_OF)

typedef void scores_function(const float *, size_t, size_t, const float *, float *);
typedef void values_function(const float *, size_t, const float *, size_t, size_t,
                             const float *, float *);

/* [kind][vectors] */
static scores_function *const scores_of[3][QUERY_VECTORS + 1] = {
    {NULL, UP_TO(NAMES_, QUERY_VECTORS)(scores_)},
    {NULL, UP_TO(NAMES_, QUERY_VECTORS)(scores_rest_)},
    {NULL, UP_TO(NAMES_, QUERY_VECTORS)(scores_one_)},
};
static values_function *const values_of[3][VALUE_VECTORS + 1] = {
    {NULL, UP_TO(NAMES_, VALUE_VECTORS)(values_)},
    {NULL, UP_TO(NAMES_, VALUE_VECTORS)(values_rest_)},
    {NULL, UP_TO(NAMES_, VALUE_VECTORS)(values_one_)},
};

/* The next block of a product, when so many rows are left. */
struct block { size_t kind, rows; };

static struct block block_for(size_t left, size_t whole)
{
    if (left >= whole) return (struct block){0, whole};
    if (left >= REST_ROWS) return (struct block){1, REST_ROWS};
    return (struct block){2, 1};
}

static void scores(const float *k, size_t k_stride, size_t n_keys, size_t head_dim,
                   const float *qt, size_t n_rows, float *s)
{
    for (size_t i = 0; i < n_rows; i += QUERY_VECTORS * LANES) {
        size_t vectors = (n_rows - i + LANES - 1) / LANES;
        if (vectors > QUERY_VECTORS) vectors = QUERY_VECTORS;
        struct block b;
        for (size_t j = 0; j < n_keys; j += b.rows) {
            b = block_for(n_keys - j, KEY_ROWS);
            scores_of[b.kind][vectors](k + j * k_stride, k_stride, head_dim, qt + i,
                                       s + j * PANEL + i);
        }
    }
}

/* Columns go in panels of nearly equal width: 80 columns are 3 + 2 vectors of 16, because
 * 4 + 1 would leave a block with too few chains of additions. */
static void values(const float *p, size_t n_keys, const float *v, size_t v_stride,
                   size_t cols, const float *correction, size_t n_rows, float *o)
{
    size_t left = cols / LANES, panels = (left + VALUE_VECTORS - 1) / VALUE_VECTORS;
    for (size_t c = 0; panels > 0; panels--) {
        size_t vectors = (left + panels - 1) / panels;
        struct block b;
        for (size_t i = 0; i < n_rows; i += b.rows) {
            b = block_for(n_rows - i, QUERY_ROWS);
            values_of[b.kind][vectors](p + i, n_keys, v + c, v_stride, cols, correction + i,
                                       o + i * cols + c);
        }
        left -= vectors;
        c += vectors * LANES;
    }
}

const struct products block_products = {.scores = scores, .values = values};
