/* registers.cu: softmax with one read and one write: the row in registers.
 *
 *     y_j = exp(x_j - m) / l,   m = max_j x_j,   l = sum_j exp(x_j - m)
 *
 * The threads of a row load all of it before they use the first element, and the row stays in
 * their registers between the sum and the division: 8192 floats, or 16384 16-bit elements.
 *
 * x and y [rows, cols] are 16-byte aligned and do not overlap; any row may start anywhere.  A
 * row that is all -inf gives 0 (logsoftmax: -inf), a row with NaN or +inf gives NaN. */
#include "stage.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "row_parts.h"

/* Threads in a block.  1024 of them must fit on a multiprocessor, so that enough loads
 * are under way: 64 registers a thread. */
template <int GROUP> constexpr int REGISTER_THREADS = GROUP > WARP ? GROUP : 128;

/* One row per GROUP threads; PACKS packs a thread, all loads before the first use.
 * GROUP <= 32 lanes of a warp, or a whole block.  EDGES: rows may have a head and a tail; if
 * not, cols is a multiple of WIDTH.  Reads and writes each element once. */
template <class T, int WIDTH, int GROUP, int PACKS, bool EDGES, bool LOG>
static __global__
__launch_bounds__(REGISTER_THREADS<GROUP>, 1024 / REGISTER_THREADS<GROUP>)
void registers_kernel(const T *x, T *y, size_t rows, int cols)
{
    constexpr int GROUPS = REGISTER_THREADS<GROUP> / GROUP;
    static_assert(GROUP >= WIDTH || !EDGES, "a lane for each element of an edge");
    struct reduction &shared = dynamic_shared<struct reduction>();
    const int i = threadIdx.x % GROUP;
    const size_t row = block_number() * GROUPS + threadIdx.x / GROUP;
    const int n = row < rows ? cols : 0; /* a missing row takes part in the barriers */
    const struct parts r = EDGES ? parts_of<WIDTH>(row, n) : parts{0, n / WIDTH, 0};
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;

    struct pack<T, WIDTH> raw[PACKS];
    for (int k = 0; k < PACKS; k++)
        if (i + k * GROUP < r.packs)
            raw[k] = ((const struct pack<T, WIDTH> *)(x_i + r.head))[i + k * GROUP];
    float head = EDGES && i < r.head ? (float)x_i[i] : -INFINITY;
    float tail = EDGES && i < r.tail ? (float)x_i[n - r.tail + i] : -INFINITY;

    float v[PACKS][WIDTH];
    float m = fmaxf(head, tail);
    for (int k = 0; k < PACKS; k++)
        for (int e = 0; e < WIDTH; e++) {
            v[k][e] = i + k * GROUP < r.packs ? (float)raw[k].e[e] : -INFINITY;
            m = fmaxf(m, v[k][e]);
        }
    if constexpr (GROUP > WARP)
        m = block_max<GROUP>(m, shared.max);
    else
        m = lanes_max<GROUP>(m);

    struct state all = {m, 0.0f};
    const float shift = shift_of(m);
    if (EDGES) all.l = exp_minus(head, shift) + exp_minus(tail, shift);
    for (int k = 0; k < PACKS; k++)
        for (int e = 0; e < WIDTH; e++) {
            const float p = exp_minus(v[k][e], shift);
            all.l += p;
            v[k][e] = LOG ? v[k][e] - shift : p;
        }
    if constexpr (GROUP > WARP)
        all.l = block_sum<GROUP>(all.l, shared.sum);
    else
        all.l = lanes_sum<GROUP>(all.l);

    const struct normaliser f = normaliser_of(all, LOG);
    for (int k = 0; k < PACKS; k++) {
        for (int e = 0; e < WIDTH; e++)
            v[k][e] = LOG ? v[k][e] - f.log_l : v[k][e] * f.scale;
        if (i + k * GROUP < r.packs)
            store((struct pack<T, WIDTH> *)(y_i + r.head) + i + k * GROUP, v[k]);
    }
    if (EDGES && i < r.head) y_i[i] = T(normalise(f, head));
    if (EDGES && i < r.tail) y_i[n - r.tail + i] = T(normalise(f, tail));
}

