/* microkernel.c: the product of products.h in blocks that stay in registers.
 *
 * A number of a is broadcast, a row of b is read as vectors, and a block of c is held in
 * registers for the whole inner loop (Goto and van de Geijn 2008).  A block has rows x vectors
 * accumulators, which with a row of b and one broadcast must fit the registers (32 of AVX-512
 * and ARM, 16 of AVX2 and SSE), and at least 8 of them, because two multiply-adds start a cycle
 * and each takes four. */
#include "products.h"

#if LANES == 16 || defined __aarch64__
#define MOST_VECTORS 4
#else
#define MOST_VECTORS 2
#endif
/* Rows of a block of so many vectors (6 x 4, 8 x 3 registers; with 8 x 2 gcc spills an address); of
 * the rows that are left; after them one at a time. */
#define WHOLE_ROWS(vectors) (LANES == 16 && (vectors) % 2 ? 8 : 6)
#define REST_ROWS 4

/* With the 32 registers of AVX-512 gcc writes four steps of the inner loop out: the counter of
 * a loop takes issue slots that loads and multiply-adds could use.  With 16 it would spill
 * addresses. */
#if LANES == 16 && !defined __clang__
#define FOUR_STEPS _Pragma("GCC unroll 4")
#else
#define FOUR_STEPS
#endif

/* rows times vectors * LANES columns of c, the first of which is (r, column).  The first step
 * multiplies: then no sum has to be set to 0.  The sum is added to c at the end: shorter chains of
 * additions, smaller error, and the multiply-add that adds it multiplies c by its factor.
 * rows, vectors and one of a_row and a_step are constants where this is inlined. */
INLINE void block(int rows, int vectors, size_t a_row, size_t a_step, const struct product *x,
                  size_t r, size_t column)
{
    const float *a = x->a + r * a_row, *b = x->b + column;
    float *c = x->c + r * x->c_row + column;
    size_t b_row = x->b_row, c_row = x->c_row, steps = x->steps;
    vfloat b_t[UNROLL_MOST], sum[UNROLL_MOST][UNROLL_MOST];
    UNROLL(n, vectors, b_t[n] = vload(b + n * LANES));
    UNROLL(i, rows, vfloat a_i = vset(a[i * a_row]);
           UNROLL(n, vectors, sum[i][n] = a_i * b_t[n]));
    FOUR_STEPS
    for (size_t t = 1; t < steps; t++) {
        UNROLL(n, vectors, b_t[n] = vload(b + t * b_row + n * LANES));
        UNROLL(i, rows, vfloat a_i = vset(a[i * a_row + t * a_step]);
               UNROLL(n, vectors, sum[i][n] = vfma(a_i, b_t[n], sum[i][n])));
    }
    if (!x->factor) {
        UNROLL(i, rows, UNROLL(n, vectors, vstore(c + i * c_row + n * LANES, sum[i][n])));
        return;
    }
    UNROLL(i, rows, vfloat f = vset(x->factor[r + i]);
           UNROLL(n, vectors, float *c_i = c + i * c_row + n * LANES;
                  vstore(c_i, vfma(vload(c_i), f, sum[i][n]))));
}

/* Each block is a function of its own: inlined into the loop around it, gcc 12 unrolls and
 * jams the two loops and no longer keeps the accumulators in registers. */
#define BLOCK(name, rows, vectors, a_row, a_step)                                          \
    static __attribute__((noinline)) void name(const struct product *x, size_t r, size_t column) \
    {                                                                                      \
        block(rows, vectors, a_row, a_step, x, r, column);                                 \
    }

/* Of each width, where the numbers of a lie along its rows, and where they lie across: a whole
 * block, one of the rows that are left, a row at a time. */
#define BLOCKS_OF(vectors)                                                                 \
    BLOCK(along_##vectors, WHOLE_ROWS(vectors), vectors, x->a_row, 1)                      \
    BLOCK(along_rest_##vectors, REST_ROWS, vectors, x->a_row, 1)                           \
    BLOCK(along_one_##vectors, 1, vectors, x->a_row, 1)                                    \
    BLOCK(across_##vectors, WHOLE_ROWS(vectors), vectors, 1, x->a_step)                    \
    BLOCK(across_rest_##vectors, REST_ROWS, vectors, 1, x->a_step)                         \
    BLOCK(across_one_##vectors, 1, vectors, 1, x->a_step)

#define EACH_2(define) define(1) define(2)
#define EACH_4(define) EACH_2(define) define(3) define(4)
#define NAMES_2(name) name##1, name##2
#define NAMES_4(name) NAMES_2(name), name##3, name##4
#define JOIN(a, b) a##b
#define UP_TO(what, n) JOIN(what, n) /* n is a macro */

UP_TO(EACH_, MOST_VECTORS)(BLOCKS_OF)

/* [across][kind][vectors] */
static void (*const blocks[2][3][MOST_VECTORS + 1])(const struct product *, size_t, size_t) = {
    {{NULL, UP_TO(NAMES_, MOST_VECTORS)(along_)},
     {NULL, UP_TO(NAMES_, MOST_VECTORS)(along_rest_)},
     {NULL, UP_TO(NAMES_, MOST_VECTORS)(along_one_)}},
    {{NULL, UP_TO(NAMES_, MOST_VECTORS)(across_)},
     {NULL, UP_TO(NAMES_, MOST_VECTORS)(across_rest_)},
     {NULL, UP_TO(NAMES_, MOST_VECTORS)(across_one_)}},
};

/* Columns go in panels of nearly equal width: 80 columns are 3 + 2 vectors of 16, because
 * 4 + 1 would leave a block with too few chains of additions. */
void block_product(const struct product *x)
{
    size_t left = x->cols / LANES, panels = (left + MOST_VECTORS - 1) / MOST_VECTORS;
    for (size_t c = 0; panels > 0; panels--) {
        size_t vectors = (left + panels - 1) / panels, whole = WHOLE_ROWS(vectors), rows;
        for (size_t r = 0; r < x->rows; r += rows) {
            size_t rest = x->rows - r;
            rows = rest >= whole ? whole : rest >= REST_ROWS ? REST_ROWS : 1;
            blocks[x->a_row == 1][rows == whole ? 0 : rows == REST_ROWS ? 1 : 2][vectors](x, r, c);
        }
        left -= vectors;
        c += vectors * LANES;
    }
}
