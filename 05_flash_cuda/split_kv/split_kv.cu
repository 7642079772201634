/* split_kv.cu: few queries and many keys (one new token against a long past).
 *
 *     part i of the keys gives (m_i, l_i, o_i);    m = max_i m_i,  w_i = exp(m_i - m)
 *     o = sum_i w_i o_i / sum_i w_i l_i,    lse = m + log sum_i w_i l_i
 *
 * Rung 6 gives a head to one block per 128 queries.  With one query most of the GPU would
 * be idle, and most of each product would be padding.  But attention is a fold in a monoid
 * (stage 4): keys may be cut into parts, folded by different blocks, and the parts
 * merged.  Time is what it takes to read K and V once, so everything serves to keep
 * memory busy:
 *   - the queries of all heads that share a key head (GQA) are the rows of one tile of
 *     16, so K and V are read once for the group
 *   - each warp folds its own keys, 16 at a time, and has its own circular buffer of copies
 *     in flight; no barrier until the warps' states are merged at the end
 *   - the number of parts fills the multiprocessors; a second small kernel merges parts
 *     (split_kv.h)
 *
 * A part without keys has m = -inf and counts for nothing.  bfloat16 and float16;
 * head_dim and head_dim_v multiples of 8 up to 256; at most 64 queries for a key head.
 * A kernel for keys and values of 8 bits differs in where a lane finds columns (codes.h). */
#include "split_kv.h"
#include "split_kv/slot.h"

constexpr int ROWS = 16, MOST_ROWS = 64;

/* What a warp has in shared memory: a circular buffer of slots, item 2 t being tile t of K, item
 * 2 t + 1 tile t of V, 24 KB whatever D and KV; later its state.  A tile has 16 keys; of codes twice
 * as many while registers are left: a maximum, a barrier and a copy's addresses serve for more. */
template <enum dtype KV, int D> struct buffer {
    using element = std::conditional_t<IS_CODE<KV>, uint8_t, uint16_t>;
    static constexpr int HALVES = IS_CODE<KV> && D <= 128 ? 2 : 1, TILE = HALVES * KEYS;
    static constexpr int SLOTS = 1536 / sizeof(element) / D / HALVES;
    static constexpr int HALF = KEYS * D * sizeof(element) / 2;
    union {
        alignas(128) uint16_t slot[SLOTS][HALVES * HALF];
        float o[ROWS][D + 4];
    };
    float m[ROWS], l[ROWS];
};

template <int D> struct state {
    float o[D / 8][4], m[2], l[2]; /* l: this lane's part */
};

/* The queries of a tile, rows row0 ... of the group, as A fragments; what lies beyond its rows
 * and columns is zeros. */
template <enum dtype KV, int D>
static __forceinline__ __device__ void load_q(uint32_t (&a)[D / 16][4],
                                              const struct attention &x,
                                              const struct call &call, const struct head_group &g,
                                              int row0)
{
    const int first = row0 + threadIdx.x % 32 / 4;
    const uint16_t *q[2] = {x.q, x.q};
    for (int r = 0; r < 2; r++)
        if (first + 8 * r < g.n_rows) q[r] += q_element(call, x, g, first + 8 * r);
#pragma unroll
    for (int d = 0; d < D / 16; d++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int column = column_of_q<KV>(d, r);
            a[d][r] = 0;
            if (first + 8 * (r % 2) < g.n_rows && column < x.head_dim)
                a[d][r] = *(const uint32_t *)(q[r % 2] + column);
        }
}

/* s = capped scale s + bias, -inf where the key is masked.
 *   row0  first row of the tile      j0  first key      end  of the part's keys
 *   open  the keys that all rows see      scale  of the lane's rows */