template <class T, int WIDTH, int GROUP, int PACKS, bool EDGES>
static void launch_registers(const struct problem *p, const struct arrays *a, const T *x,
                             T *y)
{
    const int threads = REGISTER_THREADS<GROUP>;
    const size_t per_block = threads / GROUP;
    auto *kernel = registers_kernel<T, WIDTH, GROUP, PACKS, EDGES, false>;
    if (p->op == OP_LOGSOFTMAX) kernel = registers_kernel<T, WIDTH, GROUP, PACKS, EDGES, true>;
    cudaLaunchConfig_t config = launch_of((p->rows + per_block - 1) / per_block, threads,
                                          sizeof(struct reduction), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, x, y, p->rows, (int)p->cols));
    CUDA_CHECK(cudaGetLastError());
}

/* A short row, EACH elements a thread, in the widest packs that divide it: the instructions for
 * a head and a tail would take longer than its loads. */
template <class T, int GROUP, int EACH>
static void short_row(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    if (FULL<T> == 8 && p->cols % 8 == 0)
        launch_registers<T, FULL<T>, GROUP, EACH / FULL<T>, false>(p, a, x, y);
    else if (p->cols % 4 == 0)
        launch_registers<T, 4, GROUP, EACH / 4, false>(p, a, x, y);
    else if (p->cols % 2 == 0)
        launch_registers<T, 2, GROUP, EACH / 2, false>(p, a, x, y);
    else
        launch_registers<T, 1, GROUP, EACH, false>(p, a, x, y);
}

/* A longer one, in packs of 16 bytes. */
template <class T, int GROUP, int PACKS>
static void long_row(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    launch_registers<T, FULL<T>, GROUP, PACKS, true>(p, a, x, y);
}

/* The group for a row of n elements, measured on an H200: 8 elements a thread while a
 * float row has up to 1024, then 16; twice that for 16-bit elements. */
template <class T>
static void registers_of(const struct problem *p, const struct arrays *a, const T *x,
                         T *y)
{
    constexpr int SHORT = sizeof(T) == 2;
    const size_t n = p->cols;
    if (n <= 8) short_row<T, 1, 8>(p, a, x, y);
    else if (n <= 32) short_row<T, 4, 8>(p, a, x, y);
    else if (n <= 64) short_row<T, 8, 8>(p, a, x, y);
    else if (n <= 128) short_row<T, 8, 16>(p, a, x, y);
    else if (n <= 256) long_row<T, SHORT ? 16 : 32, 2>(p, a, x, y);
    else if (n <= 512) long_row<T, SHORT ? 32 : 64, 2>(p, a, x, y);
    else if (n <= 1024) long_row<T, SHORT ? 32 : 128, SHORT ? 4 : 2>(p, a, x, y);
    else if (n <= 2048) long_row<T, SHORT ? 64 : 128, 4>(p, a, x, y);
    else if (n <= 4096) long_row<T, SHORT ? 128 : 256, 4>(p, a, x, y);
    else if (n <= 8192) long_row<T, SHORT ? 256 : 512, 4>(p, a, x, y);
    else if constexpr (SHORT) long_row<T, 512, 4>(p, a, x, y);
}

static const char *registers_refuses(const struct problem *p)
{
    if (p->dtype == F32) return p->cols > 8192 ? "rows of more than 8192 floats" : NULL;
    return p->cols > 16384 ? "rows of more than 16384 elements" : NULL;
}

static void registers(const struct problem *p, const struct arrays *a)
{
    with_type(p, a, [&](auto *x, auto *y) { registers_of(p, a, x, y); });
}

/* 1 read, 1 write. */
static struct cost cost(const struct problem *p)
{
    return traffic(p, 2, 1);
}

GPU_VARIANT(gpu_registers) = {
    .name = "gpu_registers",
    .idea = "row in registers",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = registers_refuses,
    .cost = cost,
    .does = {{OP_SOFTMAX, registers}, {OP_LOGSOFTMAX, registers}},
    .on_gpu = GPU_TWIN(gpu_registers),
};
