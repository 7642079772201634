/* arch: sm_90a */
/* 06_in_order.cu: rung 6 of the backward ladder: the same bits in every run.
 *
 * In rung 5 blocks add to dq in any order, and a sum of floats depends on the order.
 * Here every block of dq has a counter, and an adder waits until those before it have
 * added.  Consumers do not wait for that.
 *
 * Which order?  Blocks must come to a tile of queries one after another, or they wait for
 * the whole run.  Without a mask they all begin with the first tile, so that the first
 * keys add first, and each block runs a little behind the one before.  Causal: a block of
 * keys begins at the diagonal, so that the last keys that a query sees add first
 * (FlashAttention-3 has it as SPT).  A block's number is drawn when it begins: whom it
 * waits for has begun.
 *
 * This is the one difference; the rest is rung 5's. */
#define BESIDE_RUNG_5
#include "backward/05_overlap.cu"

/* Are the last keys first?  Where some are hidden behind a query. */
template <enum dtype T>
static __device__ __forceinline__ bool from_the_end(const struct gradient<T> &x)
{
    return x.mask.last < x.seqlen_k;
}

/* How many blocks of keys add to a tile of queries before this one. */
template <class C, enum dtype T>
static __device__ __forceinline__ int turn_of(const struct gradient<T> &x, int j_0, int i_0)
{
    struct key_range32 seen = some_row_sees(x.mask, i_0, min(i_0 + C::Br, x.seqlen_q));
    return from_the_end(x) ? (seen.end - 1) / C::Bc - j_0 / C::Bc : j_0 / C::Bc - seen.first / C::Bc;
}

/* An adder waits until those before it have added, and says so when it has. */
template <class C, enum dtype T> struct own_turn {
    __device__ void wait(const struct backward_params<T> &params, int block, int j_0, int i_0)
    {
        wait_for_count(params.counter + 1 + block, turn_of<C>(params.x, j_0, i_0));
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
    backward_memory<C> &sm = dynamic_shared<backward_memory<C>>();
    if (threadIdx.x == 0) {
        const int n = atomicAdd(params.counter, 1), tile = n % params.x.key_tiles;
        memory_init(sm);
        sm.work = key_work_of<C>(
            params.x, from_the_end(params.x) ? n - tile + params.x.key_tiles - 1 - tile : n);
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce(sm, params);
        if (threadIdx.x == 32 || threadIdx.x == 64)
            add_all(sm, params, threadIdx.x / 32 - 1, own_turn<C, T>());
    } else {
        setmaxnreg_inc<240>();
        consume(sm, params, w - 1);
    }
}

static size_t counters(const struct problem *p, int br)
{
    return 1 + 2 * padded_rows(p, br) / br;
}

static void backward(const struct problem *p, const struct arrays *a)
{
    with_config<staged_config>(p, [&](auto c) {
        using C = decltype(c);
        struct backward_params<C::TYPE_OF_T> params = backward_params_of<C>(p, a);
        params.counter = (int *)((char *)a->workspace + backward_workspace<C>(p));
        CUDA_CHECK(cudaMemsetAsync(params.counter, 0, counters(p, C::Br) * sizeof(int),
                                   (cudaStream_t)a->stream));
        launch_backward<C, backward_memory<C>>(gradient_in_order_kernel<C, C::TYPE_OF_T>, params, p,
                                               a->stream);
    });
}

static size_t workspace(const struct problem *p)
{
    size_t bytes = 0;
    with_config<staged_config>(p, [&](auto c) {
        using C = decltype(c);
        bytes = backward_workspace<C>(p) + counters(p, C::Br) * sizeof(int);
    });
    return bytes;
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, 128); }

GPU_VARIANT(gradient_in_order) = {
    .name = "gradient_in_order",
    .idea = "dq in a fixed order",
    HOPPER_GRADIENT,
    .refuses = hopper_gradient_refuses,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_BACKWARD, backward}},
    .on_gpu = GPU_TWIN(gradient_in_order),
};
