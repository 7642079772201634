/* huge.c: check --huge: arrays of more than 2^31 and 2^32 elements, on a GPU.
 *
 * An offset kept in 32 bits is right until an array has 2^31 elements (signed) or 2^32, and
 * then reads or writes elsewhere without a word.  Nothing as large is kept on the host, which
 * knows every number all the same: element e of an array is block[e % PERIOD], PERIOD a prime, so
 * an address that is off by 2^31 or 2^32 holds other numbers.  Rows are chosen at the start, on
 * 2^31, on 2^32 and at the end, and judged by the reference and rule of every check. */
#include "program/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "problem/host_memory.h"
#include "problem/random.h"
#include "problem/variant.h"
#include "verification/compare.h"

enum { SPOTS = 4 };

/* A problem, and which of its arrays is the large one. */
struct huge {
    const char *what;
    struct problem p;
    int by_keys; /* rows are chosen by where their keys lie, else by where q or x does */
    int planted; /* all keys are 0 but one near the end, which takes all the weight */
};

/* One row that is judged: query i of a head, or row i of x. */
struct spot {
    size_t head, i;
    struct problem p; /* this row alone */
    struct arrays a;  /* its inputs */
    struct standard *standard;
};

/* A huge problem in one type, on the GPU. */
struct scene {
    const struct huge *huge;
    struct problem p;
    struct arrays device;
    struct spot spots[SPOTS];
    void *block; /* PERIOD normal numbers, in the problem's type */
};

enum { PERIOD = 4000037, KEPT_KEYS = 64 };

static void *need_bytes(size_t n, enum dtype dtype)
{
    return xcalloc(n ? n : 1, dtype_size(dtype));
}

static void *block_new(enum dtype dtype)
{
    struct random r = {1};
    void *block = need_bytes(PERIOD, dtype);
    for (size_t e = 0; e < PERIOD; e++) dtypes[dtype].store(block, e, random_normal(&r));
    return block;
}

/* Elements first ... first + n - 1 of an array, as the GPU has them. */
static void *elements(const struct scene *s, size_t first, size_t n)
{
    size_t size = dtype_size(s->p.dtype);
    char *x = need_bytes(n, s->p.dtype);
    for (size_t k = 0, step; k < n; k += step) {
        size_t at = (first + k) % PERIOD;
        step = n - k < PERIOD - at ? n - k : PERIOD - at;
        memcpy(x + k * size, (const char *)s->block + at * size, step * size);
    }
    return x;
}

/* n elements on the GPU, from the block or all 0; NULL without memory. */
static void *upload(const struct scene *s, size_t n, int zero)
{
    size_t size = dtype_size(s->p.dtype);
    char *d = gpu_alloc(n * size);
    void *zeros = zero ? need_bytes(PERIOD, s->p.dtype) : NULL;
    for (size_t k = 0; d && k < n; k += PERIOD)
        gpu_upload(d + k * size, zero ? zeros : s->block,
                   (n - k < PERIOD ? n - k : PERIOD) * size);
    free(zeros);
    return d;
}

/* The key that takes all the weight: score 40 with query (16, 0, ...). */
static float planted_key(const struct problem *p) { return 40 / (16 * p->scale); }
enum { PLANTED_FROM_END = 3 };

static void plant(struct scene *s)
{
    const struct problem *p = &s->p;
    size_t d = p->head_dim, size = dtype_size(p->dtype);
    char *row = need_bytes(d, p->dtype);
    dtypes[p->dtype].store(row, 0, 16);
    for (size_t i = 0; i < p->seqlen_q; i++)
        gpu_upload((char *)s->device.q + i * d * size, row, d * size);
    dtypes[p->dtype].store(row, 0, planted_key(p));
    gpu_upload((char *)s->device.k + (p->seqlen_k - PLANTED_FROM_END) * d * size, row,
               d * size);
    free(row);
}

/* Sets where spot t lies: at the start, where element 2^31 does, where 2^32 does (if the
 * array is as long), at the end. */
