/* mma_on_cpu.h: the CPU twins of the tensor-core instructions of sm_75 and sm_80, for the
 * wrappers of the kernels: ldmatrix, stmatrix, mma.sync, cp.async.
 *
 * Fragments, as the PTX manual lays them out.  Lane t of the warp, g = t / 4, c = t % 4;
 * a register holds two 16-bit numbers, the one of the lower column (row) in its low half.
 *
 *     ldmatrix         8x8 matrix i: its row r lies where lane 8i + r points to;
 *                      lane t gets in register i the elements (g, 2c) and (g, 2c + 1)
 *     ldmatrix.trans   ... the elements (2c, g) and (2c + 1, g)
 *     stmatrix         the same, from the registers to the rows
 *     mma m16n8k16     A (16 x 16): a0 (g, 2c), a1 (g + 8, 2c), a2 (g, 2c + 8),
 *                      a3 (g + 8, 2c + 8), each with its right neighbour
 *                      B (16 x 8): b0 (2c, g), b1 (2c + 8, g), each with the one below
 *                      D (16 x 8): d0 d1 (g, 2c) (g, 2c + 1), d2 d3 the same in row g + 8
 *
 * D = A B + C: products are exact in float, the sum over k runs upwards in float, from C
 * on.  (A tensor core adds in another order and truncates.) */
#pragma once

#include "cuda_on_cpu/cuda_on_cpu.h"

namespace cuda_on_cpu
{

struct matrices {
    uint16_t row[8]; /* what the lane's address points to */
    uint32_t r[4];
    bool transpose, store;
};

CUDA_ON_CPU_UNSEEN static inline void move_matrices(struct matrices *const o[32], const struct caller &)
{
    for (int t = 0; t < 32; t++)
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < 2; e++) {
                const int row = t / 4, column = t % 4 * 2 + e;
                uint16_t &x = o[t]->transpose ? o[8 * i + column]->row[row] : o[8 * i + row]->row[column];
                if (o[t]->store) x = (uint16_t)(o[t]->r[i] >> 16 * e);
                else o[t]->r[i] |= (uint32_t)x << 16 * e;
            }
}

/* ldmatrix.x4, with .trans.  row: the lane's address in shared memory. */
static inline void ldmatrix(uint32_t *r, const void *row, bool transpose, CALLER)
{
    struct matrices o = {{}, {}, transpose, false};
    if ((uintptr_t)row % 16) fail(where, "ldmatrix: a row must start at 16 bytes");
    memcpy(o.row, row, 16);
    o = together<move_matrices>(~0u, o, "ldmatrix", where);
    memcpy(r, o.r, sizeof o.r);
}

/* stmatrix.x4: the other way. */
static inline void stmatrix(void *row, const uint32_t *r, bool transpose, CALLER)
{
    struct matrices o = {{}, {r[0], r[1], r[2], r[3]}, transpose, true};
    if ((uintptr_t)row % 16) fail(where, "stmatrix: a row must start at 16 bytes");
    o = together<move_matrices>(~0u, o, "stmatrix", where);
    memcpy(row, o.row, 16);
}

struct mma_operand {
    uint32_t a[4], b[2];
    float d[4];
    bool bf16;
};

/* The number in the low half of u. */
static inline float widen(uint32_t u, bool bf16)
{
    return bf16 ? bfloat_to_float((uint16_t)u) : half_to_float((uint16_t)u);
}

CUDA_ON_CPU_UNSEEN static inline void mma_lanes(struct mma_operand *const o[32],
                                                const struct caller &)
{
    float a[16][16], b[16][8], d[16][8];
    for (int t = 0; t < 32; t++) {
        int g = t / 4, c = t % 4 * 2;
        for (int i = 0; i < 4; i++) {
            for (int e = 0; e < 2; e++) {
                a[g + i % 2 * 8][c + i / 2 * 8 + e] = widen(o[t]->a[i] >> 16 * e, o[t]->bf16);
                if (i < 2) b[c + i * 8 + e][g] = widen(o[t]->b[i] >> 16 * e, o[t]->bf16);
            }
            d[g + i / 2 * 8][c + i % 2] = o[t]->d[i];
        }
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
    for (int t = 0; t < 32; t++)
        for (int i = 0; i < 4; i++) o[t]->d[i] = d[t / 4 + i / 2 * 8][t % 4 * 2 + i % 2];
}

/* mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32: d += a b.   d, a (4)   b (2)   T is bf16 or f16 */
static inline void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, bool bf16, CALLER)
{
    struct mma_operand o = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}, bf16};
    o = together<mma_lanes>(~0u, o, "mma", where);
    memcpy(d, o.d, sizeof o.d);
}

/* cp.async.cg/ca.shared.global: `bytes` (4, 8, 16), of which bytes_read are read and the
 * rest is filled with zero; cp.async.commit_group; cp.async.wait_group N.  The copy takes
 * place in the wait, so a kernel that forgets to wait computes with what was there. */
void cp_async(void *shared, const void *global, size_t bytes, size_t bytes_read, CALLER);
void cp_async_commit(void);
void cp_async_wait(unsigned groups_left);

} // namespace cuda_on_cpu
