/* invariant.cu: the bits of a query depend on its keys alone, in a decoding step and in a prefill.
 * leaves.h has the rules.  A warp folds a leaf in blocks of 64 keys, by the functions of split_kv.cu.
 *
 *   few queries    each warp folds a leaf of its own, and a second kernel merges: memory is the limit
 *   many queries   each warp has 16 queries and folds leaf after leaf; the warps of a block share the
 *                  copies of keys: 128 queries for each key that is read.  On Hopper `general`
 *                  computes the same bits where it can, several times as fast */
#define PART_OF_A_PROBLEM
#include "split_kv/split_kv.cu"
#include "hopper/merge_weights.h"
#include "leaves.h"

constexpr int FEW_WARPS = 4, MANY_WARPS = 8, STAGES = 3; /* warps of a block */
constexpr int TILES = LEAF_BLOCK / KEYS;                 /* of a block of keys */
static_assert(LEAF_BLOCK == MANY_WARPS / 2 * KEYS, "a warp copies a tile of K or V");

/* What scores are.  Where a positive scale is all, they are the products, and the exponential's
 * multiply-add scales; else they are scaled, capped, with the bias, and m is subtracted from them.
 *   c  log2(weight) = c (s - m) */
struct scores { float c; bool are_products; };

static __forceinline__ __device__ struct scores scores_of(const struct attention &x,
                                                          const struct call &call)
{
    const bool plain = !x.bias && !(call.softcap > 0.0f) && x.scale > 0.0f;
    return {plain ? x.scale * LOG2E : LOG2E, plain};
}

template <int D> static __forceinline__ __device__ void clear(struct state<D> &f)
{
    f.m[0] = f.m[1] = -INFINITY, f.l[0] = f.l[1] = 0.0f;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) f.o[n][c] = 0.0f;
}

/* The scores of a block, 16 keys at a time: Q K^T of slot(i).  What most calls do not need stands apart:
 * a jump over it for each tile would take longer than the products. */
template <enum dtype T, int D, class SLOT>
static __forceinline__ __device__ void
block_scores(float (&s)[LEAF_BLOCK / 8][4], const uint32_t (&q)[D / 16][4], SLOT slot,
             const struct attention &x, const struct call &call, const struct head_group &g, int row0, int j0,
             int end, struct key_range32 open)
{
    auto tile = [&](int i) { return (float (*)[KEYS / 8][4])(s + i * KEYS / 8); };
#pragma unroll
    for (int i = 0; i < TILES; i++) multiply_qk<T, T, D>(*tile(i), q, slot(i));
    const bool are_products = scores_of(x, call).are_products;
    if (are_products && j0 >= open.first && j0 + LEAF_BLOCK <= min(end, open.end)) return;
    const float scale = are_products ? 1.0f : x.scale;
#pragma unroll
    for (int i = 0; i < TILES; i++)
        scale_and_mask(*tile(i), x, call, g, row0, j0 + i * KEYS, end, open, {scale, scale});
}

/* Folds a block's scores into m and l, scales o, and turns them into P. */
template <int D>
static __forceinline__ __device__ void weigh_block(struct state<D> &f,
                                                   float (&s)[LEAF_BLOCK / 8][4], struct scores u)
{
    float alpha[2], less[2], reference[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = -INFINITY;
#pragma unroll
        for (int n = 0; n < LEAF_BLOCK / 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        const float m = grown_maximum(f.m[r], quad_max(top), u.c);
        alpha[r] = factor_of(f.m[r], m, u.c);
        f.m[r] = m, f.l[r] = __fmul_rn(f.l[r], alpha[r]);
        less[r] = u.are_products || m == -INFINITY ? 0.0f : m;
        reference[r] = u.are_products ? reference_of(m, u.c) : 0.0f;
    }
    if (__any_sync(~0u, alpha[0] != 1.0f || alpha[1] != 1.0f))
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) f.o[n][c] *= alpha[c / 2];
#pragma unroll
    for (int n = 0; n < LEAF_BLOCK / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            f.l[c / 2] += s[n][c] =
                exp2_fast(fmaf(s[n][c] - less[c / 2], u.c, -reference[c / 2]));
}

/* O += P V of a block, 16 keys at a time. */
template <enum dtype T, int D, class SLOT>
static __forceinline__ __device__ void add_block(struct state<D> &f,
                                                 const float (&s)[LEAF_BLOCK / 8][4], SLOT slot)
{
#pragma unroll
    for (int i = 0; i < TILES; i++)
        add_pv<T, T, D>(f.o, *(const float (*)[KEYS / 8][4])(s + i * KEYS / 8), slot(i));
}

/* total . f, and f becomes the unit. */
template <int D>
static __forceinline__ __device__ void merge_leaf(struct state<D> &total, struct state<D> &f, float c)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const struct join j = join_of(total.m[r], f.m[r], c);
        total.m[r] = j.m, total.l[r] = joined(j, total.l[r], quad_sum(f.l[r]));
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 2 * r; c < 2 * r + 2; c++)
                total.o[n][c] = joined(j, total.o[n][c], f.o[n][c]);
    }
    clear(f);
}

