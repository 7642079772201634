/* amx.c: attention in bf16 with the matrix unit of Intel's server processors (AMX).
 *
 * The unit has eight tiles, each of 16 rows of 64 bytes.  One instruction multiplies two:
 *     tdpbf16ps   c (16, 16 floats) += a (16, 16 pairs) . b (16 pairs, 16 columns)
 * 16 x 16 x 32 multiply-adds in 16 cycles, sixteen times what the vector units do.  It is
 * asynchronous, as a wgmma of stage 5 is: the processor goes on with other instructions until
 * something reads the tile.  A tile is loaded from rows that lie `stride` bytes apart, so k
 * and v^T need no packing beyond their pairs.
 *
 * Four tiles hold sums, two a and two b: four products for four loads.  In gdb a tile is a
 * variable of the model (amx_model.h), which executes the same code on any machine. */
#define LEAST_WORK (1 << 19) /* few: packing takes as long as 4 times as many, and so threads pay earlier */
#include "bf16.h"

#ifdef MODEL /* tests/test_amx.c */
#define AMX(name) amx_model_##name
#else
#define AMX(name) amx_##name
#endif

#if (defined __AMX_BF16__ || defined __AMXBF16__) && !defined MODEL
const int amx_is_compiled = 1;
#include <immintrin.h>
#define tile_zero _tile_zero
#define tile_load _tile_loadd
#define tile_store _tile_stored
#define tile_product _tile_dpbf16ps
#define tile_configure _tile_loadconfig
#define tile_release _tile_release
#else
#ifndef MODEL
const int amx_is_compiled = 0;
#endif
#include "amx_model.h"
#endif

/* All eight tiles: 16 rows of 64 bytes.  Static, because a compiler that knows of the first 8
 * bytes only that they are read leaves the others of a local variable unwritten. */
static void tiles_begin(void)
{
    static const struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
               .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    tile_configure(&shape);
}

static void tiles_end(void) { tile_release(); }

/* 32 rows of c at a time, or the last 16: tiles 0 and 1 are the first 16 rows of sums, 2 and 3 the
 * others, 4 and 5 rows of a, 6 and 7 columns of b. */
static void block_product(size_t rows, size_t steps, const uint32_t *a, size_t a_row,
                          size_t a_step, const uint32_t *b, float *c, int add)
{
    enum { C_STRIDE = PANEL * 4, B_STRIDE = PANEL * 4 };
    __asm__ volatile("" ::: "memory"); /* compilers forget that a tile load reads memory */
    for (size_t r = 0; r < rows; r += 32) {
        float *c_r = c + r * PANEL, *c_s = c_r + 16 * PANEL;
        const int both = r + 32 <= rows;
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        if (add) tile_load(0, c_r, C_STRIDE);
        if (add) tile_load(1, c_r + 16, C_STRIDE);
        if (add && both) tile_load(2, c_s, C_STRIDE);
        if (add && both) tile_load(3, c_s + 16, C_STRIDE);
        for (size_t t = 0; t < steps; t++) {
            const uint32_t *a_t = a + r * a_row + t * a_step, *b_t = b + t * KEY_STEP / 2 * PANEL;
            tile_load(6, b_t, B_STRIDE);
            tile_load(4, a_t, a_row * 4);
            tile_product(0, 4, 6);
            tile_load(7, b_t + 16, B_STRIDE);
            tile_product(1, 4, 7);
            if (!both) continue;
            tile_load(5, a_t + 16 * a_row, a_row * 4);
            tile_product(2, 5, 6);
            tile_product(3, 5, 7);
        }
        tile_store(0, c_r, C_STRIDE);
        tile_store(1, c_r + 16, C_STRIDE);
        if (both) tile_store(2, c_s, C_STRIDE);
        if (both) tile_store(3, c_s + 16, C_STRIDE);
    }
}

size_t AMX(workspace)(const struct problem *p) { return bf16_workspace(p); }

void AMX(attention)(const struct problem *p, const struct arrays *a)
{
    bf16_attention(p, a);
}

#ifndef MODEL
/* The unit at its best: four products at a time that wait for nothing, no loads. */
double amx_products(void)
{
    enum { ROUNDS = 20000 };
    tiles_begin();
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    tile_zero(4);
    tile_zero(5);
    tile_zero(6);
    tile_zero(7);
    for (int k = 0; k < ROUNDS; k++) {
        tile_product(0, 4, 6);
        tile_product(1, 4, 7);
        tile_product(2, 5, 6);
        tile_product(3, 5, 7);
    }
    tiles_end();
    return 4.0 * 2 * 16 * 16 * 32 * ROUNDS;
}
#endif
