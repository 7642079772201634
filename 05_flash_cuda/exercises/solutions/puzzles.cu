/* puzzles.cu: puzzle of stage 5, 20 points: twenty kernels of ten minutes, each with one idea.
 *
 * Do them in order, before the first big kernel.  All have the same arguments: x and y come in, z goes out and is 0
 * on entry; n and m are numbers.  blockDim.x, gridDim.x and the room of shared memory stand above each.  Elements are counted
 * as they are loaded and stored, in pieces of 32 bytes for each warp; so are turns of the banks and barriers.  The
 * threads run in three orders.  What fails is named: the wrong element, a count, or the barrier at which threads wait.
 *
 * Task: fill the kernels.
 * Time: 4 hours.
 * Hint: int i = blockIdx.x * blockDim.x + threadIdx.x, and the last block has threads to spare.
 * Hint: shared_floats_of(n) is the block's shared memory.  Between a write by one thread and a read by another belongs a
 *       __syncthreads(), which all threads of the block reach.
 * Hint: __shfl_xor_sync(ALL, x, step) gives the x of lane ^ step, __shfl_sync(ALL, x, lane) that of a lane.
 * Right or wrong:  make exercise 5 EX=puzzles      (without a GPU: on the CPU) */
#include "harness.h"
#include "course/kernel.h"

static const unsigned ALL = 0xffffffff;
#define PUZZLE(name) static __global__ void name(global<const float> x, global<const float> y, global<float> z, int n, int m)

/* 1. z_i = 2 x_i, i < n.  Blocks of 32. */
PUZZLE(twice)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    /* solution begin */
    if (i < n) z[i] = 2 * x[i];
    /* skeleton
    if (i == 0) z[i] = 0;
    solution end */
}

/* 2. z_i = x_i + y_i.  Blocks of 64. */
PUZZLE(add)
{
    /* solution begin */
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
    /* solution end */
}

/* 3. z_i = x_i x_i, by two blocks of 32, whatever n is. */
PUZZLE(stride)
{
    /* solution begin */
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) z[i] = x[i] * x[i];
    /* solution end */
}

/* 4. A row of y (m) is added to each row of x (n, m).  Blocks of 64, a thread for each element. */
PUZZLE(row_and_column)
{
    /* solution begin */
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * m) z[i] = x[i] + y[i % m];
    /* solution end */
}

/* 5. z_i = x_i - (the first x of the block).  Blocks of 64, 1 float shared.  Each element is loaded once. */
PUZZLE(broadcast)
{
    /* solution begin */
    shared<float> first = shared_floats_of(1);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = i < n ? x[i] : 0;
    if (threadIdx.x == 0) first[0] = mine;
    __syncthreads();
    if (i < n) z[i] = mine - first[0];
    /* solution end */
}

/* 6. z_i = x_(i-1) + x_i + x_(i+1), 0 outside.  Blocks of 64, 66 floats shared: only two elements a block are loaded
 * twice. */
PUZZLE(stencil)
{
    /* solution begin */
    shared<float> s = shared_floats_of(66);
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t + 1] = i < n ? x[i] : 0;
    if (t == 0) s[0] = i > 0 ? x[i - 1] : 0;
    if (t == 63) s[65] = i + 1 < n ? x[i + 1] : 0;
    __syncthreads();
    if (i < n) z[i] = s[t] + s[t + 1] + s[t + 2];
    /* solution end */
}

/* 7. z_b = the sum of block b's elements.  Blocks of 128, 128 floats shared, at most 8 barriers: a tree. */
PUZZLE(block_sum)
{
    /* solution begin */
    shared<float> s = shared_floats_of(128);
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = i < n ? x[i] : 0;
    for (int half = 64; half; half /= 2) {
        __syncthreads();
        if (t < half) s[t] += s[t + half];
    }
    if (t == 0) z[blockIdx.x] = s[0];
    /* solution end */
}

/* 8. The same for blocks of one warp, by shuffles: nothing is shared. */
PUZZLE(warp_sum)
{
    /* solution begin */
    int i = blockIdx.x * 32 + threadIdx.x;
    float sum = i < n ? x[i] : 0;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (threadIdx.x == 0) z[blockIdx.x] = sum;
    /* solution end */
}

/* 9. z_0 = the sum of all elements.  Blocks of 32; atomicAdd(&z[0], ...) once a block. */
PUZZLE(grid_sum)
{
    /* solution begin */
    int i = blockIdx.x * 32 + threadIdx.x;
    float sum = i < n ? x[i] : 0;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (threadIdx.x == 0) atomicAdd(&z[0], sum);
    /* solution end */
}

