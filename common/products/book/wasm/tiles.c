/* tiles.c: one small attention problem, done by each stage's own function. */
#include "figures.h"

#include "../../../../04_monoid_tiled_cpu/monoid.h"

/* Where the arrays of a problem lie in the arena, in floats. */
enum { Q = 0, K = 1024, V = 2048, O = 3072, LSE = 4096, SCRATCH = 5120 };

static struct problem small(int seqlen_q, int seqlen_k, int d, int causal)
{
    return (struct problem){.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                            .seqlen_q = (size_t)seqlen_q, .seqlen_k = (size_t)seqlen_k,
                            .head_dim = (size_t)d, .head_dim_v = (size_t)d,
                            .causal = causal, .scale = 1 / sqrtf((float)d)};
}

/* Queries of one tile against keys [first, end) of one tile: what stages 4 and 5 do while
 * both are on the chip.  The state of query i is at LSE: m, l; its o at O. */
void EXPORT(tile_step)(int seqlen_q, int seqlen_k, int d, int causal, int row, int rows,
                       int first, int end)
{
    struct problem p = small(seqlen_q, seqlen_k, d, causal);
    for (int i = row; i < row + rows && i < seqlen_q; i++) {
        float *state = arena + LSE + 2 * i, *o_i = arena + O + i * d;
        struct aggregate x = {state[0], state[1], o_i, (size_t)d};
        if (first == 0) aggregate_unit(&x);
        struct key_range keys = visible_keys(&p, (size_t)i);
        for (int j = first; j < end; j++) {
            if ((size_t)j < keys.first || (size_t)j >= keys.end) continue;
            float dot = 0;
            for (int c = 0; c < d; c++) dot += arena[Q + i * d + c] * arena[K + j * d + c];
            aggregate_push(&x, p.scale * dot, arena + V + j * d);
        }
        state[0] = x.m;
        state[1] = x.l;
    }
}

/* o_i / l of every query, after the last tile. */
void EXPORT(tile_finish)(int seqlen_q, int d)
{
    for (int i = 0; i < seqlen_q; i++) {
        float *state = arena + LSE + 2 * i, *o_i = arena + O + i * d, lse;
        struct aggregate x = {state[0], state[1], o_i, (size_t)d};
        aggregate_finish(&x, o_i, &lse);
    }
}

/* The whole problem as stage 1, 2 or 3 does it; o is at O. */
void EXPORT(stage_attention)(int stage, int seqlen_q, int seqlen_k, int d, int causal)
{
    struct problem p = small(seqlen_q, seqlen_k, d, causal);
    struct arrays a = {.q = arena + Q, .k = arena + K, .v = arena + V, .o = arena + O,
                       .lse = arena + LSE, .workspace = arena + SCRATCH};
    (stage == 1 ? attention_1 : stage == 2 ? attention_2 : attention_3)(&p, &a);
}

/* Bytes of main memory that the stage's cost model counts for the problem. */
double EXPORT(stage_bytes)(int stage, int seqlen_q, int seqlen_k, int d, int causal)
{
    struct problem p = small(seqlen_q, seqlen_k, d, causal);
    return (stage == 1 ? bytes_1 : stage == 2 ? bytes_2 : bytes_3)(&p);
}

/* Does query i see key j? */
int EXPORT(sees)(int seqlen_q, int seqlen_k, int causal, int i, int j)
{
    struct problem p = small(seqlen_q, seqlen_k, 1, causal);
    struct key_range keys = visible_keys(&p, (size_t)i);
    return (size_t)j >= keys.first && (size_t)j < keys.end;
}
