/* general_mma.cu: what a model asks of attention beside the plain operation, by rung 6's means: for
 * GPUs from sm_80 on that are no Hopper.  Its scores, their fold and its products are rung 6's
 * own.  What is added:
 *
 *   windows  key blocks outside of a block's window are neither copied nor computed
 *   packed   sequences of different lengths, and arrays with strides (split_kv/kernel_call.h)
 *   scores   a soft cap; a bias for each batch or head; sinks, merged when o is stored; dropout */
#define BESIDE_RUNG_6
#include "portable/06_lazy_rescaling.cu"

#include "drop_weights.h"
#include "hopper/merge_weights.h"
#include "split_kv/kernel_call.h"

struct mma_work {
    struct attention x; /* sizes of the longest sequence */
    struct call call;
    bool pairs; /* two neighbours of the bias can be loaded as one */
    struct dropout drops;
};

/* The queries of a block, and the keys they see. */
struct place {
    struct rows_of_sequence seq;
    int sequence, head, q0;
};

/* Issues the copies of ROWS rows, `step` elements apart. */
template <class W, int ROWS>
static __forceinline__ __device__ void copy_rows(uint16_t *to, const uint16_t *from, int step,
                                                 int n_rows, int n_columns)
{
    constexpr int PIECES = W::D / 8;
    for (int i = threadIdx.x; i < ROWS * PIECES; i += W::THREADS) {
        const int row = i / PIECES, piece = i % PIECES;
        copy_16_bytes(address_of(to) + 2 * swizzled<ROWS>(row, piece),
                      from + (ptrdiff_t)row * step + 8 * piece,
                      row < n_rows && 8 * piece < n_columns);
    }
}

/* Key block t into buffer t % 2, as one group. */
template <class W>
static __forceinline__ __device__ void copy_kv(typename W::shared &shared, const struct mma_work &w,
                                               const struct place &at, int t)
{
    const int j0 = t * W::Bc, n = at.seq.mask.seqlen_k - j0;
    const int head_kv = at.head / w.call.heads_of_group;
    const struct steps &k = w.call.k, &v = w.call.v;
    const ptrdiff_t first = at.seq.k + j0;
    copy_rows<W, W::Bc>(shared.k[t % 2],
                        w.x.k + at.seq.batch * k.batch + head_kv * k.head + first * k.row, k.row,
                        n, w.x.head_dim);
    copy_rows<W, W::Bc>(shared.v[t % 2],
                        w.x.v + at.seq.batch * v.batch + head_kv * v.head + first * v.row, v.row,
                        n, w.x.head_dim_v);
    copies_commit();
}

/* The bias of the lane's rows, from `row` on, and keys; 0 where there is none.  Loaded before the
 * key block is waited for, in pairs where they are aligned. */
template <class W>
static __forceinline__ __device__ void load_bias(typename W::scores &b, const struct mma_work &w,
                                                 const struct place &at, int row, int j0)
{
    j0 += 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int query = min(row + 16 * i + 8 * r, at.seq.seqlen_q - 1);
            const float *from = w.x.bias ? bias_row(w.call, w.x, at.sequence, at.head, query) : NULL;
            const int n_keys = w.x.bias ? at.seq.mask.seqlen_k - j0 : 0;
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++) {
                float2 two = make_float2(0.0f, 0.0f);
                if (w.pairs && 8 * n + 1 < n_keys) two = *(const float2 *)(from + j0 + 8 * n);
                else if (8 * n < n_keys) {
                    two.x = from[j0 + 8 * n];
                    if (8 * n + 1 < n_keys) two.y = from[j0 + 8 * n + 1];
                }
                b[i][n][2 * r] = two.x, b[i][n][2 * r + 1] = two.y;
            }
        }
}

/* s = cap(scale s) + b. */
template <class W>
static __forceinline__ __device__ void add_terms(typename W::scores &s,
                                                 const typename W::scores &b, const struct mma_work &w)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++) {
#pragma unroll
        for (int n = 0; n < W::Bc / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) s[i][n][c] *= w.x.scale;
        if (w.call.softcap > 0.0f) cap_scores(s[i], w.call.softcap);
#pragma unroll
        for (int n = 0; n < W::Bc / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                s[i][n][c] = b[i][n][c] == -INFINITY ? -INFINITY : s[i][n][c] + b[i][n][c];
    }
}

