/* registers.cu: softmax with one read and one write: the row in registers.
 *
 *     y_j = exp(x_j - m) / l,   m = max_j x_j,   l = sum_j exp(x_j - m)
 *
 * The threads of a row load all of it before they use the first element, and the row stays in
 * their registers between the sum and the division: 8192 floats, or 16384 16-bit elements. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "row_parts.h"

/* Threads in a block.  1024 of them must fit on a multiprocessor, so that enough loads
 * are under way: 64 registers a thread. */
template <int GROUP> constexpr int REGISTER_THREADS = GROUP > WARP ? GROUP : 128;

/* What a row is made of. */
enum shape {
    EDGES,  /* a head, aligned packs, a tail */
    PACKED, /* packs: cols is a multiple of WIDTH */
    SECTORS /* packs; the lanes of a group start at a sector of the memory, 32 bytes, so that
             * each of their accesses is made of whole sectors */
};

/* How many lanes the first pack of a row lies behind the start of a sector; 0 or less than that
 * where the group has no lanes left for it. */
template <class T, int WIDTH>
static __device__ inline int lanes_before(size_t element, int spare)
{
    constexpr int SECTOR = 32 / sizeof(T);
    return min((int)(element % SECTOR) / WIDTH, spare);
}

/* One row per GROUP threads; PACKS packs a thread, all loads before the first use.
 * GROUP <= 32 lanes of a warp, or a whole block.  Reads and writes each element once. */
template <class T, int WIDTH, int GROUP, int PACKS, enum shape SHAPE, bool LOG>
static __global__
__launch_bounds__(REGISTER_THREADS<GROUP>, 1024 / REGISTER_THREADS<GROUP>)
void registers_kernel(const T *x, T *y, size_t rows, int cols)
{
    constexpr int GROUPS = REGISTER_THREADS<GROUP> / GROUP;
    static_assert(GROUP >= WIDTH || SHAPE != EDGES, "a lane for each element of an edge");
    struct reduction &shared = dynamic_shared<struct reduction>();
    const int i = threadIdx.x % GROUP;
    const size_t row = block_number() * GROUPS + threadIdx.x / GROUP;
    const int n = row < rows ? cols : 0; /* a missing row takes part in the barriers */
    const struct parts r = SHAPE == EDGES ? parts_of<WIDTH>(row, n) : parts{0, n / WIDTH, 0};
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;
    int first = i; /* the thread's first pack; negative (as unsigned, large): before the row */
    if (SHAPE == SECTORS) first -= lanes_before<T, WIDTH>(row * cols, GROUP * PACKS - r.packs);

    const auto *in = (const struct pack<T, WIDTH> *)(x_i + r.head) + first;
    auto *out = (struct pack<T, WIDTH> *)(y_i + r.head) + first;

    constexpr bool TWOS = WIDTH == 8; /* pack_max() takes two elements at a time */
    struct pack<T, WIDTH> raw[PACKS];
    for (int k = 0; k < PACKS; k++)
        if ((unsigned)(first + k * GROUP) < (unsigned)r.packs)
            raw[k] = in[k * GROUP];
        else if (TWOS)
            for (int e = 0; e < WIDTH; e++) raw[k].e[e] = T(-INFINITY);
    float head = SHAPE == EDGES && i < r.head ? (float)x_i[i] : -INFINITY;
    float tail = SHAPE == EDGES && i < r.tail ? (float)x_i[n - r.tail + i] : -INFINITY;

    float v[PACKS][WIDTH];
    float m = fmaxf(head, tail);
    for (int k = 0; k < PACKS; k++) {
        const bool there = TWOS || (unsigned)(first + k * GROUP) < (unsigned)r.packs;
        for (int e = 0; e < WIDTH; e++) {
            v[k][e] = there ? (float)raw[k].e[e] : -INFINITY;
            if (!TWOS) m = fmaxf(m, v[k][e]);
        }
        if (TWOS) m = fmaxf(m, pack_max(raw[k]));
    }
    if constexpr (GROUP > WARP)
        m = block_max<GROUP>(m, shared.max);
    else
        m = lanes_max<GROUP>(m);

    struct state all = {m, 0.0f};
    const float shift = shift_of(m);
    if (SHAPE == EDGES) all.l = exp_minus(head, shift) + exp_minus(tail, shift);
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
        if ((unsigned)(first + k * GROUP) < (unsigned)r.packs) store(out + k * GROUP, v[k]);
    }
    if (SHAPE == EDGES && i < r.head) y_i[i] = T(normalise(f, head));
    if (SHAPE == EDGES && i < r.tail) y_i[n - r.tail + i] = T(normalise(f, tail));
}

