/* split_kv_f32.cu: few queries and many keys in float32, without tensor cores.
 *
 * The parts, their merge and the circular buffer of copies are those of split_kv.cu.  Inside
 * a warp works rung 1's fold: for the scores lane j has key j of 32, for the output it has
 * the columns j, j + 32, ..., and p goes from the one to the other through shared memory.
 *
 * What a buffer holds is a square, 32 keys by 32 columns (square.h): first those of K, each
 * adding its columns to the scores, then those of V, each giving 32 columns of the output.
 *
 * A multiplication costs less than reading its number from main memory, up to about 16
 * rows (queries of all heads that share a key head) on a GPU of today.  A tile has 1 or
 * 8 of them; further tiles find K and V in the L2 cache.
 *
 * A call that is not plain (kernel_call.h) has one more table: lane j looks up where key j of a tile
 * lies, and the copies ask that lane.  So a page may have any size.
 *
 * head_dim and head_dim_v up to the largest of HEAD_DIMS; all features of harness.h; at most
 * 32 queries for a key head.  Before sm_80 a copy waits for its data.  A masked key is
 * multiplied by p = 0: V must not hold NaN or inf there. */
#include "split_kv.h"

#include <algorithm>

#include "split_kv/square.h"

#ifndef HEAD_DIMS
#define HEAD_DIMS 64, 128
#endif

constexpr int MOST_ROWS = 32;

/* What a warp has in shared memory: a circular buffer of SLOTS squares, later its state. */
template <int ROWS, int D, int SLOTS> struct buffer {
    union {
        alignas(128) float slot[SLOTS][KEYS * SIDE];
        float o[ROWS][D];
    };
    alignas(16) float p[ROWS][KEYS]; /* exp(s - m) of its tile */
    float m[ROWS], l[ROWS];
};

/* Shared memory of a block: the first of its warps' buffers stands here. */
template <int ROWS, int D, int SLOTS> struct memory {
    alignas(16) float q[ROWS][D];
    struct buffer<ROWS, D, SLOTS> buffer;
    static size_t bytes(int warps)
    {
        return sizeof(struct memory) + (warps - 1) * sizeof(buffer);
    }
};

/* capped scale s + bias of the lane's key j for row `row` of the group, -inf where the key is
 * masked. */
static __forceinline__ __device__ float masked(float s, const struct attention &x,
                                               const struct call &call,
                                               const struct head_group &g, int row, int j,
                                               int end)
{
    int query = row % g.seq.seqlen_q;
    const struct key_range32 seen = mask_keys(g.seq.mask, query);
    if (j >= min(end, seen.end) || j < seen.first) return -INFINITY;
    s *= x.scale;
    if (call.softcap > 0.0f) s = capped(s, call.softcap);
    if (!x.bias || row >= g.n_rows) return s;
    float bias = bias_row(call, x, g, row)[j];
    return bias == -INFINITY ? bias : s + bias;
}

/* What a warp keeps of its keys: the state of ROWS rows.  o: this lane's columns; l: the
 * share of the lane's keys. */
template <int ROWS, int D> struct state {
    float o[D / 32][ROWS], m[ROWS], l[ROWS];
};

/* Takes the scores of 32 keys, one a lane, into m and l; p = exp(s - m). */
template <int ROWS, int D>
static __forceinline__ __device__ void softmax_step(struct state<ROWS, D> &f,
                                                    const float (&s)[ROWS],
                                                    float (*p)[KEYS])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float m_new = s[r];
#pragma unroll
        for (int flip = 16; flip; flip /= 2)
            m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, flip));
        if (m_new > f.m[r]) { /* for all lanes alike */
            float factor = __expf(f.m[r] - m_new);
            f.m[r] = m_new;
            f.l[r] *= factor;
#pragma unroll
            for (int c = 0; c < D / 32; c++) f.o[c][r] *= factor;
        }
        /* while all keys were masked, m is -inf, and s - m would be NaN */
        float x = __expf(s[r] - (f.m[r] == -INFINITY ? 0.0f : f.m[r]));
        p[r][threadIdx.x % 32] = x;
        f.l[r] += x;
    }
    __syncwarp(); /* p is complete */
}