static void place(const struct scene *s, struct spot *spot, int t)
{
    const struct problem *p = &s->p;
    size_t element = t == 1 ? (size_t)1 << 31 : (size_t)1 << 32;
    if (!on_heads(p)) {
        spot->i = t == 0 ? 0 : t == 3 ? p->rows - 1 : element / p->cols;
        return;
    }
    size_t heads = p->batch * p->heads_q, all = heads * p->seqlen_q, row;
    if (s->huge->by_keys)
        row = element / (p->seqlen_k * p->head_dim) * p->seqlen_q + 1;
    else row = element / p->head_dim;
    if (t == 0) row = 0;
    if (t == 3 || row >= all) row = all - 1;
    spot->head = row / p->seqlen_q;
    spot->i = row % p->seqlen_q;
}

/* The spot's own problem, its inputs and what is accepted. */
static void prepare_spot(const struct scene *s, struct spot *spot)
{
    const struct problem *p = &s->p;
    size_t d = p->head_dim, dv = p->head_dim_v, size = dtype_size(p->dtype);
    spot->p = *p;
    if (!on_heads(p)) {
        spot->p.rows = 1;
        spot->a.x = elements(s, spot->i * p->cols, p->cols);
    } else {
        /* of a planted problem the last keys are enough: the others weigh 1e-10 in all */
        size_t n = s->huge->planted ? KEPT_KEYS : p->seqlen_k, first = p->seqlen_k - n;
        first += spot->head * p->seqlen_k;
        spot->p.batch = spot->p.heads_q = spot->p.heads_kv = spot->p.seqlen_q = 1;
        spot->p.seqlen_k = n;
        void *q = elements(s, (spot->head * p->seqlen_q + spot->i) * d, d);
        void *k = elements(s, first * d, n * d);
        if (s->huge->planted) {
            memset(q, 0, d * size);
            memset(k, 0, n * d * size);
            dtypes[p->dtype].store(q, 0, 16);
            dtypes[p->dtype].store(k, (n - PLANTED_FROM_END) * d, planted_key(p));
        }
        spot->a.q = q;
        spot->a.k = k;
        spot->a.v = elements(s, first * dv, n * dv);
    }
    spot->standard = standard_new(&spot->p, &spot->a);
}

/* Puts everything on the GPU; 0 without memory. */
static int set_scene(struct scene *s, const struct huge *huge, enum dtype dtype)
{
    *s = (struct scene){.huge = huge, .p = huge->p};
    s->p.dtype = dtype;
    s->p.scale = on_heads(&s->p) ? 3 / sqrtf((float)s->p.head_dim) : 1;
    s->block = block_new(dtype);
    for (int i = 0; i < N_ARRAYS; i++) {
        enum role role = array_role(&s->p, i);
        int zero = huge->planted && (i == ARRAY_Q || i == ARRAY_K);
        if (role == ABSENT) continue;
        array_set(&s->device, i, role == INPUT ? upload(s, array_count(&s->p, i), zero)
                                               : gpu_alloc(array_bytes(&s->p, i)));
        if (!array_of(&s->device, i)) return 0;
    }
    if (huge->planted) plant(s);
    for (int t = 0; t < SPOTS; t++) {
        place(s, &s->spots[t], t);
        prepare_spot(s, &s->spots[t]);
    }
    return 1;
}

static void strike_scene(struct scene *s)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        if (array_of(&s->device, i)) gpu_free(array_of(&s->device, i));
        for (int t = 0; t < SPOTS; t++) free(array_of(&s->spots[t].a, i));
    }
    for (int t = 0; t < SPOTS; t++) standard_free(s->spots[t].standard);
    free(s->block);
}

/* Moves a spot's outputs between host and GPU; up = 1: to the GPU. */
static void move_outputs(const struct scene *s, const struct spot *spot, struct outputs *out, int up)
{
    size_t row = spot->head * s->p.seqlen_q + spot->i;
    for (int i = 0; i < N_ARRAYS; i++) {
        const struct output *o = &out->array[i]; /* one row of the array */
        size_t bytes = o->n * array_element(&s->p, i);
        char *device = (char *)array_of(&s->device, i) + row * bytes;
        if (bytes && up) gpu_upload(device, o->data, bytes);
        else if (bytes) gpu_download(o->data, device, bytes);
    }
}

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