/* 10. z_0 = the least i whose x_i is the maximum.  One warp. */
PUZZLE(where_is_the_maximum)
{
    /* solution begin */
    float best = -INFINITY;
    int at = n;
    for (int i = threadIdx.x; i < n; i += 32) {
        float mine = x[i];
        if (mine > best) best = mine, at = i;
    }
    for (int step = 16; step; step /= 2) {
        float other = __shfl_xor_sync(ALL, best, step);
        int its = __shfl_xor_sync(ALL, at, step);
        if (other > best || (other == best && its < at)) best = other, at = its;
    }
    if (threadIdx.x == 0) z[0] = (float)at;
    /* solution end */
}

/* 11. z_i = x_0 + ... + x_i.  One block of 128, 128 floats shared, n <= 128.  At most 14 barriers. */
PUZZLE(scan)
{
    /* solution begin */
    shared<float> s = shared_floats_of(128);
    int t = threadIdx.x;
    s[t] = t < n ? x[t] : 0;
    for (int step = 1; step < 128; step *= 2) {
        __syncthreads();
        float before = t >= step ? s[t - step] : 0;
        __syncthreads();
        s[t] += before;
    }
    if (t < n) z[t] = s[t];
    /* solution end */
}

/* 12. The same for each warp's 32 elements, by shuffles.  Blocks of 32. */
PUZZLE(warp_scan)
{
    /* solution begin */
    int lane = threadIdx.x, i = blockIdx.x * 32 + lane;
    float sum = i < n ? x[i] : 0;
    for (int step = 1; step < 32; step *= 2) {
        float before = __shfl_sync(ALL, sum, lane >= step ? lane - step : lane);
        if (lane >= step) sum += before;
    }
    if (i < n) z[i] = sum;
    /* solution end */
}

/* 13. z_c = the sum of column c of x (n, m).  Blocks of 32.  Neighbouring threads load neighbouring elements. */
PUZZLE(column_sums)
{
    /* solution begin */
    int c = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    for (int r = 0; r < n && c < m; r++) sum += x[r * m + c];
    if (c < m) z[c] = sum;
    /* solution end */
}

/* 14. z (m, n) = x (n, m) transposed.  A block of 256 for each tile of 32 x 32, (m + 31) / 32 tiles side by
 * side; 1056 floats shared.  Loads and stores of a warp are neighbours. */
PUZZLE(transpose)
{
    /* solution begin */
    shared<float> s = shared_floats_of(1056);
    int across = (m + 31) / 32, r_0 = (int)(blockIdx.x) / across * 32, c_0 = (int)(blockIdx.x) % across * 32;
    for (int e = threadIdx.x; e < 1024; e += 256)
        if (r_0 + e / 32 < n && c_0 + e % 32 < m) s[e] = x[(r_0 + e / 32) * m + c_0 + e % 32];
    __syncthreads();
    for (int e = threadIdx.x; e < 1024; e += 256)
        if (c_0 + e / 32 < m && r_0 + e % 32 < n) z[(c_0 + e / 32) * n + r_0 + e % 32] = s[e % 32 * 32 + e / 32];
    /* solution end */
}

/* 15. The same without bank conflicts. */
PUZZLE(transpose_without_conflicts)
{
    /* solution begin */
    shared<float> s = shared_floats_of(1056);
    int across = (m + 31) / 32, r_0 = (int)(blockIdx.x) / across * 32, c_0 = (int)(blockIdx.x) % across * 32;
    for (int e = threadIdx.x; e < 1024; e += 256)
        if (r_0 + e / 32 < n && c_0 + e % 32 < m) s[e / 32 * 33 + e % 32] = x[(r_0 + e / 32) * m + c_0 + e % 32];
    __syncthreads();
    for (int e = threadIdx.x; e < 1024; e += 256)
        if (c_0 + e / 32 < m && r_0 + e % 32 < n) z[(c_0 + e / 32) * n + r_0 + e % 32] = s[e % 32 * 33 + e / 32];
    /* solution end */
}

/* 16. z_b = how many elements of x are b; they are 0 .. m - 1, m <= 32.  Blocks of 64, 32 floats shared; a block adds to z
 * m times at most. */