template <int N>
static __forceinline__ __device__ void
scale_and_mask(float (&s)[N][4], const struct attention &x, const struct call &call,
               const struct head_group &g, int row0, int j0, int end, struct key_range32 open,
               const float (&scale)[2])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[n][c] = __fmul_rn(s[n][c], scale[c / 2]); /* never fused */
    if (call.softcap > 0.0f) cap_scores(s, call.softcap);
    if (!x.bias && j0 >= open.first && j0 + 8 * N <= min(end, open.end)) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = row0 + threadIdx.x % 32 / 4 + 8 * r, query = row % g.seq.seqlen_q;
        const struct key_range32 seen = mask_keys(g.seq.mask, query);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) { /* the row's keys that this lane has */
            int key = j0 + 8 * (i / 2) + 2 * (threadIdx.x % 4) + i % 2;
            float &score = s[i / 2][2 * r + i % 2], bias = 0.0f;
            bool is_masked = key >= min(end, seen.end) || key < seen.first;
            if (x.bias && !is_masked && row < g.n_rows)
                bias = bias_row(call, x, g, row)[key];
            score = is_masked || bias == -INFINITY ? -INFINITY : score + bias;
        }
    }
}

/* Folds a tile's scores into m, l and o, and turns them into P (rung 3): at most exp(above). */
template <int D, int N>
static __forceinline__ __device__ void softmax_step(struct state<D> &f, float (&s)[N][4],
                                                    float above = 0.0f)
{
    float m_new[2];
    for (int r = 0; r < 2; r++) {
        float x = -INFINITY;
#pragma unroll
        for (int n = 0; n < N; n++)
            x = fmaxf(x, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        m_new[r] = fmaxf(f.m[r], x - above);
    }
    /* Mostly no lane has a larger one.  Else the row's maximum is needed. */
    if (__any_sync(~0u, m_new[0] > f.m[0] || m_new[1] > f.m[1]))
        for (int r = 0; r < 2; r++) {
            m_new[r] = quad_max(m_new[r]);
            float alpha = m_new[r] > f.m[r] ? __expf(f.m[r] - m_new[r]) : 1.0f;
            f.l[r] = __fmul_rn(f.l[r], alpha);
            f.m[r] = m_new[r];
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                f.o[n][2 * r] *= alpha;
                f.o[n][2 * r + 1] *= alpha;
            }
        }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float base = f.m[c / 2] == -INFINITY ? 0.0f : f.m[c / 2];
            f.l[c / 2] += s[n][c] = exp2_fast(LOG2E * (s[n][c] - base));
        }
}

/* Puts the warp's state where all warps find it, relative to the block's maximum.
 *   v_scale  that of the values */
template <enum dtype KV, int D, int WARPS>
static __forceinline__ __device__ void publish(struct buffer<KV, D> *buffers, struct state<D> &f,
                                               float v_scale)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane % 4 == 0)
        for (int r = 0; r < 2; r++) buffers[warp].m[lane / 4 + 8 * r] = f.m[r];
    __syncthreads(); /* all maxima are there, and the buffer is free */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = lane / 4 + 8 * r;
        float factor = factor_of(buffers[warp].m[row], block_max<WARPS>(buffers, row));
        f.l[r] = quad_sum(f.l[r]);
        if (lane % 4 == 0) buffers[warp].l[row] = factor * f.l[r];
        factor *= v_scale;
#pragma unroll
        for (int n = 0; n < D / 8; n += 2)
            store_row_of_o<KV>(
                buffers[warp].o[row], n,
                make_float2(factor * f.o[n][2 * r], factor * f.o[n][2 * r + 1]),
                make_float2(factor * f.o[n + 1][2 * r], factor * f.o[n + 1][2 * r + 1]));
    }
}

/* Block (i, part, tile): key head i (b * heads_kv + h), the part's keys, 16 rows of
 * its queries.  The buffer: while item i is computed, items up to i + SLOTS - 1 are
 * under way; the newest of them takes the slot of item i - 1, which all lanes have
 * read. */
