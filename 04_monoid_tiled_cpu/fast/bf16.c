/* bf16.c: the variants dot_bf16 and amx: what they need, cost and promise.  Their code is in
 * files of the same names, compiled for instructions that this machine may lack; this file is
 * not, and asks the processor first. */
#include "serves.h"

/* Of dot_bf16.c and amx.c. */
variant_function dot_bf16_attention, amx_attention;
size_t dot_bf16_workspace(const struct problem *p), amx_workspace(const struct problem *p);
extern const int dot_bf16_is_compiled, amx_is_compiled; /* 0: the compiler knew no such thing */
double amx_products(void); /* the ceiling of the matrix unit: some products, in flops */

#if defined __x86_64__ && defined __linux__
#include <cpuid.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of EDX and EAX of leaf 7. */
enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AVX512_BF16 = 1 << 5 };

/* The vectors that bf16.h is compiled for; the operating system saves them too. */
static int has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}

/* The processor is asked once: in a virtual machine CPUID takes longer than a small problem. */
static const char *lacks_dot_bf16(void)
{
    static int has = -1;
    unsigned a = 0, b, c, d;
    if (!dot_bf16_is_compiled) return "a compiler that knows AVX512-BF16";
    if (has < 0) {
        __get_cpuid_count(7, 1, &a, &b, &c, &d);
        has = has_avx512() && (a & AVX512_BF16);
    }
    return has ? NULL : "AVX512-BF16";
}

/* Tiles are 8 KiB of state that Linux does not save for a process unless it asks. */
static int tiles_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

static const char *lacks_amx(void)
{
    static int has = -1, permitted;
    unsigned a, b, c, d = 0;
    if (!amx_is_compiled) return "a compiler that knows AMX";
    if (has < 0) {
        __get_cpuid_count(7, 0, &a, &b, &c, &d);
        int tiles = has_avx512() && (d & AMX_BF16) && (d & AMX_TILE);
        permitted = tiles && tiles_permitted();
        has = tiles;
    }
    if (!has) return "AMX for bf16";
    return permitted ? NULL : "an operating system that permits AMX";
}
#else
static const char *lacks_dot_bf16(void) { return "AVX512-BF16"; }
static const char *lacks_amx(void) { return "AMX for bf16"; }
#endif

/* v is read once more, and v^T written and read: passes over an input, not over the scores. */
static struct cost cost(const struct problem *p)
{
    double v = (double)p->batch * (double)p->heads_kv * (double)p->seqlen_k * (double)p->head_dim_v;
    return (struct cost){.passes = 0, .bytes = attention_io_bytes(p) + 2 * 2 * v,
                         .exps = score_count(p)};
}

const struct variant bf16_dot = {
    .name = "dot_bf16", .idea = "pairs of bf16",
    SERVES(TYPE(BF16)), .all_cores = 1, .lacks = lacks_dot_bf16,
    .workspace = dot_bf16_workspace, .cost = cost,
    .does = {{OP_ATTENTION, dot_bf16_attention}},
};

const struct variant bf16_amx = {
    .name = "amx", .idea = "AMX tiles",
    SERVES(TYPE(BF16)), .all_cores = 1, .lacks = lacks_amx, .matrix_flops = amx_products,
    .workspace = amx_workspace, .cost = cost,
    .does = {{OP_ATTENTION, amx_attention}},
};
