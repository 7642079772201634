/* arch: sm_90a */
/* 08_in_order.cu: rung 8 of the backward ladder: the same bits in every run.
 *
 * In rungs 5, 6 and 7 blocks add to dq in any order, and a sum of floats depends on the order.
 * Here every block of dq has a counter, and an adder waits until those before it have
 * added.  The first stores, so that nobody sets dq to 0.  Consumers do not wait for that.
 *
 * Which order?  Blocks of keys of a head must come to each tile of queries one after another.
 *
 *     causal   all begin at the diagonal, and the last keys that a query sees add first
 *              (FlashAttention-3 has it as SPT): the next ones are a step behind
 *     others   all begin with the first queries, and the first keys add first.  Who begins at the
 *              same time must wait, so many heads begin together, with few blocks each
 *
 * So causal heads begin with their shortest blocks, and at the end all would wait for the longest.
 * The last heads, two waves of blocks, go the other way: the longest first, and from the last
 * queries to the diagonal (not at d = 128, where that would take more time than it saves).  A
 * block's number is drawn when it begins: whom it waits for has begun.
 *
 * This is the one difference; the rest is that of rung 7 at d = 64, and of rungs 5 and 6 above. */
#define BESIDE_RUNG_5
#define BESIDE_RUNG_6
#define BESIDE_RUNG_7
#include "backward/05_overlap.cu"
#include "backward/06_wide_heads.cu"
#include "backward/07_narrow_heads.cu"

template <class Type, enum dtype DTYPE, int HEAD_DIM>
struct ordered_config
    : std::conditional_t<HEAD_DIM == 64, narrow_config<Type, DTYPE, HEAD_DIM>,
                         staged_config<Type, DTYPE, HEAD_DIM>> {
    static constexpr int STEP = HEAD_DIM == 128 ? 1 : 0; /* no register is left for it at 128 */
};

/* The work of the n-th block of threads to begin. */
template <class C, enum dtype T>
static __device__ __forceinline__ void set_nth_work(any_work<C> &work,
                                                    const struct backward_params<T> &params, int n)
{
    const struct gradient<T> &x = params.x;
    const int all = x.batch * x.heads_kv, turning = C::STEP ? 0 : params.window;
    const int heads = is_causal(x) ? max(0, all - turning) : 0;
    const int tile = n % x.key_tiles;
    if (n < heads * x.key_tiles) /* the last keys first */
        return set_work<C>(work, params, n - tile + x.key_tiles - 1 - tile);
    set_work<C>(work, params, nth_tile(params, n, heads));
    if (is_causal(x)) work.first += work.n - 1, work.step = -1;
}

/* How many blocks of keys add to a tile of queries before this one. */
template <class C, enum dtype T>
static __device__ __forceinline__ int turn_of(const struct backward_params<T> &params,
                                              const any_work<C> &work, int i_0)
{
    const struct gradient<T> &x = problem_of<C>(params, work);
    struct key_range32 seen = some_row_sees(x.mask, i_0, min(i_0 + C::Br, x.seqlen_q));
    const int tile = work.j_0 / C::Bc;
    const bool last_first = is_causal(params.x) && work.step > 0;
    return last_first ? (seen.end - 1) / C::Bc - tile : tile - seen.first / C::Bc;
}

/* A count waits for all that the multiprocessor writes.  An adder has no time for that: a thread
 * of an idle warp counts for it.  This is how it is told what. */
struct post { int *counter; uint64_t full, empty; };

template <class C>
using memory_of_rung =
    std::conditional_t<C::D == 64, narrow_memory<C>,
                       std::conditional_t<C::D == 256, wide_memory<C>, backward_memory<C>>>;

template <class C> struct ordered_memory {
    memory_of_rung<C> rung;
    struct post post[C::D == 64 ? 1 : 2]; /* of each adder */
};

/* The thread that counts, until there is nothing more. */
template <int ADDERS> static __device__ __forceinline__ void count_all(struct post (&from)[ADDERS])
{
    int *counter = NULL;
    uint32_t phase = 0;
    do {
        for (struct post &post : from) {
            mbarrier_wait(&post.full, phase);
            counter = post.counter;
            mbarrier_arrive(&post.empty);
            if (counter) count(counter);
        }
        phase ^= 1;
    } while (counter);
}

/* An adder waits until those before it have added, and has it counted when it has. */
template <class C> struct own_turn {
    struct post &to;
    int *counter = NULL;
    uint32_t phase = 0;

    template <enum dtype T>
    __device__ bool wait(const struct backward_params<T> &params, const any_work<C> &work,
                         int block, int i_0)
    {
        const int turn = turn_of<C>(params, work, i_0);
        const ptrdiff_t own = problem_of<C>(params, work).dq_sum - params.x.dq_sum;
        counter = params.counter + 1 + own / 4096 + block;
        wait_for_count(counter, turn);
        return turn == 0;
    }
    __device__ void pass()
    {
        tma_store_wait();
        send(counter);
    }
    __device__ void send(int *what)
    {
        mbarrier_wait(&to.empty, phase ^= 1);
        to.counter = what;
        mbarrier_arrive(&to.full);
    }
};

