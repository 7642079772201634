/* huge.c: check --huge: arrays of more than 2^31 and 2^32 elements, on a GPU.
 *
 * An offset kept in 32 bits is right until an array has 2^31 elements (signed) or 2^32, and
 * then reads or writes elsewhere without a word.  Nothing as large is kept on the host
 * (huge_scene.h).  Rows are judged by the reference and rule of every check. */
#include "program/verbs.h"

#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"
#include "problem/variant.h"
#include "program/huge_scene.h"

static const struct huge huges[] = {
    {.what = "softmax of 2^20 + 7 rows of 4099",
     .p = {.op = OP_SOFTMAX, .rows = (1 << 20) + 7, .cols = 4099}},
    {.what = "attention, keys of 1024 heads",
     .p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1024, .heads_kv = 1024, .seqlen_q = 3,
           .seqlen_k = 32771, .head_dim = 128, .head_dim_v = 128},
     .by_keys = 1},
    {.what = "attention, queries of 128 heads",
     .p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 128, .heads_kv = 128,
           .seqlen_q = 262147, .seqlen_k = 65, .head_dim = 128, .head_dim_v = 128}},
    {.what = "attention, 2^24 + 5 keys of one head",
     .p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 2,
           .seqlen_k = (1 << 24) + 5, .head_dim = 128, .head_dim_v = 128},
     .by_keys = 1, .planted = 1},
};

/* Runs v and judges the spots.  Returns 1 passed, 0 failed, -1 no memory. */
static int check_huge_variant(const struct scene *s, const struct variant *v)
{
    struct arrays a = s->device;
    struct outputs out[SPOTS];
    size_t scratch = variant_scratch(v, &s->p);
    int ok = 1;
    a.workspace = scratch ? gpu_alloc(scratch) : NULL;
    if (scratch && !a.workspace) return -1;
    for (int t = 0; t < SPOTS; t++) {
        out[t] = outputs_new(&s->spots[t].p);
        move_outputs(s, &s->spots[t], &out[t], 1);
    }
    variant_call(v, &s->p, &a);
    gpu_wait();
    for (int t = 0; t < SPOTS; t++) {
        const struct spot *spot = &s->spots[t];
        move_outputs(s, spot, &out[t], 0);
        struct verdict verdict = compare(spot->standard, &out[t]);
        if (ok && !verdict.ok) {
            char index[80];
            verdict_index(&verdict, index, sizeof index);
            printf("FAILED   %s  %s  %s\n    head %zu, row %zu, %s%s: %s\n"
                   "    got %.9g  want %.9g  error %.3g  allowed %.3g\n", v->name,
                   s->huge->what, dtype_name(s->p.dtype), spot->head, spot->i,
                   verdict.array, index, verdict.reason, verdict.got, verdict.want,
                   verdict.err, verdict.allowed);
            ok = 0;
        }
        outputs_free(&out[t]);
    }
    if (scratch) gpu_free(a.workspace);
    return ok;
}

/* The narrowest type of v: half the memory. */
static enum dtype narrowest(const struct variant *v)
{
    return v->types & TYPE(F16) ? F16 : v->types & TYPE(BF16) ? BF16 : F32;
}

static const char *not_here(const struct variant *v, const struct huge *h,
                            enum dtype dtype)
{
    struct problem p = h->p;
    p.dtype = dtype;
    p.scale = 1;
    if (v->device != ON_GPU) return "not on a GPU";
    if (v->max_score < 50) return "scores up to 40";
    return variant_refuses(v, &p);
}

int check_huge(const struct stage *stage, const struct options *opt)
{
    size_t passed = 0, failed = 0, skipped = 0;
    for (size_t h = 0; h < sizeof huges / sizeof *huges; h++)
        for (int dtype = 0; dtype < N_DTYPES; dtype++) {
            struct scene s = {0};
            int set = 0;
            for (size_t i = 0; stage->variants[i]; i++) {
                const struct variant *v = variant_here(stage->variants[i]);
                if (opt->variant && strcmp(v->name, opt->variant)) continue;
                if (variant_unavailable(v) || (int)narrowest(v) != dtype) continue;
                if (not_here(v, &huges[h], (enum dtype)dtype)) continue;
                if (!set) set = set_scene(&s, &huges[h], (enum dtype)dtype) ? 1 : -1;
                int ok = set < 0 ? -1 : check_huge_variant(&s, v);
                if (ok)
                    printf("%-8s %-18s %-5s %s%s\n", ok < 0 ? "skipped" : "passed", v->name,
                           dtype_name((enum dtype)dtype), huges[h].what,
                           ok < 0 ? ": it does not fit into the GPU's memory" : "");
                fflush(stdout);
                passed += ok > 0, failed += ok == 0, skipped += ok < 0;
            }
            if (set) strike_scene(&s);
        }
    if (!passed && !failed && !skipped)
        printf("nothing was checked: needs a GPU%s%s%s\n", gpu_arch() ? "'s variant" : " (",
               gpu_arch() ? "" : gpu_why_not(), gpu_arch() ? "" : ")");
    printf("%zu checks passed, %zu failed, %zu skipped\n", passed, failed, skipped);
    return failed ? 1 : passed ? 0 : 77;
}