template <enum dtype T, enum dtype KV, int D, int WARPS, bool PLAIN>
static __global__ void __launch_bounds__(32 * WARPS, MOST_WARPS / WARPS)
    split_kv_kernel(const struct attention x, const struct call given,
                    const struct parts parts)
{
    const struct call call = known_call<PLAIN && !IS_CODE<KV>, PLAIN>(given);
    using buffer = struct buffer<KV, D>;
    using element = typename buffer::element;
    constexpr int SLOTS = buffer::SLOTS, HALVES = buffer::HALVES, TILE = buffer::TILE;
    constexpr int HALF = buffer::HALF;
    dependents_may_start(); /* merge_parts_kernel: it waits for the end of this kernel */
    buffer *buffers = &dynamic_shared<buffer>(); /* one for each warp */
    const int warp = threadIdx.x / 32, row0 = blockIdx.z * ROWS;
    const struct head_group g = group_of(call, x, blockIdx.x);
    if (row0 >= g.n_rows) return; /* a shorter sequence than others */
    const struct key_range32 seen = some_row_sees(g.seq.mask, 0, g.seq.seqlen_q);
    const struct key_range32 open = all_rows_see(g.seq.mask, 0, g.seq.seqlen_q);
    const element *k = first_key(call, g, (const element *)x.k, call.k);
    const element *v = first_key(call, g, (const element *)x.v, call.v);
    const int begin = seen.first / KEYS * KEYS + blockIdx.y * parts.keys;
    const int end = min(seen.end, begin + parts.keys);
    int j0 = begin + warp * TILE; /* first key of this warp's tile, 16 in one page */

    /* The table is read a tile ahead, so that no copy waits for it. */
    struct key_place place[HALVES] = {}, next_place[HALVES];
    for (int h = 0; h < HALVES; h++) next_place[h] = place_of_key(call, g, j0 + h * KEYS, end);
    auto start = [&](int item, int slot) { /* item counts from the tile at j0 */
        const struct steps &s = item % 2 ? call.v : call.k;
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const int j = j0 + item / 2 * WARPS * TILE + h * KEYS;
            if (item % 2 == 0) {
                place[h] = next_place[h];
                next_place[h] = place_of_key(call, g, j + WARPS * TILE, end);
            }
            const element *from =
                (item % 2 ? v : k) + place[h].page * s.batch + (ptrdiff_t)place[h].row * s.row;
            start_copy<D>(buffers[warp].slot[slot] + h * HALF, from, end - j,
                          item % 2 ? x.head_dim_v : x.head_dim, s.row);
        }
        copies_commit();
    };
#pragma unroll 2 /* K and V: longer code takes longer to fetch than to run */
    for (int i = 0; i < SLOTS - 1; i++) start(i, i);

    uint32_t q[D / 16][4];
    load_q<KV, D>(q, x, call, g, row0);
    constexpr bool NARROW = IS_CODE<KV> && T == BF16;
    const bool has_k_scale = IS_CODE<KV> && call.k_scale, has_v_scale = IS_CODE<KV> && call.v_scale;
    const float v_scale = has_v_scale ? call.v_scale[blockIdx.x] : 1.0f;
    float scale[2] = {1.0f, 1.0f};
    if constexpr (NARROW) narrow_q<D>(q, scale);
    for (int r = 0; r < 2; r++)
        scale[r] *= has_k_scale ? x.scale * call.k_scale[blockIdx.x] : x.scale;
    struct state<D> f = {};
    f.m[0] = f.m[1] = -INFINITY;

    int slot = 0;
    auto next = [&](int item) { /* waits for the slot's data, starts an item, moves on */
        copies_wait<SLOTS - 2>();
        __syncwarp();
        start(item + SLOTS - 1, slot == 0 ? SLOTS - 1 : slot - 1);
        const uint16_t *tile = buffers[warp].slot[slot];
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
        return tile;
    };
    for (; j0 < end; j0 += WARPS * TILE) {
        float s[TILE / 8][4];
        const uint16_t *k_tile = next(0);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            auto &half = *(float (*)[KEYS / 8][4])s[h * KEYS / 8];
            multiply_qk<T, KV, D>(half, q, k_tile + h * HALF);
        }
        scale_and_mask(s, x, call, g, row0, j0, end, open, scale);
        softmax_step<D>(f, s, NARROW ? 10.397207f : 0.0f); /* log 2^15 */
        const uint16_t *v_tile = next(1);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const auto &half = *(const float (*)[KEYS / 8][4])s[h * KEYS / 8];
            add_pv<T, KV, D>(f.o, half, v_tile + h * HALF);
        }
    }
    copies_wait<0>();
    publish<KV, D, WARPS>(buffers, f, v_scale);
    merge_warps<T, WARPS>(buffers, x, call, parts, g, row0, min(ROWS, g.n_rows - row0));
}

