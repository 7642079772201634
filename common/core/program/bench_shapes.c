/* bench_shapes.c: the standard shapes that bench measures. */
#include "program/bench.h"

/* Softmax of n numbers in rows of `c`; attention of `b` batches, `h` heads of width `w`. */
#define ROWS(flags, n, c)                                                                  \
    {flags, {.op = OP_SOFTMAX, .rows = ((size_t)(n)) / (c), .cols = (c)}}
#define HEADS(flags, b, h, hk, nq, nk, w, mask)                                            \
    {flags, {.op = OP_ATTENTION, .batch = b, .heads_q = h, .heads_kv = hk, .seqlen_q = nq, \
             .seqlen_k = nk, .head_dim = w, .head_dim_v = w, .causal = mask}}
#define SQUARE(flags, n, w, mask) HEADS(flags, 1, 1, 1, n, n, w, mask)
/* 16k tokens, 2048 wide in all: the shapes that attention kernels are compared on. */
#define TOKENS(flags, n, w, mask) HEADS(flags, 16384 / n, 2048 / w, 2048 / w, n, n, w, mask)
#define LADDER(flags, w, mask)                                                             \
    TOKENS(flags, 512, w, mask), TOKENS(flags, 1024, w, mask),                             \
    TOKENS(flags, 2048, w, mask), TOKENS(flags, 4096, w, mask),                            \
    TOKENS(flags, 8192, w, mask), TOKENS(flags, 16384, w, mask)

const struct shape bench_shapes[] = {
    /* rows that stay in the cache, then rows that come from main memory */
    ROWS(CPU, 1 << 16, 64), ROWS(CPU, 1 << 16, 256), ROWS(CPU, 1 << 16, 1024),
    ROWS(CPU | QUICK | EXECUTED, 1 << 16, 4096), ROWS(CPU, 1 << 16, 16384),
    ROWS(CPU, 1 << 16, 65536),
    ROWS(CPU, 1 << 25, 1024), ROWS(CPU, 1 << 25, 65536), ROWS(CPU | QUICK, 1 << 25, 1 << 20),
    ROWS(CPU, 1 << 25, 1 << 25), ROWS(CPU, 1 << 26, 1 << 26),
    ROWS(GPU, 1 << 28, 256), ROWS(GPU, 1 << 28, 512), ROWS(GPU, 1 << 28, 1024),
    ROWS(GPU, 1 << 28, 2048), ROWS(GPU | QUICK, 1 << 28, 4096), ROWS(GPU, 1 << 28, 8192),
    ROWS(GPU, 1 << 28, 16384), ROWS(GPU, 1 << 28, 32768), ROWS(GPU, 1 << 28, 65536),
    ROWS(GPU, 1 << 28, 131072), ROWS(GPU, 1 << 28, 1 << 20), ROWS(GPU, 1 << 26, 1 << 26),
    /* one head: the work that all five stages share */
    SQUARE(EXECUTED, 64, 64, 0), SQUARE(CPU | EXECUTED, 128, 64, 0),
    SQUARE(CPU | GPU | QUICK | EXECUTED | THIRTYTWO, 256, 64, 0),
    SQUARE(CPU | GPU | THIRTYTWO, 512, 64, 0),
    SQUARE(CPU | GPU | QUICK | THIRTYTWO, 1024, 64, 0),
    SQUARE(CPU | GPU | THIRTYTWO, 2048, 64, 0),
    SQUARE(CPU | GPU | THIRTYTWO, 4096, 64, 0), SQUARE(CPU, 8192, 64, 0),
    SQUARE(CPU | FAST, 16384, 64, 0),
    SQUARE(CPU | FAST, 2048, 128, 0), SQUARE(CPU | FAST, 4096, 128, 0), SQUARE(CPU | FAST, 8192, 128, 0),
    SQUARE(CPU | FAST, 512, 64, 1), SQUARE(CPU | FAST, 1024, 64, 1), SQUARE(CPU | FAST, 2048, 64, 1),
    SQUARE(CPU | FAST, 4096, 64, 1), SQUARE(CPU | FAST, 8192, 64, 1), SQUARE(CPU | FAST, 4096, 128, 1),
    SQUARE(CPU | FAST, 8192, 128, 1),
    HEADS(CPU, 1, 16, 16, 1, 8192, 128, 0), HEADS(CPU, 1, 16, 16, 1, 32768, 128, 0),
    /* f32 on the GPU: 16 heads of 4096; one query */
    HEADS(GPU | THIRTYTWO | QUICK, 1, 16, 16, 4096, 4096, 64, 0),
    HEADS(GPU | THIRTYTWO, 1, 16, 16, 4096, 4096, 128, 0),
    HEADS(GPU | THIRTYTWO, 1, 16, 16, 4096, 4096, 64, 1),
    HEADS(GPU | THIRTYTWO, 16, 16, 16, 1, 8192, 128, 0),
    HEADS(GPU | THIRTYTWO, 1, 16, 16, 1, 8192, 128, 0),
    LADDER(GPU | SIXTEEN, 64, 0), LADDER(GPU | SIXTEEN, 64, 1),
    LADDER(GPU | SIXTEEN, 128, 0), LADDER(GPU | SIXTEEN, 128, 1),
    LADDER(GPU | SIXTEEN, 256, 0), LADDER(GPU | SIXTEEN, 256, 1),
    TOKENS(GPU | SIXTEEN | QUICK, 4096, 128, 0),
    /* one query, many keys */
    HEADS(GPU | SIXTEEN, 16, 16, 16, 1, 8192, 128, 0),
    HEADS(GPU | SIXTEEN, 16, 16, 16, 1, 65536, 128, 0),
    HEADS(GPU | SIXTEEN, 1, 16, 16, 1, 8192, 128, 0),
    HEADS(GPU | SIXTEEN, 1, 16, 16, 1, 65536, 128, 0),
    HEADS(GPU | SIXTEEN, 16, 32, 4, 1, 8192, 128, 0),
};
const size_t n_bench_shapes = sizeof bench_shapes / sizeof bench_shapes[0];