/* o / l of column c of a row, and with column 0 lse, as Hopper's kernel computes them. */
template <enum dtype T>
static __forceinline__ __device__ void store_row(const struct attention &x, const struct call &call,
                                                 int number, int c, struct column y)
{
    const struct result_row row = result_row(call, x, number);
    const struct scores u = scores_of(x, call);
    float lse = u.are_products ? natural_log(reference_of(y.m, u.c), y.l)
                               : y.m + natural_log(0.0f, y.l);
    float factor = y.l == 0.0f ? 0.0f : reciprocal_fast(y.l);
    if (row.sink != -INFINITY) factor *= add_sink(&lse, row.sink);
    store<T>(x, row.o + c, fmaf(y.o, factor, 0.0f)); /* -0 becomes 0: more leaves would do that */
    if (c == 0 && x.lse) x.lse[row.number] = lse;
}

/* use(row of the group, r, column, element of o) for what the lane has of rows row0 ... */
template <int D, class F>
static __forceinline__ __device__ void each_element(const struct attention &x, int row0, int n_rows,
                                                    F use)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = row0 + threadIdx.x % 32 / 4 + 8 * r;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int c = 8 * n + 2 * (threadIdx.x % 4) + e;
                if (row < n_rows && c < x.head_dim_v) use(row, r, c, n);
            }
    }
}

/* Block (i, part, tile): key head i, 16 rows of its queries, a leaf for each warp. */
template <enum dtype T, int D>
static __global__ void __launch_bounds__(32 * FEW_WARPS, 2)
    few_queries_kernel(const struct attention x, const struct call call, const struct parts parts)
{
    constexpr int SLOTS = buffer<T, D>::SLOTS;
    dependents_may_start();
    const int warp = threadIdx.x / 32, row0 = blockIdx.z * ROWS;
    auto *slots = (&dynamic_shared<struct buffer<T, D>>())[warp].slot;
    const struct head_group g = group_of(call, x, blockIdx.x);
    const int leaf = blockIdx.y * FEW_WARPS + warp;
    if (row0 >= g.n_rows || leaf >= parts.n) return;
    const struct key_range32 seen = some_row_sees(g.seq.mask, 0, g.seq.seqlen_q);
    const struct key_range32 open = all_rows_see(g.seq.mask, 0, g.seq.seqlen_q);
    const uint16_t *k = first_key(call, g, x.k, call.k), *v = first_key(call, g, x.v, call.v);
    const int first = (seen.first / LEAF + leaf) * LEAF, end = min(seen.end, first + LEAF);
    int j0 = max(first, seen.first / LEAF_BLOCK * LEAF_BLOCK);

    auto start = [&](int item, int slot) { /* of a block the tiles of K, then those of V */
        int j = j0 + (item / (2 * TILES) * TILES + item % TILES) * KEYS;
        if (j + KEYS <= seen.first) j = end; /* may lie in no page: not read */
        const struct key_place place = place_of_key(call, g, j, end);
        const bool is_v = item / TILES % 2;
        const struct steps &s = is_v ? call.v : call.k;
        start_copy<D>(slots[slot],
                      (is_v ? v : k) + place.page * s.batch + (ptrdiff_t)place.row * s.row,
                      end - j, is_v ? x.head_dim_v : x.head_dim, s.row);
        copies_commit();
    };
#pragma unroll 2
    for (int i = 0; i < SLOTS - 1; i++) start(i, i);
    uint32_t q[D / 16][4];
    load_q<T, D>(q, x, call, g, row0);
    struct state<D> f;
    clear(f);
    int slot = 0;
    auto next = [&](int item) { /* waits for the slot's data, starts an item, moves on */
        copies_wait<SLOTS - 2>();
        __syncwarp();
        start(item + SLOTS - 1, slot == 0 ? SLOTS - 1 : slot - 1);
        const uint16_t *tile = slots[slot];
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
        return tile;
    };
    for (; j0 < end; j0 += LEAF_BLOCK) {
        float s[LEAF_BLOCK / 8][4];
        block_scores<T, D>(s, q, next, x, call, g, row0, j0, end, open);
        weigh_block<D>(f, s, scores_of(x, call));
        add_block<T, D>(f, s, [&](int i) { return next(TILES + i); });
    }
    copies_wait<0>();
    for (int r = 0; r < 2; r++) f.l[r] = quad_sum(f.l[r]);
    each_element<D>(x, row0, g.n_rows, [&](int row, int r, int c, int n) {
        const size_t at = leaf * parts.all_rows + lse_number(call, x, g, row);
        parts.o[at * x.head_dim_v + c] = f.o[n][2 * r + c % 2];
        if (c == 0) parts.ml[at] = make_float2(f.m[r], f.l[r]);
    });
}