/* Puts the warp's state where all warps find it, relative to the block's maximum. */
template <int WARPS, int ROWS, int D, int SLOTS>
static __forceinline__ __device__ void publish(struct buffer<ROWS, D, SLOTS> *buffers,
                                               struct state<ROWS, D> &f)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0)
        for (int r = 0; r < ROWS; r++) buffers[warp].m[r] = f.m[r];
    __syncthreads(); /* all maxima are there, and the buffer is free */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float factor = factor_of(f.m[r], block_max<WARPS>(buffers, r));
#pragma unroll
        for (int flip = 16; flip; flip /= 2)
            f.l[r] += __shfl_xor_sync(~0u, f.l[r], flip);
        if (lane == 0) buffers[warp].l[r] = factor * f.l[r];
#pragma unroll
        for (int c = 0; c < D / 32; c++)
            buffers[warp].o[r][32 * c + lane] = factor * f.o[c][r];
    }
}

/* Block (i, part, tile) as in split_kv.cu: key head i, the part's keys, ROWS rows.  Each
 * warp's items are the D / 32 squares of K and of V of its tile, then of its next. */
template <int ROWS, int D, int SLOTS, int WARPS, bool PLAIN>
static __global__ void __launch_bounds__(32 * WARPS, MOST_WARPS / WARPS)
    split_kv_f32_kernel(const struct attention x, const struct call given,
                        const struct parts parts)
{
    const struct call call = known_call<PLAIN>(given);
    static_assert(D % 32 == 0, "HEAD_DIMS: multiples of 32, the columns of a square");
    constexpr int ACROSS = D / 32;
    dependents_may_start(); /* merge_parts_kernel: it waits for the end of this kernel */
    auto &shared = dynamic_shared<struct memory<ROWS, D, SLOTS>>();
    struct buffer<ROWS, D, SLOTS> *buffers = &shared.buffer; /* one for each warp */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = blockIdx.z * ROWS;
    const struct head_group g = group_of(call, x, blockIdx.x);
    if (row0 >= g.n_rows) return; /* a shorter sequence than others */
    const struct key_range32 seen = some_row_sees(g.seq.mask, 0, g.seq.seqlen_q);
    const float *k = first_key(call, g, (const float *)x.k, call.k);
    const float *v = first_key(call, g, (const float *)x.v, call.v);
    const int begin = seen.first + blockIdx.y * parts.keys;
    const int end = min(seen.end, begin + parts.keys);
    int j0 = begin + warp * KEYS; /* first key of this warp's tile */

    const bool k_by_16 = (x.head_dim | call.k.batch | call.k.head | call.k.row) % 4 == 0;
    const bool v_by_16 = (x.head_dim_v | call.v.batch | call.v.head | call.v.row) % 4 == 0;

    /* The lane's key of the tile that is copied, and of the next: no copy waits for the table. */
    struct key_place place = {0, 0}, next_place = place_of_key(call, g, j0 + lane, end);
    auto start = [&](int item, int slot) { /* item counts from the tile at j0 */
        const int j = j0 + item / (2 * ACROSS) * WARPS * KEYS, c0 = item % ACROSS * SIDE;
        const bool of_k = item % (2 * ACROSS) < ACROSS;
        if (item % (2 * ACROSS) == 0) {
            place = next_place;
            next_place = place_of_key(call, g, j + WARPS * KEYS + lane, end);
        }
        const float *array = of_k ? k : v;
        const int row_step = of_k ? call.k.row : call.v.row;
        const ptrdiff_t page_step = of_k ? call.k.batch : call.v.batch;
        auto key_at = [&](int r) {
            if (!call.page_table) return array + (ptrdiff_t)(j + r) * row_step;
            return array + __shfl_sync(~0u, place.page, r) * page_step +
                   (ptrdiff_t)__shfl_sync(~0u, place.row, r) * row_step;
        };
        start_square(buffers[warp].slot[slot], key_at, of_k ? k_by_16 : v_by_16, end - j, c0,
                     of_k ? x.head_dim : x.head_dim_v);
        copies_commit();
    };
    for (int i = 0; i < SLOTS - 1; i++) start(i, i);

    const int n_rows = min(ROWS, g.n_rows - row0);
    for (int i = threadIdx.x; i < ROWS * D; i += 32 * WARPS) {
        int r = i / D, c = i % D;
        const float *q = (const float *)x.q + q_element(call, x, g, row0 + min(r, n_rows - 1));
        shared.q[r][c] = r < n_rows && c < x.head_dim ? q[c] : 0.0f;
    }
    struct state<ROWS, D> f = {};
    for (int r = 0; r < ROWS; r++) f.m[r] = -INFINITY;
    __syncthreads(); /* q is complete */

    int slot = 0;
    auto next = [&](int item) { /* waits for the slot's data, starts an item, moves on */
        copies_wait<SLOTS - 2>();
        __syncwarp();
        start(item + SLOTS - 1, slot == 0 ? SLOTS - 1 : slot - 1);
        const float *square = buffers[warp].slot[slot];
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
        return square;
    };
    for (; j0 < end; j0 += WARPS * KEYS) {
        float s[ROWS] = {};
#pragma unroll
        for (int c = 0; c < ACROSS; c++)
            add_scores<ROWS, D>(s, &shared.q[0][SIDE * c], next(c));
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            s[r] = masked(s[r], x, call, g, row0 + r, j0 + lane, end);
        softmax_step<ROWS, D>(f, s, buffers[warp].p);
#pragma unroll
        for (int c = 0; c < ACROSS; c++)
            add_values<ROWS>(f.o[c], buffers[warp].p, next(ACROSS + c));
    }
    copies_wait<0>();
    publish<WARPS>(buffers, f);
    merge_warps<F32, WARPS>(buffers, x, call, parts, g, row0, n_rows);
}