[[maybe_unused]] static struct parts plan(const struct problem *p)
{
    static_assert(sizeof(struct buffer<F16, 64>) == sizeof(struct buffer<E4M3, 256>), "as for any");
    return parts_of(p, ROWS, MOST_WARPS * sizeof(struct buffer<F16, 128>));
}

/* Launches the kernel for queries of type T, keys and values of type KV, and the merge that writes
 * type RESULT. */
template <enum dtype T, enum dtype KV, int D, bool PLAIN, enum dtype RESULT>
static void launch(struct parts parts, const struct problem *p, const struct arrays *a)
{
    launch_parts<RESULT>(parts.warps == MOST_WARPS ? split_kv_kernel<T, KV, D, MOST_WARPS, PLAIN>
                                                   : split_kv_kernel<T, KV, D, 4, PLAIN>,
                         parts.warps * sizeof(struct buffer<KV, D>), ROWS, parts, p, a);
}

template <enum dtype T, bool PLAIN, enum dtype RESULT = T, enum dtype KV = T>
static void launch_for(struct parts parts, const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    if (d <= 64) launch<T, KV, 64, PLAIN, RESULT>(parts, p, a);
    else if (d <= 128) launch<T, KV, 128, PLAIN, RESULT>(parts, p, a);
    else launch<T, KV, 256, PLAIN, RESULT>(parts, p, a);
}

/* What tiles of 16 keys do not take, or more queries for a key head than most_rows.
 *   bytes  of a number of k and v */
[[maybe_unused]] static const char *tiles_refuse(const struct problem *p, size_t bytes,
                                                 size_t most_rows)
{
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if ((p->head_dim | p->head_dim_v) % (16 / bytes))
        return bytes == 1 ? "a head_dim that is no multiple of 16"
                          : "a head_dim that is no multiple of 8";
    if (p->page_size % KEYS) return "a page_size that is no multiple of 16";
    if (!copies_of_16_bytes(p, bytes)) return "a stride that is no multiple of 16 bytes";
    return split_refuses(p, most_rows);
}

#ifndef PART_OF_A_PROBLEM /* multi_gpu/part_split.cu launches the kernel in its own way */
template <enum dtype T>
static void attention_in(const struct problem *p, const struct arrays *a)
{
    if (is_plain(p)) launch_for<T, true>(plan(p), p, a);
    else launch_for<T, false>(plan(p), p, a);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    if (p->dtype == F16) attention_in<F16>(p, a);
    else attention_in<BF16>(p, a);
}

static size_t workspace(const struct problem *p) { return workspace_of(p, plan(p)); }

static const char *picks(const struct problem *p) { return split_picks(plan(p)); }

static const char *refuses(const struct problem *p) { return tiles_refuse(p, 2, MOST_ROWS); }

/* K and V once for every 16 queries of a key head; parts are small. */
static struct cost cost(const struct problem *p) { return split_cost(p, ROWS); }

GPU_VARIANT(split_kv, "parts of the keys, merged",
    SPLIT_VARIANT(80, TYPE(F16) | TYPE(BF16)));
#endif
