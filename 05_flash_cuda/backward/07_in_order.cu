/* arch: sm_90a */
/* 07_in_order.cu: rung 7 of the backward ladder: the same bits in every run.
 *
 * In rungs 5 and 6 blocks add to dq in any order, and a sum of floats depends on the order.
 * Here every block of dq has a counter, and an adder waits until those before it have
 * added.  The first stores, so that nobody sets dq to 0.  Consumers do not wait for that.
 *
 * Which order?  Without a mask all blocks begin with the first tile of queries: the first keys
 * add first, and each block runs a little behind the one before.  It stays so if those that
 * begin together are the first tiles of keys of many heads, then their second ones, and so on:
 * at most eight or so of a head run at once, so that the last does not wait long for the first.
 * Causal: a block of keys begins at the diagonal, so that the last keys that a query sees add
 * first (FlashAttention-3 has it as SPT), head after head.  A block's number is drawn when it
 * begins: whom it waits for has begun.
 *
 * This is the one difference; the rest is that of rungs 5 and 6. */
#define BESIDE_RUNG_6
#include "backward/06_wide_heads.cu"

/* How many blocks of keys add to a tile of queries before this one. */
template <class C, enum dtype T>
static __device__ __forceinline__ int turn_of(const struct gradient<T> &x, int j_0, int i_0)
{
    struct key_range32 seen = some_row_sees(x.mask, i_0, min(i_0 + C::Br, x.seqlen_q));
    return is_causal(x) ? (seen.end - 1) / C::Bc - j_0 / C::Bc : j_0 / C::Bc - seen.first / C::Bc;
}

/* An adder waits until those before it have added, and says so when it has. */
template <class C, enum dtype T> struct own_turn {
    __device__ bool wait(const struct backward_params<T> &params, int block, int j_0, int i_0)
    {
        const int turn = turn_of<C>(params.x, j_0, i_0);
        wait_for_count(params.counter + 1 + block, turn);
        return turn == 0;
    }
    __device__ void pass(const struct backward_params<T> &params, int block)
    {
        tma_store_wait();
        count(params.counter + 1 + block);
    }
};

template <class C, enum dtype T>
static __global__ void __launch_bounds__(C::THREADS, 1)
    gradient_in_order_kernel(const __grid_constant__ struct backward_params<T> params)
{
    any_memory<C> &sm = dynamic_shared<any_memory<C>>();
    if (threadIdx.x == 0) {
        memory_init(sm);
        const int n = atomicAdd(params.counter, 1);
        sm.work = key_work_of<C>(params.x, nth_tile(params, n, is_causal(params.x)));
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce<C>(sm, params);
        if (threadIdx.x == 32 || threadIdx.x == 64)
            add_all<C>(sm, params, threadIdx.x / 32 - 1, own_turn<C, T>());
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
    with_config<staged_config, 64, 128, 256>(p, [&](auto c) {
        using C = decltype(c);
        struct backward_params<C::TYPE_OF_T> params = backward_params_of<C>(p, a);
        params.counter = (int *)((char *)a->workspace + backward_workspace<C>(p));
        const int whole = persistent_blocks(1 << 30) / params.x.key_tiles;
        const int least = C::D < 256 && p->seqlen_k <= 4096 ? 16 : 1; /* more leave the L2 cache */
        params.window = is_causal(params.x) ? 1 : whole > least ? whole : least;
        CUDA_CHECK(cudaMemsetAsync(params.counter, 0, counters<C>(p) * sizeof(int),
                                   (cudaStream_t)a->stream));
        launch_backward<C, any_memory<C>, false>(gradient_in_order_kernel<C, C::TYPE_OF_T>, params,
                                                 p, a->stream);
    });
}

static size_t workspace(const struct problem *p)
{
    size_t bytes = 0;
    with_config<staged_config, 64, 128, 256>(p, [&](auto c) {
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