/* Rows of a tile: one is enough without groups.  Calls that are not plain have one kernel. */
static int rows_of(const struct problem *p)
{
    return rows_of_group(p) == 1 && is_plain(p) ? 1 : 8;
}

template <int ROWS, int D, int SLOTS, int WARPS, bool PLAIN>
static void launch_with(struct parts parts, const struct problem *p,
                        const struct arrays *a)
{
    launch_parts<F32>(split_kv_f32_kernel<ROWS, D, SLOTS, WARPS, PLAIN>,
                      memory<ROWS, D, SLOTS>::bytes(WARPS), ROWS, parts, p, a);
}

/* A deep buffer where shared memory is large enough for it, else (sm_75) a short one. */
template <int ROWS, int D, bool PLAIN>
static void launch(struct parts parts, const struct problem *p, const struct arrays *a)
{
    bool deep = memory<ROWS, D, 5>::bytes(4) <= shared_memory_limit();
    if constexpr (PLAIN)
        if (parts.warps == MOST_WARPS)
            return launch_with<ROWS, D, 5, MOST_WARPS, PLAIN>(parts, p, a);
    if (deep) launch_with<ROWS, D, 5, 4, PLAIN>(parts, p, a);
    else launch_with<ROWS, D, 3, 4, PLAIN>(parts, p, a);
}

static struct parts plan(const struct problem *p)
{
    constexpr int LARGEST = std::max({HEAD_DIMS});
    struct parts parts = parts_of(p, rows_of(p), memory<8, LARGEST, 5>::bytes(MOST_WARPS));
    if (!is_plain(p)) parts.warps = 4;
    return parts;
}

template <int... D>
static void launch_one_of(const struct problem *p, const struct arrays *a)
{
    int d = head_dim_of<D...>(p);
    struct parts parts = plan(p);
    if (!is_plain(p)) ((d == D ? launch<8, D, false>(parts, p, a) : (void)0), ...);
    else if (rows_of(p) == 1) ((d == D ? launch<1, D, true>(parts, p, a) : (void)0), ...);
    else ((d == D ? launch<8, D, true>(parts, p, a) : (void)0), ...);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    launch_one_of<HEAD_DIMS>(p, a);
}

static size_t workspace(const struct problem *p) { return workspace_of(p, plan(p)); }

static const char *picks(const struct problem *p) { return split_picks(plan(p)); }

static const char *refuses(const struct problem *p)
{
    if (!head_dim_of<HEAD_DIMS>(p)) return "a head_dim beyond those it is compiled for (HEAD_DIMS)";
    return split_refuses(p, MOST_ROWS);
}

/* K and V once for every 8 queries of a key head; parts are small. */
static struct cost cost(const struct problem *p) { return split_cost(p, 8); }

GPU_VARIANT(split_kv_f32, "the same in fp32",
    SPLIT_VARIANT(75, TYPE(F32)));