/* A block merges the leaves of one row, a thread a column; 8 loads are under way together. */
template <enum dtype T>
static __global__ void __launch_bounds__(MERGE_THREADS)
    merge_leaves_kernel(const struct attention x, const struct call call, const struct parts parts)
{
    constexpr int GROUP = 8;
    wait_for_previous_kernel();
    for (int c = threadIdx.x; c < x.head_dim_v; c += MERGE_THREADS) {
        struct column y = {-INFINITY, 0.0f, 0.0f};
        const float unit = scores_of(x, call).c;
        for (int i0 = 0; i0 < parts.n; i0 += GROUP) {
            struct column leaf[GROUP];
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                const size_t at = (size_t)(i0 + i) * parts.all_rows + blockIdx.x;
                leaf[i] = {-INFINITY, 0.0f, 0.0f};
                if (i0 + i >= parts.n) continue;
                leaf[i] = {parts.ml[at].x, parts.ml[at].y, parts.o[at * x.head_dim_v + c]};
            }
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                const struct join j = join_of(y.m, leaf[i].m, unit);
                y = {j.m, joined(j, y.l, leaf[i].l), joined(j, y.o, leaf[i].o)};
            }
        }
        store_row<T>(x, call, blockIdx.x, c, y);
    }
}

/* 64 keys and values, in tiles of 16. */
template <int D> struct key_stage {
    alignas(128) uint16_t tile[MANY_WARPS][(D + 63) / 64 * KEYS * 64]; /* four of K, four of V */
};

/* The keys that some, or all, of n rows of a group from row0 on see; of two heads all queries. */
struct sight { struct key_range32 some, all; };
static __forceinline__ __device__ struct sight sight_of(const struct head_group &g, int row0, int n)
{
    int i = row0 % g.seq.seqlen_q, end = i + min(n, max(1, g.n_rows - row0));
    if (end > g.seq.seqlen_q) i = 0, end = g.seq.seqlen_q;
    return {some_row_sees(g.seq.mask, i, end), all_rows_see(g.seq.mask, i, end)};
}

