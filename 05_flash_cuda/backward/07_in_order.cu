/* arch: sm_90a */
/* 07_in_order.cu: rung 7 of the backward ladder: the same bits in every run.
 *
 * In rungs 5 and 6 blocks add to dq in any order, and a sum of floats depends on the order.
 * Here every block of dq has a counter, and an adder waits until those before it have
 * added.  The first stores, so that nobody sets dq to 0.  Consumers do not wait for that.
 *
 * Which order?  Blocks of keys of a head must come to each tile of queries one after another.
 *
 *     causal   all begin at the diagonal, and the last keys that a query sees add first
 *              (FlashAttention-3 has it as SPT): the next ones are a step behind
 *     others   all begin with the last queries, and the first keys add first.  Who begins at the
 *              same time must wait, so many heads begin together, with few blocks each
 *
 * So causal heads begin with their shortest blocks, and at the end all would wait for the longest.
 * The last heads, two waves of blocks, go as if they were not causal: the longest first.  A
 * block's number is drawn when it begins: whom it waits for has begun.
 *
 * This is the one difference; the rest is that of rungs 5 and 6. */
#define BESIDE_RUNG_6
#include "backward/06_wide_heads.cu"

template <class Type, enum dtype DTYPE, int HEAD_DIM>
struct ordered_config : staged_config<Type, DTYPE, HEAD_DIM> {
    static constexpr bool TURNS = true;
};

/* The work of the n-th block of threads to begin. */
template <class C, enum dtype T>
static __device__ __forceinline__ struct key_work nth_work(const struct backward_params<T> &params,
                                                           int n)
{
    const struct gradient<T> &x = params.x;
    const int heads = is_causal(x) ? max(0, x.batch * x.heads_kv - params.window) : 0;
    const int tile = n % x.key_tiles;
    if (n < heads * x.key_tiles) /* the last keys first */
        return key_work_of<C>(x, n - tile + x.key_tiles - 1 - tile);
    struct key_work work = key_work_of<C>(x, nth_tile(params, n, heads));
    work.first += work.n - 1, work.step = -1;
    return work;
}

/* How many blocks of keys add to a tile of queries before this one. */
template <class C, enum dtype T>
static __device__ __forceinline__ int turn_of(const struct gradient<T> &x,
                                              const struct key_work &work, int i_0)
{
    struct key_range32 seen = some_row_sees(x.mask, i_0, min(i_0 + C::Br, x.seqlen_q));
    const int tile = work.j_0 / C::Bc;
    return work.step > 0 ? (seen.end - 1) / C::Bc - tile : tile - seen.first / C::Bc;
}

/* A count waits for all that the multiprocessor writes.  At d = 256, with twice the additions,
 * the adders have no time for that: a thread of its own counts for both. */
template <class C> constexpr bool COUNTS_APART = C::D == 256;
template <class C> struct ordered_memory : any_memory<C> { uint64_t added[2], counted[2]; };

template <class C, enum dtype T>
static __device__ __forceinline__ void count_all(ordered_memory<C> &sm,
                                                 const struct backward_params<T> &params)
{
    const struct key_work &work = sm.work;
    int head = work.head_kv * params.x.group, i_0 = work.first * C::Br;
    uint32_t phase = 0;
#pragma unroll 1
    for (int left = work.n * params.x.group; left; left--, phase ^= 1) {
        const int block = dq_block<C>(params.x, head, i_0, 0);
        for (int w = 0; w < 2; w++) {
            mbarrier_wait(&sm.added[w], phase);
            mbarrier_arrive(&sm.counted[w]);
            count(params.counter + 1 + block + C::DQ_BLOCKS * w);
        }
        i_0 = next_queries<C>(work, i_0);
        if (i_0 == work.first * C::Br) head++;
    }
}

/* An adder waits until those before it have added, and says so when it has.  While its own
 * additions are under way it looks how many have added to the block of dq that it comes to. */
template <class C, enum dtype T> struct own_turn {
    uint64_t *added, *counted;
    uint32_t phase = 1;
    int *counter = NULL, *before = NULL; /* of that block, and of the one before */
    int turn = 0, seen = 0;              /* how many add before it; how many have */

    __device__ void come_to(const struct backward_params<T> &params, const struct key_work &work,
                            int block, int i_0)
    {
        before = counter;
        counter = params.counter + 1 + block;
        turn = turn_of<C>(params.x, work, i_0);
    }
    __device__ bool wait()
    {
        wait_for_count(counter, turn, seen);
        return turn == 0;
    }
    __device__ void pass()
    {
        seen = counter_now(counter);
        tma_store_wait();
        if (!COUNTS_APART<C>) return count(before);
        mbarrier_wait(counted, phase);
        mbarrier_arrive(added);
        phase ^= 1;
    }
};