/* s = -inf where the key is hidden, at both ends. */
template <class W>
static __forceinline__ __device__ void mask_both_ends(typename W::scores &s,
                                                      const struct mask32 &mask, int row, int j0)
{
    const struct mask32 keys = keys_from(mask, j0 + 2 * (threadIdx.x % 4));
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const struct key_range32 seen = mask_keys(keys, row + 16 * i + 8 * (c / 2));
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
                if (8 * n + c % 2 < seen.first || 8 * n + c % 2 >= seen.end)
                    s[i][n][c] = -INFINITY;
        }
}

/* o = O / l and lse of the warp's rows, with the sink; o leaves through the warp's rows of Q. */
template <enum dtype T, class W>
static __forceinline__ __device__ void store_rows(typename W::state &f, uint16_t *q,
                                                  const struct mma_work &w, const struct place &at,
                                                  float unit)
{
    const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT;
    const size_t head = (size_t)at.seq.batch * w.x.heads_q + at.head;
    float *lse = w.x.lse + head * w.call.lse_rows + at.seq.q + at.q0;
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = row0 + 16 * i + lane / 4 + 8 * r;
            const float l = quad_sum(f.l[i][r]);
            float sum = l == 0.0f ? -INFINITY : f.m[i][r] * unit + logf(l);
            float factor = l == 0.0f ? 0.0f : __fdividef(1.0f, l);
            if (w.call.sinks) factor *= add_sink(&sum, w.call.sinks[at.head]);
            if (W::BIAS) factor *= w.drops.factor;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++)
                store_pair(address_of(q + swizzled<W::Br>(row, n)) + lane % 4 * 4,
                           pack<T>(f.o[i][n][2 * r] * factor, f.o[i][n][2 * r + 1] * factor));
            if (lane % 4 == 0 && at.q0 + row < at.seq.seqlen_q) lse[row] = sum;
        }
    __syncwarp();
    const struct steps &to = w.call.o;
    uint16_t *o = w.x.o + at.seq.batch * to.batch + at.head * to.head +
                  (ptrdiff_t)(at.seq.q + at.q0) * to.row;
    for (int n = lane; n < 16 * W::MT * W::D / 8; n += 32) {
        const int row = row0 + n / (W::D / 8), piece = n % (W::D / 8);
        if (at.q0 + row < at.seq.seqlen_q && 8 * piece < w.x.head_dim_v)
            *(uint4 *)(o + (ptrdiff_t)row * to.row + 8 * piece) =
                *(const uint4 *)(q + swizzled<W::Br>(row, piece));
    }
}