template <class T, int WIDTH, int GROUP, int PACKS, enum shape SHAPE>
static void launch_registers(const struct problem *p, const struct arrays *a, const T *x,
                             T *y)
{
    const int threads = REGISTER_THREADS<GROUP>;
    const size_t per_block = threads / GROUP;
    auto *kernel = registers_kernel<T, WIDTH, GROUP, PACKS, SHAPE, false>;
    if (p->op == OP_LOGSOFTMAX) kernel = registers_kernel<T, WIDTH, GROUP, PACKS, SHAPE, true>;
    cudaLaunchConfig_t config = launch_of((p->rows + per_block - 1) / per_block, threads,
                                          sizeof(struct reduction), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, x, y, p->rows, (int)p->cols));
    CUDA_CHECK(cudaGetLastError());
}

/* A short row, up to EACH elements a thread, in the widest packs that divide it: the
 * instructions for a head and a tail would take longer than its loads. */
template <class T, int GROUP, int EACH, enum shape SHAPE>
static void short_row(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    if (FULL<T> == 8 && p->cols % 8 == 0)
        launch_registers<T, FULL<T>, GROUP, (EACH + 7) / 8, SHAPE>(p, a, x, y);
    else if (p->cols % 4 == 0)
        launch_registers<T, 4, GROUP, EACH / 4, SHAPE>(p, a, x, y);
    else if (p->cols % 2 == 0)
        launch_registers<T, 2, GROUP, EACH / 2, SHAPE>(p, a, x, y);
    else
        launch_registers<T, 1, GROUP, EACH, SHAPE>(p, a, x, y);
}

/* A longer one, in packs of 16 bytes. */
template <class T, int GROUP, int PACKS>
static void long_row(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    launch_registers<T, FULL<T>, GROUP, PACKS, EDGES>(p, a, x, y);
}

/* The group for a row of up to 128 elements.  From 65 on whole sectors pay; single elements
 * need twice the lanes to fill them. */
template <class T>
static void short_rows(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    constexpr bool SHORT = sizeof(T) == 2;
    const size_t n = p->cols;
    if (n <= 8) short_row<T, 1, 8, PACKED>(p, a, x, y);
    else if (n <= 32) short_row<T, 4, 8, PACKED>(p, a, x, y);
    else if (n <= 64) short_row<T, 8, 8, PACKED>(p, a, x, y);
    else if (!SHORT || n % 2) short_row<T, 16, 8, SECTORS>(p, a, x, y);
    else if (n <= 96) short_row<T, 8, 12, SECTORS>(p, a, x, y);
    else short_row<T, 8, 16, SECTORS>(p, a, x, y);
}

/* The group for a row of n elements, measured on an H200: 8 elements a thread while a
 * float row has up to 1024, then 16; twice that for 16-bit elements. */
template <class T>
static void registers_of(const struct problem *p, const struct arrays *a, const T *x,
                         T *y)
{
    constexpr int SHORT = sizeof(T) == 2;
    const size_t n = p->cols;
    if (n <= 128) short_rows<T>(p, a, x, y);
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
    SAFE_ON_GPU(75, ALL_TYPES),
    .refuses = registers_refuses,
    .cost = cost,
    .does = {{OP_SOFTMAX, registers}, {OP_LOGSOFTMAX, registers}},
    .on_gpu = GPU_TWIN(gpu_registers),
};