PUZZLE(histogram)
{
    /* solution begin */
    shared<float> bins = shared_floats_of(32);
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (t < m) bins[t] = 0;
    __syncthreads();
    if (i < n) atomicAdd(&bins[(int)x[i]], 1.0f);
    __syncthreads();
    if (t < m) atomicAdd(&z[t], bins[t]);
    /* solution end */
}

/* 17. z_0 = x . y.  One block of 256, 8 floats shared, one barrier: shuffles in the warps, then their sums. */
PUZZLE(dot)
{
    /* solution begin */
    shared<float> s = shared_floats_of(8);
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += x[i] * y[i];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) z[0] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
    /* solution end */
}

/* 18. z = x y, all (n, n).  A block of 256 for each tile of 16 x 16 of z, (n + 15) / 16 of them side by side; 512 floats
 * shared.  A tile of x and one of y are loaded together, each element once by one thread. */
PUZZLE(matrix_product)
{
    /* solution begin */
    shared<float> memory = shared_floats_of(512), a = {memory.p, 256}, b = {memory.p + 256, 256};
    int across = (n + 15) / 16, i = threadIdx.x / 16, j = threadIdx.x % 16;
    int r = (int)(blockIdx.x) / across * 16 + i, c = (int)(blockIdx.x) % across * 16 + j;
    float sum = 0;
    for (int k_0 = 0; k_0 < n; k_0 += 16) {
        __syncthreads();
        a[threadIdx.x] = r < n && k_0 + j < n ? x[r * n + k_0 + j] : 0;
        b[threadIdx.x] = k_0 + i < n && c < n ? y[(k_0 + i) * n + c] : 0;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += a[i * 16 + k] * b[k * 16 + j];
    }
    if (r < n && c < n) z[r * n + c] = sum;
    /* solution end */
}

/* 19. A ring of two buffers: z_t = sum over the rows r of x (n, 64) of (r + 1) x[r][7 t % 64].  One block of 64, 128 floats
 * shared, at most n barriers.  While all read one row, each thread fetches its element of the next. */
PUZZLE(two_buffers)
{
    /* solution begin */
    shared<float> s = shared_floats_of(128);
    int t = threadIdx.x;
    float sum = 0;
    s[t] = x[t];
    for (int r = 0; r < n; r++) {
        __syncthreads(); /* row r is there, and nobody reads row r - 1 any more */
        if (r + 1 < n) s[(r + 1) % 2 * 64 + t] = x[(r + 1) * 64 + t];
        sum += (float)(r + 1) * s[r % 2 * 64 + 7 * t % 64];
    }
    z[t] = sum;
    /* solution end */
}

/* 20. Softmax of each row of x (n, m), m <= 64.  A warp for each row; each element is loaded once. */
PUZZLE(softmax)
{
    /* solution begin */
    int lane = threadIdx.x, row = blockIdx.x * m;
    float a = lane < m ? x[row + lane] : -INFINITY, b = lane + 32 < m ? x[row + lane + 32] : -INFINITY;
    float largest = fmaxf(a, b), sum;
    for (int step = 16; step; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, step));
    a = expf(a - largest), b = expf(b - largest), sum = a + b;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (lane < m) z[row + lane] = a / sum;
    if (lane + 32 < m) z[row + lane + 32] = b / sum;
    /* solution end */
}

/* The judge's call: n[0] says which; then n, m, blocks, threads, floats of shared memory. */
void answer(const struct call *c)
{
    void (*const puzzle[])(global<const float>, global<const float>, global<float>, int, int) = {
        twice, add, stride, row_and_column, broadcast, stencil, block_sum, warp_sum, grid_sum, where_is_the_maximum,
        scan, warp_scan, column_sums, transpose, transpose_without_conflicts, histogram, dot, matrix_product,
        two_buffers, softmax};
    size_t blocks = (size_t)c->n[3], threads = (size_t)c->n[4], n_z = (size_t)c->n[8];
    for (size_t i = 0; i < n_z; i++) c->y[0][i] = 0;
    global<const float> x = {c->x[0], (size_t)c->n[6]}, y = {c->x[1], (size_t)c->n[7]};
    global<float> z = {c->y[0], n_z};
    launch((unsigned)blocks, (unsigned)threads, (size_t)c->n[5] * sizeof(float), puzzle[c->n[0]], x, y, z, (int)c->n[1],
           (int)c->n[2]);
    c->y[1][0] = (float)counted::n_loads, c->y[1][1] = (float)counted::n_pieces(), c->y[1][2] = counted::turns();
    c->y[1][3] = (float)counted::n_barriers / (float)(blocks * threads);
}