/* Block (i, tile): key head i, 128 rows of its queries, the last first: they see the most keys. */
template <enum dtype T, int D>
static __global__ void __launch_bounds__(32 * MANY_WARPS, 1)
    many_queries_kernel(const struct attention x, const struct call call, const struct parts)
{
    struct key_stage<D> *stages = &dynamic_shared<struct key_stage<D>>();
    const int warp = threadIdx.x / 32;
    const int tile0 = (gridDim.y - 1 - blockIdx.y) * MANY_WARPS * ROWS, row0 = tile0 + warp * ROWS;
    const struct head_group g = group_of(call, x, blockIdx.x);
    if (tile0 >= g.n_rows) return; /* a shorter sequence than others */
    const struct key_range32 seen = sight_of(g, tile0, MANY_WARPS * ROWS).some;
    const struct sight own = sight_of(g, row0, ROWS);
    const uint16_t *k = first_key(call, g, x.k, call.k), *v = first_key(call, g, x.v, call.v);
    const bool copies_v = warp >= MANY_WARPS / 2;

    auto start = [&](int j, int stage) { /* this warp's tile of the stage that begins at key j */
        j += warp % (MANY_WARPS / 2) * KEYS;
        if (j + KEYS <= seen.first) j = seen.end; /* may lie in no page: not read */
        const struct key_place place = place_of_key(call, g, j, seen.end);
        const struct steps &s = copies_v ? call.v : call.k;
        start_copy<D>(stages[stage].tile[warp],
                      (copies_v ? v : k) + place.page * s.batch + (ptrdiff_t)place.row * s.row,
                      seen.end - j, copies_v ? x.head_dim_v : x.head_dim, s.row);
        copies_commit();
    };
    int j0 = seen.first / LEAF_BLOCK * LEAF_BLOCK, stage = 0;
    for (int i = 0; i < STAGES - 1; i++) start(j0 + i * LEAF_BLOCK, i);
    uint32_t q[D / 16][4];
    load_q<T, D>(q, x, call, g, row0);
    struct state<D> f, total;
    clear(f), clear(total);
    for (; j0 < seen.end; j0 += LEAF_BLOCK) {
        copies_wait<STAGES - 2>();
        __syncthreads(); /* the stage is there, and all have left the one before */
        start(j0 + (STAGES - 1) * LEAF_BLOCK, stage == 0 ? STAGES - 1 : stage - 1);
        if (j0 + LEAF_BLOCK > own.some.first && j0 < own.some.end) {
            auto *tile = stages[stage].tile;
            float s[LEAF_BLOCK / 8][4];
            block_scores<T, D>(s, q, [&](int i) { return tile[i]; }, x, call, g, row0, j0, seen.end,
                               own.all);
            weigh_block<D>(f, s, scores_of(x, call));
            add_block<T, D>(f, s, [&](int i) { return tile[TILES + i]; });
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        if ((j0 + LEAF_BLOCK) % LEAF == 0 || j0 + LEAF_BLOCK >= seen.end)
            merge_leaf(total, f, scores_of(x, call).c);
    }
    copies_wait<0>();
    each_element<D>(x, row0, g.n_rows, [&](int row, int r, int c, int n) {
        store_row<T>(x, call, lse_number(call, x, g, row), c,
                     {total.m[r], total.l[r], total.o[n][2 * r + c % 2]});
    });
}

/* ---- the host's side ---- */

static struct parts leaves_of(const struct problem *p)
{
    struct parts parts = {};
    const size_t keys = most_keys(p);
    parts.n = (int)((keys + LEAF - 1) / LEAF + (keys < p->seqlen_k)); /* cut anywhere */
    parts.n = max(parts.n, 1);
    parts.keys = LEAF, parts.warps = has_few_rows(p) ? FEW_WARPS : MANY_WARPS;
    parts.n_rows = (int)rows_of_group(p);
    parts.all_rows = all_rows_of(p);
    return parts;
}

template <enum dtype T, int D>
static void launch_both(const struct problem *p, const struct arrays *a)
{
    struct parts parts = leaves_of(p);
    const struct attention x = attention_of(p, a, ROWS);
    const struct call call = call_of(p, a);
    const unsigned groups = (unsigned)(p->batch * p->heads_kv), rows = (unsigned)parts.n_rows;
    const unsigned many = MANY_WARPS * ROWS;
    if (!has_few_rows(p))
        return start(many_queries_kernel<T, D>, dim3(groups, (rows + many - 1) / many), 32 * MANY_WARPS,
                     STAGES * sizeof(struct key_stage<D>), a->stream, x, call, parts);
    parts.ml = (float2 *)a->workspace;
    parts.o = (float *)(parts.ml + parts.n * parts.all_rows);
    start(few_queries_kernel<T, D>,
          dim3(groups, (parts.n + FEW_WARPS - 1) / FEW_WARPS, (rows + ROWS - 1) / ROWS),
          32 * FEW_WARPS, FEW_WARPS * sizeof(struct buffer<T, D>), a->stream, x, call, parts);
    start<EARLY>(merge_leaves_kernel<T>, parts.all_rows, MERGE_THREADS, 0, a->stream, x, call, parts);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    if (all_rows_of(p) == 0) return;
    auto in = [&]<enum dtype T>() {
        const size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
        d <= 64 ? launch_both<T, 64>(p, a) : d <= 128 ? launch_both<T, 128>(p, a)
                                                      : launch_both<T, 256>(p, a);
    };
    if (p->dtype == F16) in.template operator()<F16>();
    else in.template operator()<BF16>();
}

static size_t workspace(const struct problem *p)
{
    const struct parts parts = leaves_of(p);
    return has_few_rows(p) ? parts.n * parts.all_rows * (p->head_dim_v + 2) * sizeof(float) : 0;
}

static const char *refuses(const struct problem *p)
{
    if (p->head_dim > 128 && 3 * sizeof(struct key_stage<256>) > shared_memory_limit())
        return "a head_dim above 128 without 192 KB of shared memory";
    if (p->seqlen_k > 1 << 25 || rows_of_group(p) > 1 << 22) return "more than 2^25 keys";
    return tiles_refuse(p, 2, LONGEST);
}

static const char *picks(const struct problem *p)
{
    return has_few_rows(p) ? "a leaf for each warp" : "128 queries, leaf after leaf";
}

static struct cost cost(const struct problem *p)
{
    return split_cost(p, has_few_rows(p) ? ROWS : MANY_WARPS * ROWS);
}

GPU_VARIANT(invariant, "bits of a query alone",
    SPLIT_VARIANT(80, TYPE(F16) | TYPE(BF16), WITH_INVARIANT));
