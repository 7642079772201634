/* a5_fused.cu: assignment of stage 5, 80 points: a fused kernel, warp by warp.
 *
 *     o_i = sum_j softmax_j(scale q_i . k_j) v_j        one warp for each query, one lane for each key of a tile
 *
 * Task: fill the five functions.  A block has WARPS queries and goes through tiles of Bc keys in shared memory.  Lane j
 * computes the score of key j of the tile; the warp's maximum and sum go through shuffles; then lane c adds up columns
 * c and c + 32 of o.  With few queries the keys are split: blocks write their parts, and merge() makes one answer of
 * them by combine() and finish() of your a4_monoid.c.
 * May be assumed: d and d_v are at most 64.  Query i sees the first n_k, or with causal the first i + 1 + n_k - n_q keys.
 * A query that sees none gives o = 0, lse = -INFINITY.
 *
 * What is counted: elements loaded (each key once for each block), pieces of 32 bytes (neighbouring lanes load
 * neighbouring elements), turns of the 32 banks (1 for each access), shared memory (20 KiB, so that four blocks
 * fit on a multiprocessor).  The kernel runs with its threads in three orders: a missing barrier shows.
 * Where this machine has a GPU and nvcc, the judge also launches your two kernels there, with fresh numbers each time:
 * they must be right (gpu) and reach 5 and 13 percent (gpu_speed) of the multiply-adds that this GPU can do when each reads
 * one operand from shared memory.  A T4, an A100 and an H100 read as much for each of theirs: 32 floats a cycle.
 * Then profile one of stage 5's rungs by ncu, and say in your work log which of the four counts it shows.
 *
 * Point: cases loaded_once, coalesced, bank_conflicts, occupancy, splits.
 * Time: 12 hours.
 * Hint: all threads of a block reach all barriers, also those of a warp that has no query.
 * Hint: lanes that read k[lane * d + c] with d = 64 all hit one bank.  What does a stride of d + 1 change?
 * Hint: behind the last key the tile holds NaN, and 0 * NaN is NaN.
 * Right or wrong:  make exercise 5 EX=a5_fused */
#include "harness.h"
#include "course/kernel.h"
#include "a4_monoid.c"

enum { WARPS = 4, Bc = 32 };

/* parts: m and l of each query and split (n_q, splits, 2), and its o (n_q, splits, d_v), not divided. */
struct arguments {
    global<const float> q, k, v;
    global<float> parts, parts_o, o, lse;
    int n_q, n_k, d, d_v, causal, splits;
    float scale;
};

/* How much shared memory a block takes. */
static __host__ __device__ size_t shared_floats(int d, int d_v)
{
    /* solution begin */
    return (size_t)(WARPS * d + Bc * (d + 1) + Bc * d_v);
    /* skeleton
    return (size_t)(d + d_v);
    solution end */
}

/* The largest x of a warp's lanes, for all of them. */
static __device__ float warp_max(float x)
{
    /* solution begin */
    for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, step));
    /* solution end */
    return x;
}

/* The sum of x over a warp's lanes, for all of them. */
static __device__ float warp_sum(float x)
{
    /* solution begin */
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
    /* solution end */
    return x;
}

