/* errors.c: what attention in 8 bits errs by, idea by idea: `make eight_bits` writes the table of
 * notes/eight_bits.md, a line for each input and way.
 *
 *     error   root mean square of o - o_64 / root mean square of o_64, which is o in float64 of
 *             the inputs before they were rounded
 *     found   needles found: columns of a value that one key has, read out of o bit by bit */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eight_bits.h"
#include "harness.h"
#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/random.h"
#include "vector/codes8.h"
#include "verification/standard.h"

/* ---- The ways. ---- */

static float as_bf16(float x) { return dtype_round(BF16, x); }

enum { SMOOTH = 1, ROTATE = 2 };
#define WHOLE ((size_t)-1 / 2) /* the whole row in one sum */

static const struct {
    const char *name;
    enum dtype of_q, of_k, of_v;
    struct way way;
    int before;              /* what is done to q and k before they are rounded */
} ways[] = {
    {"bf16", BF16, BF16, BF16, {1, as_bf16, 0, 0, 1}, 0},
    {"e4m3 cache", BF16, E4M3, E4M3, {1, as_bf16, 0, 0, 1}, 0},
    {"int8 cache", BF16, INT8, INT8, {1, as_bf16, 0, 0, 1}, 0},
    {"one sum", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, WHOLE}, 0},
    {"sum of 64 tiles", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 64}, 0},
    {"sum of 8 tiles", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 8}, 0},
    {"sum of 4 tiles", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 4}, 0},
    {"sum of 2 tiles", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 2}, 0},
    {"sum of 1 tile", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 1}, 0},
    {"float sums", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 0, 0, 1}, 0},
    {"largest weight 1", E4M3, E4M3, E4M3, {1, weight_in_e4m3, 13, 13, 1}, 0},
    {"smoothed", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 1}, SMOOTH},
    {"rotated", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 1}, ROTATE},
    {"smoothed and rotated", E4M3, E4M3, E4M3, {256, weight_in_e4m3, 13, 13, 1}, SMOOTH | ROTATE},
    {"int8 scores", INT8, INT8, E4M3, {256, weight_in_e4m3, 0, 13, 1}, 0},
    {"int8 scores smoothed", INT8, INT8, E4M3, {256, weight_in_e4m3, 0, 13, 1}, SMOOTH},
    {"int8 scores smoothed and rotated", INT8, INT8, E4M3, {256, weight_in_e4m3, 0, 13, 1}, SMOOTH | ROTATE},
    {"all int8 smoothed", INT8, INT8, INT8, {256, weight_in_e4m3, 0, 13, 1}, SMOOTH},
};
enum { N_WAYS_HERE = sizeof ways / sizeof *ways };

/* ---- The inputs. ---- */

static const struct input {
    const char *name;
    size_t queries, keys, dim;
    float offset, wide;      /* of every 32nd column: added to k; times q and k */
    float mean;              /* of v */
    float needle;            /* the score of a query's own key, or 0 */
} inputs[] = {
    {"normal, 1k keys", 64, 1024, 128, 0, 1, 0, 0},
    {"normal, 16k keys", 32, 16384, 128, 0, 1, 0, 0},
    {"columns with an offset", 64, 1024, 128, 30, 1, 0, 0},
    {"wide columns", 64, 1024, 128, 0, 8, 0, 0},
    {"a key far ahead", 64, 1024, 128, 0, 1, 0, 8},
    {"mean of v 1, 1k keys", 64, 1024, 64, 0, 1, 1, 0},
    {"mean of v 1, 8k keys", 32, 8192, 64, 0, 1, 1, 0},
    {"mean of v 1, 32k keys", 16, 32768, 64, 0, 1, 1, 0},
    {"mean of v 1, 128k keys", 16, 131072, 64, 0, 1, 1, 0},
    {"needle, 128k keys", 64, 131072, 64, 0, 1, 1, 9.5f},
};
enum { N_INPUTS = sizeof inputs / sizeof *inputs };

static float *normal(struct random *r, size_t n, float mean)
{
    float *x = xcalloc(n, sizeof *x);
    for (size_t e = 0; e < n; e++) x[e] = mean + random_normal(r);
    return x;
}

/* The key at which query i has its needle: one in each stretch of the keys. */
static size_t needle_at(const struct input *in, size_t i)
{
    return i * (in->keys / in->queries) + i * 7919 % (in->keys / in->queries);
}

/* Key needle_at(i) lies along q_i, so that its score is in->needle; its values are 0 or 2. */
static void hide_needles(const struct input *in, const float *q, float *k, float *v, struct random *r)
{
    size_t d = in->dim;
    for (size_t i = 0; i < in->queries; i++) {
        float *k_j = k + needle_at(in, i) * d, *v_j = v + needle_at(in, i) * d, size = 0;
        for (size_t c = 0; c < d; c++) size += q[i * d + c] * q[i * d + c];
        for (size_t c = 0; c < d; c++) k_j[c] = in->needle * sqrtf((float)d) / size * q[i * d + c];
        for (size_t c = 0; c < d; c++) v_j[c] = (float)(2 * random_below(r, 2));
    }
}

