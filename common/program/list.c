/* list.c: one line a variant: name, device, types, operations, idea, passes over memory
 * (reads and writes of the large array), bytes. */
#include <stdio.h>
#include <string.h>

#include "program/options.h"
#include "problem/variant.h"

/* The shapes whose cost is listed: long enough that lower-order terms vanish. */
static struct problem example(enum op op)
{
    return (struct problem){.op = op, .rows = 1, .cols = 1 << 20, .batch = 1, .heads_q = 1,
                            .heads_kv = 1, .seqlen_q = op == OP_ATTENTION ? 1 << 20 : 1,
                            .seqlen_k = 1 << 20, .head_dim = 64, .head_dim_v = 64,
                            .scale = 0.125f};
}

/* The operation whose cost stands for the variant: the first that it does. */
static enum op main_op(const struct variant *v)
{
    for (int op = 0; op < N_OPS; op++)
        if (variant_does(v, (enum op)op)) return (enum op)op;
    return N_OPS;
}

static void append(char *text, size_t size, const char *word, const char *separator)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", n ? separator : "", word);
}

/* "cpu", "gpu sm_80+", "gpu sm_90a", "cpu-executed". */
static void device_text(const struct variant *v, char *text, size_t size)
{
    int gpu = v->device == ON_GPU || variant_does(v, main_op(v)) == needs_gpu;
    if (!gpu) snprintf(text, size, "%s", device_name(v->device));
    else if (v->only_arch) snprintf(text, size, "gpu sm_%da", v->only_arch);
    else snprintf(text, size, "gpu sm_%d+", v->least_arch);
}

static void print_variant(const struct variant *listed)
{
    const struct variant *v = variant_here(listed);
    char device[32], types[32] = "", ops[160] = "", walks[32] = "-", bytes[48] = "-";
    device_text(v, device, sizeof device);
    for (int t = F32; t <= BF16; t++)
        if (v->types & TYPE(t)) append(types, sizeof types, dtype_name((enum dtype)t), ",");
    for (int op = 0; op < N_OPS; op++)
        if (variant_does(v, (enum op)op))
            append(ops, sizeof ops, op_name((enum op)op), ",");
    enum op op = main_op(v);
    if (v->cost && op != N_OPS) {
        struct problem p = example(op);
        if (!(v->types & TYPE(F32))) p.dtype = v->types & TYPE(BF16) ? BF16 : F16;
        struct cost cost = v->cost(&p);
        int scores = p.op == OP_ATTENTION || p.op == OP_LOGSOFTMAX_ATTENTION;
        snprintf(walks, sizeof walks, "%g passes over memory", cost.passes);
        double unit = scores ? score_count(&p) : (double)p.rows * (double)p.cols;
        if (p.op == OP_SCAN || p.op == OP_UPDATE)
            unit = (double)p.seqlen_k;
        double beyond = scores ? cost.bytes - attention_io_bytes(&p) : cost.bytes;
        snprintf(bytes, sizeof bytes, "%.3g bytes/%s", beyond < 1e-9 * cost.bytes ? 0 : beyond / unit,
                 scores ? "score" : p.op == OP_SCAN || p.op == OP_UPDATE ? "key" : "element");
    }
    printf("%-18s  %-13s  %-12s  %-30s  %s  %s  %s\n", v->name, device, types, ops, v->idea,
           walks, bytes);
}

/* A line for each shape of some at which the choice of v is another. */
static void print_choices(const struct variant *v)
{
    static const size_t cols[] = {512, 16384, 1 << 20}, dims[] = {64, 128, 256};
    char last[200] = "";
    if (!v->picks) return;
    for (int i = 0; i < 12; i++) {
        int rows = main_op(v) == OP_SOFTMAX;
        struct problem p = example(main_op(v));
        if (rows && i > 2) return;
        p.cols = p.rows ? cols[i % 3] : 0;
        p.seqlen_q = p.seqlen_k = cols[i / 2 % 2];
        p.head_dim = p.head_dim_v = dims[i / 4];
        p.causal = i % 2;
        p.dtype = v->types & TYPE(F32) ? F32 : v->types & TYPE(BF16) ? BF16 : F16;
        if (variant_refuses(v, &p) || !strcmp(v->picks(&p), last)) continue;
        snprintf(last, sizeof last, "%s", v->picks(&p));
        if (rows) printf("    from %zu columns: %s\n", p.cols, last);
        else printf("    from head_dim %zu, %zu keys%s: %s\n", p.head_dim, p.seqlen_k,
                    p.causal ? ", causal" : "", last);
    }
}

int list_stage(const struct stage *stage, const struct options *opt)
{
    for (size_t i = 0; stage->variants[i]; i++) {
        print_variant(stage->variants[i]);
        if (opt->verbose) print_choices(variant_here(stage->variants[i]));
    }
    return 0;
}
