/* spans.cu: softmax with one read and one write: short rows, many in a block.
 *
 * Rows that are no multiple of 16 bytes start anywhere.  Read one by one, they need narrow loads,
 * and a few elements before and after them loads of their own.  But many of them together, a span,
 * begin and end at 16 bytes: the copy engine brings the span to shared memory and takes it back.
 * In between a group of LANES lanes takes a row in words of 32 bits: a float, or two numbers of 16
 * bits.  A word at the end of a row may belong to two rows; then each takes its half. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "copy_engine.h"

#define SPAN_THREADS 256

struct span { uint64_t arrived; alignas(128) unsigned char bytes[1]; };

template <class T> constexpr int PER_WORD = 4 / sizeof(T);

/* The row in the words at `row`, in place, by LANES lanes, of which each has at most WORDS
 * words.
 *   odd       the row begins in the upper half of its first word
 *   odd_end   it ends in the lower half of its last one
 *   here      it is a row of the matrix; else nothing is written */
template <int LANES, int WORDS, class T, int N>
static __device__ inline void row_in_words(struct packed<T, N> *row, int words, bool odd,
                                           bool odd_end, bool here, int log)
{
    const int lane = threadIdx.x % LANES, last = lane + (WORDS - 1) * LANES;
    const bool no_low = odd && lane == 0, no_high = odd_end && last == words - 1;
    row += lane;
    struct packed<T, N> w[WORDS];
    for (int k = 0; k < WORDS; k++) {
        for (int e = 0; e < N; e++) w[k].e[e] = T(-INFINITY);
        const bool low = k > 0 || !no_low, high = k < WORDS - 1 || !no_high;
        if (k == WORDS - 1 && last >= words) continue;
        if (low && high) w[k] = row[k * LANES];
        else if (low) w[k].e[0] = row[k * LANES].e[0];
        else w[k].e[N - 1] = row[k * LANES].e[N - 1];
    }
    float v[WORDS][N], m = -INFINITY;
    for (int k = 0; k < WORDS; k++) m = fmaxf(m, pack_max(w[k]));
    struct state all = {lanes_max<LANES>(m), 0.0f};
    const float shift = shift_of(all.m);
    for (int k = 0; k < WORDS; k++)
        for (int e = 0; e < N; e++) {
            const float p = exp_minus((float)w[k].e[e], shift);
            all.l += p;
            v[k][e] = log ? (float)w[k].e[e] - shift : p;
        }
    all.l = lanes_sum<LANES>(all.l);
    const struct normaliser f = normaliser_of(all, log);
    for (int k = 0; k < WORDS; k++) {
        const bool low = k > 0 || !no_low, high = k < WORDS - 1 || !no_high;
        for (int e = 0; e < N; e++) v[k][e] = log ? v[k][e] - f.log_l : v[k][e] * f.scale;
        narrow(&w[k], v[k]);
        if (!here || (k == WORDS - 1 && last >= words)) continue;
        if (low && high) row[k * LANES] = w[k];
        else if (low) row[k * LANES].e[0] = w[k].e[0];
        else row[k * LANES].e[N - 1] = w[k].e[N - 1];
    }
}

/* Block b has rows b * rows_each, ..., in its shared memory.  The groups of a warp take rows
 * that lie `apart`, so that their words lie in different banks. */
template <int LANES, int WORDS, class T>
static __global__ __launch_bounds__(SPAN_THREADS)
void spans_kernel(const T *x, T *y, size_t rows, int cols, int rows_each, int apart, int log)
{
    struct span &shared = dynamic_shared<struct span>();
    T *span = (T *)shared.bytes;
    const size_t first = block_number() * rows_each;
    if (first >= rows) return;
    const int n = (int)min((size_t)rows_each, rows - first), elements = n * cols;
    const int whole = elements / FULL<T> * FULL<T>; /* at the end of x some may be left */
    const int rest = (int)threadIdx.x < elements - whole ? whole + threadIdx.x : 0;
    begin_load(span, x + first * cols, whole * sizeof(T), &shared.arrived);
    if (rest) span[rest] = x[first * cols + rest];
    end_load(&shared.arrived);

    constexpr int GROUPS = WARP / LANES, N = PER_WORD<T>; /* of a warp; of a word */
    const int group = threadIdx.x % WARP / LANES;
    for (int q = threadIdx.x / WARP; q < rows_each / GROUPS; q += SPAN_THREADS / WARP) {
        const int row = q % apart + apart * (group + q / apart * GROUPS), start = row * cols;
        row_in_words<LANES, WORDS>((struct packed<T, N> *)span + start / N, (cols + N - 1) / N,
                                   start % N, (start + cols) % N, row < n, log);
    }

    store_all(y + first * cols, span, whole * sizeof(T));
    if (rest) y[first * cols + rest] = span[rest];
}

/* The rows of a block: a power of two, because of which they are whole packs, in 12 to 24 KB. */
static int rows_each(const struct problem *p)
{
    int rows = 16;
    while (2 * rows * row_bytes(p) <= 24 << 10) rows *= 2;
    return rows;
}

template <int LANES, int WORDS, class T>
static void launch_spans(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    const int rows = rows_each(p), most = rows / (WARP / LANES);
    const int even = (int)(p->cols & -p->cols); /* the power of two that divides cols */
    const int lanes = LANES * PER_WORD<T>, apart = max(1, min(most, lanes / even));
    const size_t bytes = (sizeof(struct span) + rows * row_bytes(p) + 127) / 128 * 128;
    cudaLaunchConfig_t config = launch_of((p->rows + rows - 1) / rows, SPAN_THREADS, bytes,
                                          a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, spans_kernel<LANES, WORDS, T>, x, y, p->rows,
                                  (int)p->cols, rows, apart, (int)(p->op == OP_LOGSOFTMAX)));
    CUDA_CHECK(cudaGetLastError());
}

/* So few lanes that each has 5 to 8 words: what a row takes beside them is paid once a group. */
template <int LANES, class T>
static void spans_of(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    const int words = (int)p->cols / PER_WORD<T> + PER_WORD<T> - 1; /* that a row may touch */
    const int each = (words + LANES - 1) / LANES;
    if constexpr (LANES < WARP)
        if (each > 8) return spans_of<2 * LANES>(p, a, x, y);
    if (each <= 5) launch_spans<LANES, 5>(p, a, x, y);
    else if (each == 6) launch_spans<LANES, 6>(p, a, x, y);
    else if (each == 7) launch_spans<LANES, 7>(p, a, x, y);
    else launch_spans<LANES, 8>(p, a, x, y);
}

static const char *spans_refuses(const struct problem *p)
{
    if (p->cols <= 32 || row_bytes(p) > 1 << 10) return "rows of that length: 33 numbers to 1 KB";
    return p->dtype == F32 && p->cols % 4 == 0 ? "rows of floats in whole packs" : NULL;
}

static void spans(const struct problem *p, const struct arrays *a)
{
    with_type(p, a, [&](auto *x, auto *y) { spans_of<4>(p, a, x, y); });
}

GPU_VARIANT(gpu_spans) = {
    .name = "gpu_spans",
    .idea = "rows in one block",
    SAFE_ON_GPU(75, ALL_TYPES),
    .refuses = spans_refuses,
    .cost = traffic<2, 1>,
    .does = {{OP_SOFTMAX, spans}, {OP_LOGSOFTMAX, spans}},
    .on_gpu = GPU_TWIN(gpu_spans),
};