template <enum dtype T, class W, bool DROPS>
__global__ void __launch_bounds__(W::THREADS, W::BLOCKS) general_mma_kernel(const struct mma_work w)
{
    typename W::shared &shared = dynamic_shared<typename W::shared>();
    const struct attention &x = w.x;
    const int head = blockIdx.x / x.q_blocks, i = blockIdx.x % x.q_blocks;
    const int tile = x.causal ? x.q_blocks - 1 - i : i; /* those with most keys come first */
    struct place at;
    at.sequence = head / x.heads_q;
    at.head = head % x.heads_q;
    at.q0 = tile * W::Br;
    at.seq = find_sequence(w.call.sequences, at.sequence);
    if (at.q0 >= at.seq.seqlen_q) return; /* the sequence is shorter than others */
    const int end_q = min(at.q0 + W::Br, at.seq.seqlen_q);
    const struct key_range32 seen = some_row_sees(at.seq.mask, at.q0, end_q);
    const struct key_range32 open = all_rows_see(at.seq.mask, at.q0, end_q);
    const int first_block = seen.first / W::Bc, end_block = (seen.end + W::Bc - 1) / W::Bc;
    const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT; /* of this warp */

    typename W::state f = {};
#pragma unroll
    for (int i = 0; i < W::MT; i++) f.m[i][0] = f.m[i][1] = -INFINITY;

    const struct steps &q = w.call.q;
    copy_rows<W, W::Br>(shared.q, x.q + at.seq.batch * q.batch + at.head * q.head +
                        (ptrdiff_t)(at.seq.q + at.q0) * q.row, q.row, end_q - at.q0, x.head_dim);
    if (seen.first < seen.end) copy_kv<W>(shared, w, at, first_block);
    copies_commit();
    shared_address q0 = address_of(shared.q + swizzled<W::Br>(row0 + lane % 16, lane / 16));
    if (W::Q_IN_REGISTERS) {
        copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < W::D / 16; d++) load_q<W>(f, q0, d);
    }
    for (int t = first_block; t < end_block && seen.first < seen.end; t++) {
        const int j0 = t * W::Bc, row = at.q0 + row0 + lane / 4;
        typename W::scores s, b;
        if (W::BIAS) load_bias<W>(b, w, at, row, j0);
        copies_wait<0>();
        __syncthreads();
        if (t + 1 < end_block) copy_kv<W>(shared, w, at, t + 1);
        multiply_qk<T, W>(s, f, q0, shared.k[t % 2]);
        if (W::BIAS) add_terms<W>(s, b, w);
        if (j0 < open.first || j0 + W::Bc > open.end) mask_both_ends<W>(s, at.seq.mask, row, j0);
        softmax_step<W>(f, s, unit_of<W>(x) * 1.44269504f);
#pragma unroll
        for (int i = 0; DROPS && i < W::MT; i++)
            drop_weights<W::Bc / 2>(s[i][0], w.drops, head, row + 16 * i, j0 + lane % 4 * 2);
        add_pv<T, W>(f, s, shared.v[t % 2]);
    }
    copies_wait<0>(); /* Q, should there be no key block */
    __syncthreads();
    store_rows<T, W>(f, shared.q, w, at, unit_of<W>(x));
}

template <enum dtype T, class W>
static void launch_general(const struct problem *p, const struct arrays *a)
{
    struct mma_work w = {attention_of(p, a, W::Br), call_of(p, a), false, dropout_of(p)};
    w.pairs = (w.call.bias.batch | w.call.bias.head | w.call.bias.row) % 2 == 0 &&
              (uintptr_t)w.x.bias % 8 == 0;
    w.x.causal = p->causal || p->packed;
    const size_t blocks = p->batch * p->heads_q * (size_t)w.x.q_blocks;
    auto kernel = general_mma_kernel<T, W, false>;
    if constexpr (W::BIAS)
        if (w.drops.below) kernel = general_mma_kernel<T, W, true>;
    if (blocks) start(kernel, blocks, W::THREADS, sizeof(typename W::shared), a->stream, w);
}

/* Whether the tiles for a bias are taken: they have the registers that a soft cap and dropout need, too. */
static struct problem with_terms(const struct problem *p)
{
    struct problem terms = *p;
    terms.has_bias = p->has_bias || p->softcap > 0.0f || p->dropout > 0.0f;
    return terms;
}

static void attention(const struct problem *p, const struct arrays *a)
{
    const struct problem terms = with_terms(p);
    with_tiling(&terms, [&](auto w, const char *) {
        if (p->dtype == F16) launch_general<F16, decltype(w)>(p, a);
        else launch_general<BF16, decltype(w)>(p, a);
    });
}

static const char *picks(const struct problem *p)
{
    const struct problem terms = with_terms(p);
    const char *text = NULL;
    with_tiling(&terms, [&](auto w, const char *why) { text = in_words(w, why); });
    return text;
}

static const char *refuses(const struct problem *p)
{
    if (!copies_of_16_bytes(p)) return "a stride that is no multiple of 16 bytes";
    return async_refuses(p);
}

GPU_VARIANT(general_mma, "what models ask for, sm_80",
    .group = IN_PORTABLE, .device = GPU_DEVICE, .least_arch = 80, .types = TYPE(F16) | TYPE(BF16),
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |
                WITH_PACKED | WITH_STRIDES | WITH_BIAS_STRIDES | WITH_LENGTHS | WITH_DROPOUT,
    .max_score = INFINITY, .masked_rows = 1, .refuses = refuses, .picks = picks,
    .cost = cost, .does = {{OP_ATTENTION, attention}});
