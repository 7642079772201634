/* eight_bits.c: attention whose q, k and v are codes of 8 bits, each with a scale, as a GPU's tensor cores
 * compute it: products are exact, sums may have few bits, and weights are rounded to e4m3.
 *
 *     s_ij = scale q_scale k_scale (q_i . k_j)          of codes, e4m3 or int8
 *     l_i  = sum_j exp(s_ij - m)                        of weights that are not rounded
 *     o_i  = v_scale sum_j e4m3(256 exp(s_ij - m)) v_j / (256 l_i)
 *
 * 256 because e4m3 ends at 448, and begins at 2^-9: smaller weights would be lost
 * (FlashAttention-3, Shah et al. 2024, does the same).
 *
 * A sum of few bits (SageAttention2, Zhang et al. 2024, measured 13 fraction bits on sm_89 and sm_90): 32
 * products and the sum so far are cut off, toward 0, at the last bit of the largest of them, and
 * then added.  A sum that is much larger than what is added to it stops growing.  So after some
 * tiles the sum is added to another one, in float: partial results merge. */
#include "eight_bits.h"

#include <stdlib.h>

#include "cost.h"
#include "problem/convert.h"
#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/quantise.h"
#include "vector/codes8.h"

enum { AT_ONCE = 32 };

/* sum + a . b (n <= 32) with so many fraction bits. */
static float add_cut_off(float sum, const float *a, const float *b, size_t n, int bits)
{
    float most = fabsf(sum);
    for (size_t t = 0; t < n; t++) most = fabsf(a[t] * b[t]) > most ? fabsf(a[t] * b[t]) : most;
    uint32_t exponent = f32_bits(most) & 0x7f800000u, last = (uint32_t)bits << 23;
    if (exponent <= last || exponent == 0x7f800000u) { /* nothing to cut off, or no number */
        for (size_t t = 0; t < n; t++) sum += a[t] * b[t];
        return sum;
    }
    float unit = f32_from_bits(exponent - last), per_unit = 1 / unit;
    int32_t units = (int32_t)(sum * per_unit);
    for (size_t t = 0; t < n; t++) units += (int32_t)(a[t] * b[t] * per_unit);
    return f32_from_bits(f32_bits((float)units * unit) & (~0u << (23 - bits)));
}

/* sum + a . b */
static float add_products(float sum, const float *a, const float *b, size_t n, int bits)
{
    if (bits == 0)
#pragma omp simd reduction(+ : sum)
        for (size_t t = 0; t < n; t++) sum += a[t] * b[t];
    for (size_t t = 0; bits && t < n; t += AT_ONCE)
        sum = add_cut_off(sum, a + t, b + t, n - t < AT_ONCE ? n - t : AT_ONCE, bits);
    return sum;
}

/* What is known of a query after some tiles. */
struct state {
    float m, l, *o, *part; /* o (head_dim_v) in float; part (head_dim_v) in few bits, not yet in o */
};

static void rescale(struct state *x, size_t dv, float m_new)
{
    float factor = x->m == -INFINITY ? 0 : expf(x->m - m_new);
    if (m_new == x->m) return;
    for (size_t c = 0; c < dv; c++) x->o[c] *= factor, x->part[c] *= factor;
    x->l *= factor, x->m = m_new;
}

/* part += p V over n keys from j on, of which hidden ones have s = -INFINITY.
 *   v (dv, TILE_KEYS): V by columns */
static void push_tile(struct state *x, const struct head *h, const struct way *way, float *s, size_t j,
                      size_t n, float *v)
{
    size_t dv = h->head_dim_v;
    for (size_t t = 0; t < n; t++) {
        int hidden = s[t] == -INFINITY;
        const float *v_t = v_row(h, j + t);
        float weight = hidden ? 0 : expf(s[t] - x->m);
        x->l += weight;
        s[t] = way->weight(way->largest * weight);
        for (size_t c = 0; c < dv; c++) v[c * TILE_KEYS + t] = hidden ? 0 : v_t[c];
    }
    for (size_t c = 0; c < dv; c++)
        x->part[c] = add_products(x->part[c], s, v + c * TILE_KEYS, n, way->bits_of_o);
}

