/* padded_floats.h: a tile of floats in shared memory as rung 2 uses it.
 *
 * Rows are 4 floats, 16 bytes, longer than the head, so that neighbouring rows, which
 * different lanes read at the same column, lie in different banks. */
#pragma once

/* Copies rows to shared memory.   from (n, cols)
 *   to (n_rows, D + 4)  what lies beyond `from` becomes 0, up to column D */
template <int D, int THREADS>
static __device__ void load_tile(float (*to)[D + 4], int n_rows, const float *from, int n,
                                 int cols)
{
    if (cols % 4 == 0 && (size_t)from % 16 == 0) {
        for (int i = threadIdx.x; i < n_rows * (D / 4); i += THREADS) {
            int r = i / (D / 4), c = i % (D / 4) * 4;
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (r < n && c < cols) x = *(const float4 *)(from + (size_t)r * cols + c);
            *(float4 *)&to[r][c] = x;
        }
        return;
    }
    for (int i = threadIdx.x; i < n_rows * D; i += THREADS) {
        int r = i / D, c = i % D;
        to[r][c] = r < n && c < cols ? from[(size_t)r * cols + c] : 0.0f;
    }
}
