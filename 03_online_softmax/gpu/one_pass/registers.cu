/* registers.cu: softmax with one read and one write: the row in registers.
 *
 *     y_j = exp(x_j - m) / l,   m = max_j x_j,   l = sum_j exp(x_j - m)
 *
 * The threads of a row load all of it before they use the first element, and the row stays in
 * their registers between the sum and the division: 4608 floats, or 9216 16-bit elements. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "row_parts.h"

/* The threads of a row: GROUP lanes of a warp or, with GROUP = BLOCK, a block with as many warps
 * as the row needs.  1024 threads must fit on a multiprocessor, so that enough loads are under
 * way: 64 registers a thread.  (80 with 5 packs.) */
enum { BLOCK = 0 };
template <int GROUP> constexpr int MOST_THREADS = GROUP == BLOCK ? 512 : 128;

/* PACKS packs a thread, all loads before the first use.  Reads and writes each element once.
 *   EDGES  a row has a head, aligned packs and a tail; else packs: cols is a multiple of WIDTH */
template <class T, int WIDTH, int GROUP, int PACKS, bool EDGES, bool LOG>
static __global__
__launch_bounds__(MOST_THREADS<GROUP>, (PACKS > 4 ? 768 : 1024) / MOST_THREADS<GROUP>)
void registers_kernel(const T *x, T *y, size_t rows, int cols)
{
    static_assert(GROUP == BLOCK || GROUP >= WIDTH || !EDGES,
                  "a lane for each element of an edge");
    struct reduction &shared = dynamic_shared<struct reduction>();
    constexpr bool ALONE = GROUP == BLOCK; /* in its block */
    const int group = ALONE ? blockDim.x : GROUP, i = ALONE ? threadIdx.x : threadIdx.x % group;
    const size_t row = ALONE ? block_number()
                             : block_number() * (MOST_THREADS<GROUP> / group) + threadIdx.x / group;
    const int n = row < rows ? cols : 0; /* a missing row takes part in the barriers */
    const struct parts r = EDGES ? parts_of<WIDTH>(row, n) : parts{0, n / WIDTH, 0};
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;
    const auto *in = (const struct packed<T, WIDTH> *)(x_i + r.head) + i;
    auto *out = (struct packed<T, WIDTH> *)(y_i + r.head) + i;

    struct packed<T, WIDTH> raw[PACKS];
    for (int k = 0; k < PACKS; k++)
        if (i + k * group < r.packs)
            raw[k] = in[k * group];
        else
            for (int e = 0; e < WIDTH; e++) raw[k].e[e] = T(-INFINITY);
    const float head = EDGES && i < r.head ? (float)x_i[i] : -INFINITY;
    const float tail = EDGES && i < r.tail ? (float)x_i[n - r.tail + i] : -INFINITY;

    float m = fmaxf(head, tail);
    for (int k = 0; k < PACKS; k++) m = fmaxf(m, pack_max(raw[k]));
    if constexpr (ALONE)
        m = block_max(m, shared.max);
    else
        m = lanes_max<GROUP>(m);

    float v[PACKS][WIDTH];
    struct state all = {m, 0.0f};
    const float shift = shift_of(m);
    if (EDGES) all.l = exp_minus(head, shift) + exp_minus(tail, shift);
    for (int k = 0; k < PACKS; k++)
        for (int e = 0; e < WIDTH; e++) {
            const float p = exp_minus((float)raw[k].e[e], shift);
            all.l += p;
            v[k][e] = LOG ? (float)raw[k].e[e] - shift : p;
        }
    if constexpr (ALONE)
        all.l = block_sum(all.l, shared.sum);
    else
        all.l = lanes_sum<GROUP>(all.l);

    const struct normaliser f = normaliser_of(all, LOG);
    for (int k = 0; k < PACKS; k++) {
        for (int e = 0; e < WIDTH; e++)
            v[k][e] = LOG ? v[k][e] - f.log_l : v[k][e] * f.scale;
        if (i + k * group < r.packs) store(out + k * group, v[k]);
    }
    if (EDGES && i < r.head) y_i[i] = T(normalise(f, head));
    if (EDGES && i < r.tail) y_i[n - r.tail + i] = T(normalise(f, tail));
}