static void attention_row(const struct head *h, const struct way *way, size_t i, float *tile)
{
    size_t dv = h->head_dim_v, keys = visible(h, i);
    struct state x = {.m = -INFINITY, .o = o_row(h, i), .part = tile + dv * TILE_KEYS};
    float s[TILE_KEYS];
    for (size_t c = 0; c < dv; c++) x.o[c] = x.part[c] = 0;
    for (size_t j = 0; j < keys; j += TILE_KEYS) {
        size_t n = keys - j < TILE_KEYS ? keys - j : TILE_KEYS;
        float m_new = x.m;
        for (size_t t = 0; t < n; t++) {
            float bias = bias_of(h, i, j + t);
            s[t] = bias == -INFINITY ? bias : bias + h->scale * add_products(
                0, q_row(h, i), k_row(h, j + t), h->head_dim, way->bits_of_s);
            if (s[t] > m_new || isnan(s[t])) m_new = s[t];
        }
        rescale(&x, dv, m_new);
        if (m_new != -INFINITY) push_tile(&x, h, way, s, j, n, tile);
        int merge = (j / TILE_KEYS + 1) % way->tiles == 0 || j + n == keys;
        for (size_t c = 0; merge && c < dv; c++) x.o[c] += x.part[c], x.part[c] = 0;
    }
    for (size_t c = 0; c < dv; c++) x.o[c] = x.l == 0 ? 0 : x.o[c] / (way->largest * x.l);
    h->lse[i] = x.m + logf(x.l);
}

void attention_of_codes(const struct head *h, const struct way *way)
{
#pragma omp parallel
    {
        float *tile = xcalloc(h->head_dim_v * (TILE_KEYS + 1), sizeof *tile);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < h->seqlen_q; i++) attention_row(h, way, i, tile);
        free(tile);
    }
}

float weight_in_e4m3(float x) { return e4m3_to_float(float_to_e4m3(x)); }

/* ---- The variant. ---- */

/* q, k, v and o as floats. */
static size_t workspace(const struct problem *p)
{
    return (p->seqlen_q * p->heads_q + p->seqlen_k * p->heads_kv) * p->batch *
           (p->head_dim + p->head_dim_v) * sizeof(float);
}

static float scale_of(const float *scales, size_t kv) { return scales ? scales[kv] : 1; }

static struct way way = {.largest = 256, .weight = weight_in_e4m3, .tiles = 1};

static void attention(const struct problem *p, const struct arrays *a)
{
    struct arrays floats = {.bias = a->bias, .lse = a->lse};
    float *room = a->workspace;
    size_t of_o = p->seqlen_q * p->head_dim_v;
    for (enum array i = ARRAY_Q; i <= ARRAY_V; i++) {
        widen_row(array_dtype(p, i), array_of(a, i), array_count(p, i), room);
        array_set(&floats, i, room);
        room += array_count(p, i);
    }
    floats.o = room;
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, &floats, bh);
        size_t b = bh / p->heads_q, kv = b * p->heads_kv + bh % p->heads_q * p->heads_kv / p->heads_q;
        h.scale *= scale_of(a->q_scale, kv) * scale_of(a->k_scale, kv);
        attention_of_codes(&h, &way);
        for (size_t e = 0; e < of_o; e++)
            dtypes[o_dtype(p)].store(a->o, bh * of_o + e, h.o[e] * scale_of(a->v_scale, kv));
    }
}

const struct variant eight_bits = {
    .name = "eight_bits", .idea = "weights in e4m3, sums in float",
    .all_cores = 1,
    .group = IN_EIGHT_BITS, .types = TYPE(E4M3) | TYPE(INT8),
    .supports = BASIC_FEATURES | WITH_EIGHT_BITS,
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1,
    .workspace = workspace, .cost = fold_cost,
    .does = {{OP_ATTENTION, attention}},
};