static struct head head_new(const struct input *in)
{
    struct random r = {in->keys};
    size_t d = in->dim;
    float *q = normal(&r, in->queries * d, 0), *k = normal(&r, in->keys * d, 0);
    float *v = normal(&r, in->keys * d, in->mean);
    for (size_t c = 0; c < d; c += 32) {
        for (size_t i = 0; i < in->queries; i++) q[i * d + c] *= in->wide;
        for (size_t j = 0; j < in->keys; j++) k[j * d + c] = k[j * d + c] * in->wide + in->offset;
    }
    if (in->needle > 0) hide_needles(in, q, k, v, &r);
    return (struct head){.q = q, .k = k, .v = v, .seqlen_q = in->queries, .seqlen_k = in->keys,
                         .head_dim = d, .head_dim_v = d, .scale = 1 / sqrtf((float)d),
                         .last = (ptrdiff_t)in->keys};
}

/* ---- The errors. ---- */

/* x (n, d) as codes, after what is done before; *scale grows by theirs.
 *     SMOOTH   k_j -= the mean key: every score of query i falls by q_i . mean, and softmax does not change when
 *              a constant is added to a row.  lse does. */
static float *coded(const float *x, size_t n, size_t d, int before, enum dtype type, float *scale)
{
    float *codes = memcpy(xcalloc(n * d, sizeof *x), x, n * d * sizeof *x), most = 0;
    for (size_t c = 0; before & SMOOTH && c < d; c++) {
        double mean = 0;
        for (size_t j = 0; j < n; j++) mean += codes[j * d + c];
        for (size_t j = 0; j < n; j++) codes[j * d + c] -= (float)(mean / (double)n);
    }
    for (size_t j = 0; before & ROTATE && j < n; j++) rotate_row(codes + j * d, d);
    for (size_t e = 0; e < n * d; e++) most = fmaxf(most, fabsf(codes[e]));
    float step = dtype_size(type) == 1 ? most / dtypes[type].largest : 1;
    for (size_t e = 0; e < n * d; e++) codes[e] = dtype_round(type, codes[e] / step);
    *scale *= step;
    return codes;
}

/* o of the head in way w. */
static float *computed(const struct head *h, int w)
{
    size_t d = h->head_dim, of_q = h->seqlen_q * d;
    float *o = xcalloc(of_q, sizeof *o), *lse = xcalloc(h->seqlen_q, sizeof *lse), v_scale = 1;
    struct head codes = *h;
    codes.q = coded(h->q, h->seqlen_q, d, ways[w].before & ROTATE, ways[w].of_q, &codes.scale);
    codes.k = coded(h->k, h->seqlen_k, d, ways[w].before, ways[w].of_k, &codes.scale);
    codes.v = coded(h->v, h->seqlen_k, d, 0, ways[w].of_v, &v_scale);
    codes.o = o, codes.lse = lse;
    attention_of_codes(&codes, &ways[w].way);
    for (size_t e = 0; e < of_q; e++) o[e] *= v_scale;
    free((float *)codes.q), free((float *)codes.k), free((float *)codes.v), free(lse);
    return o;
}

/* The needles of which every bit is right: is o above or below the mean of v? */
static size_t needles_found(const struct input *in, const struct head *h, const float *o)
{
    size_t found = 0, d = in->dim;
    for (size_t i = 0; i < in->queries; i++) {
        const float *v_j = v_row(h, needle_at(in, i));
        size_t right = 0;
        for (size_t c = 0; c < d; c++) right += (o[i * d + c] > in->mean) == (v_j[c] > in->mean);
        found += right == d;
    }
    return found;
}

static void measure(const struct input *in)
{
    struct head h = head_new(in);
    size_t n = in->queries * in->dim;
    struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = in->queries,
                        .seqlen_k = in->keys, .head_dim = in->dim, .head_dim_v = in->dim, .scale = h.scale};
    struct standard *standard = standard_new(&p, &(struct arrays){.q = h.q, .k = h.k, .v = h.v});
    const double *want = standard->answer[ARRAY_O].want;
    for (int w = 0; w < N_WAYS_HERE; w++) {
        int of_scores = ways[w].before || ways[w].of_k == INT8; /* not of sums */
        if (in->mean > 0 && of_scores) continue;
        float *o = computed(&h, w);
        double err = 0, all = 0;
        for (size_t e = 0; e < n; e++) err += pow(o[e] - want[e], 2), all += want[e] * want[e];
        printf("\"%s\",%zu,%zu,%s,%.3g,", in->name, in->keys, in->dim, ways[w].name, sqrt(err / all));
        double found = (double)needles_found(in, &h, o) / (double)in->queries;
        if (in->needle > 0 && in->mean > 0) printf("%.3g", 100 * found);
        printf("\n");
        fflush(stdout);
        free(o);
    }
    standard_free(standard), free((float *)h.q), free((float *)h.k), free((float *)h.v);
}

int main(void)
{
    printf("input,keys,head_dim,way,error,found\n");
    for (int i = 0; i < N_INPUTS; i++) measure(&inputs[i]);
    return 0;
}