/* The warps of a block in which a thread has `each` of the packs of a row. */
static int warps_for(size_t packs, int each)
{
    return (int)(packs + each * WARP - 1) / (each * WARP);
}

template <class T, int WIDTH, int GROUP, int PACKS, bool EDGES>
static void launch_registers(const struct problem *p, const struct arrays *a, const T *x,
                             T *y)
{
    const int threads = GROUP == BLOCK ? WARP * warps_for(p->cols / WIDTH, PACKS)
                                       : MOST_THREADS<GROUP>;
    const size_t per_block = threads / (GROUP == BLOCK ? threads : GROUP);
    auto *kernel = registers_kernel<T, WIDTH, GROUP, PACKS, EDGES, false>;
    if (p->op == OP_LOGSOFTMAX) kernel = registers_kernel<T, WIDTH, GROUP, PACKS, EDGES, true>;
    cudaLaunchConfig_t config = launch_of((p->rows + per_block - 1) / per_block, threads,
                                          sizeof(struct reduction), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, x, y, p->rows, (int)p->cols));
}

/* A row in packs of WIDTH elements. */
template <class T, int WIDTH, int GROUP, int PACKS>
static void row_of(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    if (p->cols % WIDTH) launch_registers<T, WIDTH, GROUP, PACKS, true>(p, a, x, y);
    else launch_registers<T, WIDTH, GROUP, PACKS, false>(p, a, x, y);
}

/* A row of up to 64 elements, 8 a thread, in the widest packs that divide it: the instructions
 * for a head and a tail would take longer than its loads. */
template <class T, int GROUP>
static void short_row(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    if (FULL<T> == 8 && p->cols % 8 == 0)
        launch_registers<T, FULL<T>, GROUP, 1, false>(p, a, x, y);
    else if (p->cols % 4 == 0)
        launch_registers<T, 4, GROUP, 2, false>(p, a, x, y);
    else if (p->cols % 2 == 0)
        launch_registers<T, 2, GROUP, 4, false>(p, a, x, y);
    else
        launch_registers<T, 1, GROUP, 8, false>(p, a, x, y);
}

/* The group for a row, measured on an H200.  Idle lanes take as long as busy ones, and what a
 * row costs beside its packs is shared by the rows of a warp: as few lanes as fit. */
template <class T>
static void registers_of(const struct problem *p, const struct arrays *a, const T *x,
                         T *y)
{
    constexpr int W = FULL<T>;
    const size_t n = p->cols, packs = n / W;
    if (n <= 8) short_row<T, 1>(p, a, x, y);
    else if (n <= 32) short_row<T, 4>(p, a, x, y);
    else if (n <= 64) short_row<T, 8>(p, a, x, y);
    else if (packs <= 24) row_of<T, W, 8, 3>(p, a, x, y);
    else if (packs <= 32) row_of<T, W, 16, 2>(p, a, x, y);
    else if (packs <= 48) row_of<T, W, 16, 3>(p, a, x, y);
    else if (packs <= 64) row_of<T, W, 32, 2>(p, a, x, y);
    else if (packs <= 80) row_of<T, W, 16, 5>(p, a, x, y);
    else if (packs <= 96) row_of<T, W, 32, 3>(p, a, x, y);
    else if (packs <= 128) row_of<T, W, 32, 4>(p, a, x, y);
    else if (packs <= 160) row_of<T, W, 32, 5>(p, a, x, y);
    else if (packs <= 288 && 3 * warps_for(packs, 3) < 4 * warps_for(packs, 4))
        row_of<T, W, BLOCK, 3>(p, a, x, y);
    else row_of<T, W, BLOCK, 4>(p, a, x, y);
}

/* Longer rows leave a multiprocessor fewer blocks than it needs to hide their waits. */
static const char *registers_refuses(const struct problem *p)
{
    return row_bytes(p) > 18 << 10 ? "rows of more than 18 KB" : NULL;
}

static void registers(const struct problem *p, const struct arrays *a)
{
    with_type(p, a, [&](auto *x, auto *y) { registers_of(p, a, x, y); });
}

GPU_VARIANT(gpu_registers, "row in registers",
    SAFE_ON_GPU(75, ALL_TYPES), .refuses = registers_refuses, .cost = traffic<2, 1>,
    .does = {{OP_SOFTMAX, registers}, {OP_LOGSOFTMAX, registers}});
