/* variants.cu: what the harness must know of stage 5: its kernels in the order of the ladder, the
 * trace of rung 1, main.  The algorithm is in portable/, hopper/ and split_kv/; each kernel's
 * descriptor stands at the end of its file. */
#include "harness.h"

#include "gpu/cuda_check.h"
#include "multi_gpu/strategies.h"
#include "portable/trace_tile.h"

#include <vector>

#define RUNG(name, ...) extern "C" const struct variant name;
#define BESIDE(name) RUNG(name)
#define GRADIENT(name, ...) RUNG(name)
#include "rungs.h"
#undef RUNG

#define RUNG(name, ...) &name,
static const struct variant *const variants[] = {
#include "rungs.h"
    NULL,
};
#undef RUNG
#undef BESIDE
#undef GRADIENT

#define RUNG(name, type, ...) {#type, "", __VA_ARGS__},
#define BESIDE(name) {"", "", "", "", ""},
#define GRADIENT(name, over, expected, because) {"", over, expected, because, ""},
static const struct rung rungs[] = {
#include "rungs.h"
};

/* The state of rung 1 after each tile, recorded by the kernel itself (trace_tile.h).  The scores come
 * out as x because q = (1), k_j = (x_j), scale = 1.  A short row is dealt out to several
 * tiles of Bc = 32 keys; what is missing there is the unit: keys of bias -INFINITY. */
static void trace_row(const float *x, size_t n, const float *v)
{
    const size_t bc = 32, most_tiles = 8, d = 2;
    size_t each = (n + most_tiles - 1) / most_tiles; /* scores in a tile */
    if (each > bc) each = bc;
    size_t n_tiles = (n + each - 1) / each, n_keys = n_tiles * bc;
    std::vector<float> k(n_keys), values(n_keys * d), bias(n_keys, -INFINITY), o(d);
    std::vector<float> states(n_tiles * (4 + d));
    for (size_t j = 0; j < n; j++) {
        size_t key = j / each * bc + j % each;
        bias[key] = 0.0f;
        k[key] = x[j];
        for (size_t c = 0; c < d; c++) values[key * d + c] = v[j * d + c];
    }
    float q = 1.0f, lse;
    const struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                              .seqlen_q = 1, .seqlen_k = n_keys, .head_dim = 1, .head_dim_v = d,
                              .has_bias = 1, .scale = 1.0f};
    const struct arrays a = {.q = &q, .k = k.data(), .v = values.data(), .bias = bias.data(),
                             .o = o.data(), .lse = &lse};
    tile_trace = states.data();
    tiled.does[0].function(&p, &a);
    tile_trace = NULL;
    printf("rung 1, tiles of %zu keys: %zu of the row, the others masked\n"
           "step                    x            m            l   correction  o\n", bc, each);
    for (size_t i = 0; i < n_tiles; i++) {
        const float *s = &states[i * (4 + d)];
        printf("tile %-7zu %12.6g %12.6g %12.6g %12.6g  %.6g %.6g\n", i, s[0], s[1], s[2], s[3],
               s[4], s[5]);
    }
}

/* Several GPUs: NULL in a program without NCCL (ranks/none.c). */
extern "C" __attribute__((weak)) const struct kind_of_rank gpus_as_ranks;

static const struct stage flash_cuda = {
    .number = 5, .name = "05_flash_cuda",
    .idea = "the whole of attention in one kernel: tiles on the chip, a ladder of rungs",
    .variants = variants,
    .rungs = rungs,
    .after_trace = trace_row,
    .strategies = gpu_strategies,
    .kind_of_rank = &gpus_as_ranks,
    .on_ranks = on_ranks,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &flash_cuda); }