/* A place of dq in shared memory, and the phase that its barriers are in. */
struct dq_place { const float (&dq)[64 * 64]; uint64_t &full, &empty; uint32_t phase; };

/* Has TMA add a consumer's blocks of dq, the first of each tile `of_tile`, for one tile of keys.
 *   n  blocks so far       place  of block n */
template <class C, enum dtype T, class PLACE>
static __device__ __forceinline__ void add_tiles(const struct backward_params<T> &params,
                                                 const any_work<C> &work, int of_tile,
                                                 own_turn<C> &turn, int &n, PLACE place)
{
    const struct gradient<T> &x = problem_of<C>(params, work);
    int head = work.head_kv * x.group, i_0 = work.first * C::Br;
#pragma unroll 1
    for (int left = work.n * x.group; left; left--) {
        const int block = dq_block<C>(x, head, i_0, of_tile);
        const bool first = turn.wait(params, work, block, i_0);
#pragma unroll
        for (int i = 0; i < C::DQ_BLOCKS; i++, n++) {
            const struct dq_place at = place(n);
            float *to = x.dq_sum + (ptrdiff_t)(block + i) * 4096;
            mbarrier_wait(&at.full, at.phase);
            if (first) tma_store_bytes(to, at.dq, sizeof at.dq);
            else tma_add_floats(to, at.dq);
            tma_store_commit();
            tma_store_wait_read();
            mbarrier_arrive(&at.empty);
        }
        turn.pass();
        i_0 = next_queries<C>(work, i_0);
        if (i_0 == work.first * C::Br) head++;
    }
}

/* The adder of consumer w, as add_all() but for its turns. */
template <class C, enum dtype T>
static __device__ __forceinline__ void add_in_order(backward_memory<C> &sm,
                                                    const struct backward_params<T> &params, int w,
                                                    own_turn<C> turn)
{
    int n = 0;
    add_tiles<C>(params, sm.work, C::DQ_BLOCKS * w, turn, n, [&](int n) {
        return dq_place{sm.dq[w], sm.dq_full[w], sm.dq_empty[w], (uint32_t)n & 1};
    });
    turn.send(NULL);
}

template <class C, enum dtype T>
static __device__ __forceinline__ void add_in_order(narrow_memory<C> &sm,
                                                    const struct backward_params<T> &params,
                                                    own_turn<C> turn)
{
    int n = 0;
    for (struct pipeline_state keys = {0, 0};; advance<2>(keys)) {
        mbarrier_wait(&sm.kv_full[keys.index], keys.phase);
        const any_work<C> work = sm.work[keys.index];
        if (work.n < 0) return turn.send(NULL);
        add_tiles<C>(params, work, 0, turn, n, [&](int n) {
            return dq_place{sm.dq[n & 1], sm.dq_full[n & 1], sm.dq_empty[n & 1], phase_of(n)};
        });
        mbarrier_arrive(&sm.kv_empty[keys.index]);
    }
}

template <class C, enum dtype T>
static __global__ void __launch_bounds__(C::THREADS, 1)
    gradient_in_order_kernel(const __grid_constant__ struct backward_params<T> params)
{
    struct ordered_memory<C> &memory = dynamic_shared<ordered_memory<C>>();
    auto &sm = memory.rung;
    auto &posts = memory.post;
    if (threadIdx.x == 0)
        for (struct post &post : posts) {
            mbarrier_init(&post.full, 1);
            mbarrier_init(&post.empty, 1);
        }
    if constexpr (C::D == 64) {
        lasting_block(
            sm, params, [&] { add_in_order<C>(sm, params, own_turn<C>{posts[0]}); },
            [&](any_work<C> &w, int n) { set_nth_work<C>(w, params, n); });
        if (threadIdx.x == 96) count_all(posts);
    } else {
        if (threadIdx.x == 0) {
            memory_init<C>(sm);
            set_nth_work<C>(sm.work, params, atomicAdd(params.counter, 1));
        }
        __syncthreads();
        int w = warpgroup_index();
        if (w == 0) {
            setmaxnreg_dec<24>();
            const int a = threadIdx.x / 32 - 1; /* an adder's number */
            if (threadIdx.x == 0) produce<C>(sm, params);
            if (threadIdx.x == 32 || threadIdx.x == 64)
                add_in_order<C>(sm, params, a, own_turn<C>{posts[a]});
            if (threadIdx.x == 96) count_all(posts);
        } else {
            setmaxnreg_inc<240>();
            consume<C>(sm, params, w - 1);
        }
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
        launch_backward<C, ordered_memory<C>, false>(gradient_in_order_kernel<C, C::TYPE_OF_T>,
                                                     params, a->stream, C::D == 64);
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

static int yields(const struct problem *p)
{
    return !p->deterministic && !is_faster_in_order(p);
}

GPU_VARIANT(gradient_in_order, "dq in a fixed order",
    HOPPER_GRADIENT, .refuses = wide_refuses, .yields = yields, .workspace = workspace,
    .cost = cost, .does = {{OP_BACKWARD, backward}});