/* The adder of consumer w, as add_all() but for its turns: it looks ahead for the next one. */
template <class C, enum dtype T>
static __device__ __forceinline__ void add_in_order(backward_memory<C> &sm,
                                                    const struct backward_params<T> &params, int w,
                                                    own_turn<C, T> turn)
{
    const struct gradient<T> &x = params.x;
    const struct key_work &work = sm.work;
    constexpr int N = C::DQ_BLOCKS;
    uint32_t phase = 0;
    int head = work.head_kv * x.group, i_0 = work.first * C::Br;
    int block = dq_block<C>(x, head, i_0, N * w);
    turn.come_to(params, work, block, i_0);
#pragma unroll 1
    for (int left = work.n * x.group; left; left--) {
        float *to = x.dq_sum + (ptrdiff_t)block * 4096;
        const bool first = turn.wait();
#pragma unroll
        for (int i = 0; i < N; i++, phase ^= 1) {
            mbarrier_wait(&sm.dq_full[w], phase);
            if (first) tma_store_bytes(to + i * 4096, sm.dq[w], sizeof sm.dq[w]);
            else tma_add_floats(to + i * 4096, sm.dq[w]);
            tma_store_commit();
            if (i == N - 1 && left > 1) {
                i_0 = next_queries<C>(work, i_0);
                if (i_0 == work.first * C::Br) head++;
                block = dq_block<C>(x, head, i_0, N * w);
            }
            if (i == N - 1) turn.come_to(params, work, block, i_0);
            tma_store_wait_read();
            mbarrier_arrive(&sm.dq_empty[w]);
        }
        turn.pass();
    }
    tma_store_wait();
}

template <class C, enum dtype T>
static __global__ void __launch_bounds__(C::THREADS, 1)
    gradient_in_order_kernel(const __grid_constant__ struct backward_params<T> params)
{
    ordered_memory<C> &order = dynamic_shared<ordered_memory<C>>();
    any_memory<C> &sm = order;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            mbarrier_init(&order.added[i], 1);
            mbarrier_init(&order.counted[i], 1);
        }
        memory_init(sm);
        sm.work = nth_work<C>(params, atomicAdd(params.counter, 1));
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<24>();
        const int a = threadIdx.x / 32 - 1; /* an adder's number */
        if (threadIdx.x == 0) produce<C>(sm, params);
        if (threadIdx.x == 32 || threadIdx.x == 64)
            add_in_order<C>(sm, params, a, own_turn<C, T>{order.added + a, order.counted + a});
        if (COUNTS_APART<C> && threadIdx.x == 96) count_all(order, params);
    } else {
        setmaxnreg_inc<240>();
        consume_any<C>(sm, params, w - 1);
    }
}

template <class C> static size_t counters(const struct problem *p)
{
    return 1 + padded_rows(p, C::Br) * C::D / 4096;
}

static void backward(const struct problem *p, const struct arrays *a)
{
    with_config<ordered_config, 64, 128, 256>(p, [&](auto c) {
        using C = decltype(c);
        struct backward_params<C::TYPE_OF_T> params = backward_params_of<C>(p, a);
        params.counter = (int *)((char *)a->workspace + backward_workspace<C>(p));
        const int two_waves = max(1, 2 * persistent_blocks(1 << 30) / params.x.key_tiles);
        params.window = is_causal(params.x)            ? two_waves
                        : C::D == 256 && two_waves < 16 ? two_waves /* more leave the L2 cache */
                                                        : 16;
        CUDA_CHECK(cudaMemsetAsync(params.counter, 0, counters<C>(p) * sizeof(int),
                                   (cudaStream_t)a->stream));
        launch_backward<C, ordered_memory<C>, false>(gradient_in_order_kernel<C, C::TYPE_OF_T>, params,
                                                 p, a->stream);
    });
}

static size_t workspace(const struct problem *p)
{
    size_t bytes = 0;
    with_config<ordered_config, 64, 128, 256>(p, [&](auto c) {
        using C = decltype(c);
        bytes = backward_workspace<C>(p) + counters<C>(p) * sizeof(int);
    });
    return bytes;
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, 128); }

GPU_VARIANT(gradient_in_order) = {
    .name = "gradient_in_order",
    .idea = "dq in a fixed order",
    HOPPER_GRADIENT,
    .refuses = wide_refuses,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_BACKWARD, backward}},
    .on_gpu = GPU_TWIN(gradient_in_order),
};
