/* amx_model.h: the tile instructions that amx.c uses, as loops: what they compute can be read,
 * stepped through in a debugger, and checked on a machine that lacks them.
 *
 * As the unit does it (Intel, Architecture Instruction Set Extensions, TDPBF16PS): lower and
 * upper halves have a float32 sum each, fused multiply-adds from 0; the two are added, and then
 * c.  The unit also counts denormals as zero; the model keeps them, for they are far below what
 * any acceptance of bf16 can see. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector/half.h"

/* The tiles of this thread. */
static __thread union {
    float sum[16][16];
    uint16_t half[16][32];
    char row[16][64];
} tile[8];

static void tile_configure(const void *shape) { (void)shape; }
static void tile_release(void) { memset(tile, 0xff, sizeof tile); }
static void tile_zero(int t) { memset(&tile[t], 0, sizeof tile[t]); }

static void tile_load(int t, const void *from, size_t stride)
{
    for (size_t r = 0; r < 16; r++) memcpy(tile[t].row[r], (const char *)from + r * stride, 64);
}

static void tile_store(int t, void *to, size_t stride)
{
    for (size_t r = 0; r < 16; r++) memcpy((char *)to + r * stride, tile[t].row[r], 64);
}

/* c[m][n] += sum_k a[m][2k] b[k][2n] + sum_k a[m][2k + 1] b[k][2n + 1] */
static void tile_product(int c, int a, int b)
{
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float sum[2] = {0, 0};
            for (int k = 0; k < 16; k++)
                for (int h = 0; h < 2; h++)
                    sum[h] = fmaf(bfloat_to_float(tile[a].half[m][2 * k + h]),
                                  bfloat_to_float(tile[b].half[k][2 * n + h]), sum[h]);
            tile[c].sum[m][n] += sum[0] + sum[1];
        }
}
