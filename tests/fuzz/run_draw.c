/* run_draw.c: draws files and options.  Most files fit together but for one dimension, type or
 * value, because one such difference is what a user's mistake looks like, and what an attacker
 * tries. */
#include "run_draw.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/half.h"
#include "run_line.h"

struct random draws;

size_t below(size_t n) { return random_below(&draws, n); }

int rarely(size_t n) { return below(n) == 0; }

/* A file to be written: rank, shape and form. */
struct array {
    size_t ndim, shape[6];
    char kind;            /* 'f', rarely 'i' */
    int size;             /* bytes per element: 2, 4, 8 */
    int big, fortran;
    float special;        /* a value that is strewn in, or 0 */
};

static const size_t huge_sizes[] = {
    (size_t)1 << 31, (size_t)1 << 32, ((size_t)1 << 40) + 1, (size_t)1 << 45,
    (size_t)1 << 56, (size_t)1 << 57, (size_t)1 << 59, (size_t)1 << 60, (size_t)1 << 61,
    (size_t)1 << 62, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX, 1085102592571150096,
    576460752303423488, 6148914691236517206,
};

static size_t huge_size(void)
{
    return huge_sizes[below(sizeof huge_sizes / sizeof *huge_sizes)];
}

static size_t some_size(void)
{
    static const size_t edges[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40};
    return edges[below(sizeof edges / sizeof *edges)];
}

/* Elements of the array; SIZE_MAX when they are more than a file of this test can hold. */
static size_t elements(const struct array *a)
{
    size_t n = 1;
    for (size_t t = 0; t < a->ndim; t++)
        if (a->shape[t] == 0) return 0;
    for (size_t t = 0; t < a->ndim; t++) {
        if (a->shape[t] > 100000 / n) return SIZE_MAX;
        n *= a->shape[t];
    }
    return n;
}

/* One dimension of a becomes 0, one more, one less, or enormous. */
static void perturb(struct array *a)
{
    if (a->ndim == 0) return;
    size_t *n = &a->shape[below(a->ndim)];
    switch (below(5)) {
    case 0: *n = 0; break;
    case 1: *n += 1; break;
    case 2: *n -= *n > 0; break;
    case 3: *n = some_size(); break;
    default: *n = huge_size();
    }
    if (rarely(3)) perturb(a);
}

static float some_value(const struct array *a)
{
    static const float edges[] = {0, 1, -1, 1e-30f, 65504, 1e5f, -1e4f, 3e38f};
    if (a->special != 0 && rarely(6)) return a->special;
    if (rarely(20)) return edges[below(sizeof edges / sizeof *edges)];
    return random_normal(&draws);
}

static void write_value(FILE *f, const struct array *a, float x)
{
    double wide = (double)x;
    uint16_t half = float_to_half(x);
    const void *number = a->size == 2 ? (void *)&half : a->size == 4 ? (void *)&x : &wide;
    const unsigned char *bytes = number;
    for (int t = 0; t < a->size; t++) fputc(bytes[a->big ? a->size - 1 - t : t], f);
}

static void save(const char *path, const struct array *a)
{
    char header[512];
    size_t n = elements(a);
    int length = snprintf(header, sizeof header, "{'descr': '%c%c%d', 'fortran_order': %s, "
                          "'shape': (", a->big ? '>' : '<', a->kind, a->size,
                          a->fortran ? "True" : "False");
    for (size_t t = 0; t < a->ndim; t++)
        length += snprintf(header + length, sizeof header - (size_t)length, "%zu, ",
                           a->shape[t]);
    if (a->ndim > 1) length -= 2;
    length += snprintf(header + length, sizeof header - (size_t)length, "), }\n");
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fprintf(f, "\x93NUMPY%c%c%c%c%s", 1, 0, length & 255, length >> 8, header);
    if (n == SIZE_MAX) n = below(50); /* the file is too short for its shape */
    if (rarely(100)) n += 1;
    for (size_t i = 0; i < n; i++) write_value(f, a, some_value(a));
    fclose(f);
}

static void draw_form(struct array *a, const struct array *like)
{
    static const float specials[] = {0, 0, 0, 0, NAN, INFINITY, -INFINITY};
    static const int sizes[] = {2, 4, 4, 4, 8};
    a->kind = rarely(200) ? 'i' : 'f';
    a->size = like && !rarely(10) ? like->size : sizes[below(5)];
    a->big = rarely(6);
    a->fortran = rarely(6);
    a->special = specials[below(7)];
}

static void give(const char *option, const char *path, const struct array *a)
{
    if (rarely(300)) return; /* the option is missing */
    add(option, path);
    if (!rarely(300)) save(path, a);
}

void draw_softmax(void)
{
    struct array x = {.ndim = rarely(10) ? below(6) : 2};
    for (size_t t = 0; t < x.ndim; t++) x.shape[t] = some_size();
    draw_form(&x, NULL);
    if (rarely(3)) perturb(&x);
    give("--x", "x.npy", &x);
    add("--y", "first.npy");
    if (rarely(3)) add("--log", NULL);
    if (rarely(100)) add("--causal", NULL);
}