/* Queries WARPS (b / splits) and on, for split b % splits of the tiles; b is the block. */
extern "C" __global__ void attention(struct arguments a)
{
    shared<float> memory = shared_floats_of(shared_floats(a.d, a.d_v));
    /* solution begin */
    float *p = memory.p;
    shared<float> q = {p, (size_t)(WARPS * a.d)}, k = {p + q.n, (size_t)(Bc * (a.d + 1))},
                  v = {p + q.n + k.n, (size_t)(Bc * a.d_v)};
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.x % a.splits;
    int first = (int)(blockIdx.x / a.splits) * WARPS, i = first + warp, tiles = (a.n_k + Bc - 1) / Bc;
    int sees = a.causal ? min(a.n_k, i + 1 + a.n_k - a.n_q) : a.n_k;
    for (int e = threadIdx.x; e < WARPS * a.d && first * a.d + e < a.n_q * a.d; e += WARPS * 32)
        q[e] = a.q[first * a.d + e];
    struct part x = {-INFINITY, 0};
    float o[2] = {0, 0};
    for (int t = tiles * split / a.splits; t < tiles * (split + 1) / a.splits; t++) {
        int j_0 = t * Bc, n = min(+Bc, a.n_k - j_0);
        __syncthreads(); /* nobody reads the previous tile any more */
        for (int e = threadIdx.x; e < n * a.d; e += WARPS * 32) k[e / a.d * (a.d + 1) + e % a.d] = a.k[j_0 * a.d + e];
        for (int e = threadIdx.x; e < n * a.d_v; e += WARPS * 32) v[e] = a.v[j_0 * a.d_v + e];
        __syncthreads(); /* the tile is complete */
        if (i >= a.n_q || sees <= j_0) continue;
        float s = 0;
        for (int c = 0; c < a.d; c++) s += q[warp * a.d + c] * k[lane * (a.d + 1) + c];
        s = j_0 + lane < sees ? a.scale * s : -INFINITY;
        float m = fmaxf(x.m, warp_max(s)), w = expf(s - m), old = expf(x.m - m);
        x.l = x.l * old + warp_sum(w), x.m = m;
        for (int r = 0; r < 2; r++) o[r] *= old;
        for (int j = 0; j < min(n, sees - j_0); j++) {
            float w_j = __shfl_sync(0xffffffff, w, j);
            for (int c = lane; c < a.d_v; c += 32) o[c / 32] += w_j * v[j * a.d_v + c];
        }
    }
    if (i >= a.n_q) return;
    if (lane == 0) a.parts[2 * (i * a.splits + split)] = x.m, a.parts[2 * (i * a.splits + split) + 1] = x.l;
    for (int c = lane; c < a.d_v; c += 32) a.parts_o[(i * a.splits + split) * a.d_v + c] = o[c / 32];
    /* skeleton
    memory[0] = 0;
    solution end */
}

/* The parts of a query become its answer: one thread for each query. */
extern "C" __global__ void merge(struct arguments a)
{
    int i = (int)(blockIdx.x * 32 + threadIdx.x);
    if (i >= a.n_q) return;
    /* solution begin */
    struct part x = {-INFINITY, 0};
    float o[64] = {}, part_o[64];
    for (int t = 0; t < a.splits; t++) {
        struct part part = {a.parts[2 * (i * a.splits + t)], a.parts[2 * (i * a.splits + t) + 1]};
        for (int c = 0; c < a.d_v; c++) part_o[c] = a.parts_o[(i * a.splits + t) * a.d_v + c];
        combine(&x, o, &part, part_o, (size_t)a.d_v);
    }
    a.lse[i] = finish(&x, o, (size_t)a.d_v);
    for (int c = 0; c < a.d_v; c++) a.o[i * a.d_v + c] = o[c];
    /* skeleton
    a.lse[i] = 0;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    size_t n_q = (size_t)c->n[0], n_k = (size_t)c->n[1], d = (size_t)c->n[2], d_v = (size_t)c->n[3];
    size_t splits = (size_t)c->n[6], parts = n_q * splits, bytes = shared_floats((int)d, (int)d_v) * sizeof(float);
    float *room = (float *)malloc(parts * (2 + d_v) * sizeof *room);
    struct arguments a = {{c->x[0], n_q * d}, {c->x[1], n_k * d}, {c->x[2], n_k * d_v}, {room, 2 * parts},
                          {room + 2 * parts, parts * d_v}, {c->y[0], n_q * d_v}, {c->y[1], n_q}, (int)n_q, (int)n_k,
                          (int)d, (int)d_v, (int)c->n[4], (int)splits, c->x[4][0]};
    launch((unsigned)((n_q + WARPS - 1) / WARPS * splits), WARPS * 32, bytes, attention, a);
    c->y[2][0] = (float)counted::n_loads, c->y[2][1] = (float)counted::n_pieces();
    c->y[2][2] = counted::turns(), c->y[2][3] = (float)bytes;
    launch((unsigned)(n_q + 31) / 32, 32, 0, merge, a);
    free(room);
}