/* Without keys or heads the arrays have no data, and the other sizes may be anything: also
 * so large that a product of sizes wraps to a small number. */
static void draw_empty(size_t *heads_q, size_t *heads_kv, size_t *nq, size_t *nk, size_t *d,
                       size_t *dv)
{
    if (rarely(2)) {
        *nk = 0;
        *dv = rarely(2) ? huge_size() : SIZE_MAX / 4 / (*heads_q * *nq) + 1 + below(3);
        return;
    }
    size_t *const sizes[] = {nq, nk, d, dv};
    *heads_q = *heads_kv = 0;
    for (int i = 0; i < 2; i++) *sizes[below(4)] = huge_size();
}

/* Prefix sums of a few sequences that end at `total`, now and then with a mistake. */
static void give_sums(const char *option, const char *path, size_t total)
{
    char header[128];
    size_t n = 1 + below(5), at = 0;
    int wide = rarely(4);
    int length = snprintf(header, sizeof header, "{'descr': '<i%d', 'fortran_order': False, "
                          "'shape': (%zu,), }\n", wide ? 8 : 4, n + 1);
    if (rarely(300)) return;
    add(option, path);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fprintf(f, "\x93NUMPY%c%c%c%c%s", 1, 0, length & 255, length >> 8, header);
    for (size_t i = 0; i <= n; i++) {
        int64_t sum = (int64_t)(i == n ? total : at);
        if (rarely(60)) sum += (int64_t)below(3) - 1;
        if (rarely(200)) sum = (int64_t)huge_size();
        fwrite(&sum, wide ? 8 : 4, 1, f);
        at += total > at ? below(total - at + 1) : 0;
    }
    fclose(f);
}

/* What calls of real models ask for. */
static void draw_call(size_t heads_q, size_t total_q, size_t total_k, int may_pack)
{
    static const char *const windows[] = {"0,0", "3,0", "-1,2", "7,-1", "-1,-1", "1000,1000",
                                          "1099511627776,1099511627776", "-2,0", "3", "1,2,3"};
    static const char *const caps[] = {"30", "0.01", "1e30", "0", "-5"};
    if (rarely(4)) add("--window", windows[below(rarely(10) ? 10 : 7)]);
    if (rarely(4)) add("--softcap", caps[below(rarely(10) ? 5 : 3)]);
    if (rarely(4)) {
        struct array sinks = {.ndim = 1, .shape = {heads_q}};
        draw_form(&sinks, NULL);
        if (rarely(10)) perturb(&sinks);
        give("--sinks", "sinks.npy", &sinks);
    }
    if (rarely(may_pack ? 4 : 100)) {
        give_sums("--cu-seqlens-q", "cq.npy", total_q);
        give_sums("--cu-seqlens-k", "ck.npy", total_k);
    }
}

void draw_attention(void)
{
    size_t heads_kv = 1 + below(3), heads_q = heads_kv * (1 + below(3)), batch = 1 + below(2);
    size_t d = some_size(), dv = rarely(3) ? some_size() : d;
    size_t nq = some_size(), nk = rarely(3) ? nq : some_size(), from = below(3);
    if (from > 0) batch = 1;
    if (from > 1) heads_q = heads_kv = 1;
    int empty = rarely(5);
    if (empty) draw_empty(&heads_q, &heads_kv, &nq, &nk, &d, &dv);
    struct array a[4] = {
        {.shape = {batch, heads_q, nq, d}}, {.shape = {batch, heads_kv, nk, d}},
        {.shape = {batch, heads_kv, nk, dv}}, {.ndim = 2, .shape = {nq, nk}}};
    static const char *const options[] = {"--q", "--k", "--v", "--bias"};
    static const char *const files[] = {"q.npy", "k.npy", "v.npy", "bias.npy"};
    int has_bias = rarely(3);
    for (int i = 0; i < 3; i++) {
        a[i].ndim = 4 - from;
        memmove(a[i].shape, a[i].shape + from, a[i].ndim * sizeof *a[i].shape);
    }
    for (int i = 0; i < 4; i++) {
        draw_form(&a[i], i ? &a[0] : NULL);
        if (rarely(empty ? 20 : 6)) perturb(&a[i]);
        if (i < 3 || has_bias) give(options[i], files[i], &a[i]);
    }
    add("--o", "first.npy");
    if (rarely(2)) add("--lse", "second.npy");
    if (rarely(3)) add("--causal", NULL);
    if (rarely(4)) add("--scale", rarely(10) ? "nan" : rarely(2) ? "0.5" : "-3e38");
    if (rarely(100)) add("--log", NULL);
    if (rarely(2)) draw_call(heads_q, nq, nk, from > 0 && !has_bias);
}

void draw_options(void)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    static const char *const threads[] = {"1", "2", "3", "7"};
    if (rarely(2)) add("--variant", line.stage->variants[below(line.stage->n_variants)]);
    if (rarely(3)) add("--dtype", types[below(3)]);
    if (rarely(5)) add("--threads", threads[below(4)]);
    if (rarely(8)) add("--device", "cpu");
    if (rarely(8)) add("--verbose", NULL);
}
