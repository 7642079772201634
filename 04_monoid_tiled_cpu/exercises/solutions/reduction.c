/* reduction.c: exercise of stage 4, 15 points: the monoid as the operation of a reduction.
 *
 *     in . inout -> inout, row by row, of rows (m, l, o[d]) that lie one after the other
 *
 * MPI_Op_create takes a function that merges count elements of two arrays.  MPI calls it for any
 * two neighbours, in any order of parentheses.  Here one process computes the ranks one after
 * another, and the parts are merged in a tree.
 *
 * Task: fill merge_rows().  The type tells how long a row is: d = width - 2.
 * May be assumed: in and inout do not overlap.  A rank whose keys are all masked sends the
 * unit: m = -INFINITY, l = 0, o = 0.  A NaN in l stays; a NaN in a column of o stays there.
 *
 * Half of the points: cases ascending, shift_200, low, mask_first, mask_row.
 * Right or wrong:  make exercise 4 EX=reduction */
/* forms of the task
 *     (m, l, o[d]) | (l, m, o[d])
 *     x[0]    | x[1]
 *     x[1]    | x[0]
 *     y[0]    | y[1]
 *     y[1]    | y[0]
 *     row[0]  | row[1]
 *     row[1]  | row[0]
 *     rows[0] | rows[1]
 *     rows[1] | rows[0] */
#include "harness.h"

enum { RANKS = 5 /* parts of the keys; one of 3, 5, 6 */ };

/* >>> your part: functions, #include and #define may be added here */
/* inout[i] = in[i] . inout[i] for count rows of width floats. */
static void merge_rows(const float *in, float *inout, int count, int width)
{
    /* solution begin */
    for (int i = 0; i < count; i++) {
        const float *x = in + i * width;
        float *y = inout + i * width;
        if (x[1] == 0) continue;
        float m = x[0] > y[0] ? x[0] : y[0];
        float f = x[0] == m ? 1 : expf(x[0] - m), g = y[0] == m ? 1 : expf(y[0] - m);
        if (y[1] == 0) {
            for (int c = 0; c < width; c++) y[c] = x[c];
            continue;
        }
        for (int c = 0; c < width; c++) y[c] = f * x[c] + g * y[c];
        y[0] = m;
    }
    /* skeleton
    // Your code.
    (void)in, (void)inout, (void)count, (void)width;
    solution end */
}
/* <<< end of your part */

/* One key more in a row: the step of stage 3. */
static void push(float *row, size_t d, float s, const float *v_j)
{
    if (s == -INFINITY) return;
    float m_new = s > row[0] ? s : row[0];
    float correction = m_new == row[0] ? 1 : expf(row[0] - m_new), weight = expf(s - m_new);
    row[1] = row[1] * correction + weight;
    for (size_t c = 0; c < d; c++) row[2 + c] = row[2 + c] * correction + weight * v_j[c];
    row[0] = m_new;
}

/* The score of query i and key j; -INFINITY where the bias masks the key.
 *   q_i, k_j (head_dim)   bias_i (seqlen_k) or NULL */
static float score(const struct problem *p, const float *q_i, const float *k_j,
                   const float *bias_i, size_t j)
{
    if (bias_i && bias_i[j] == -INFINITY) return -INFINITY;
    float dot = 0;
    for (size_t d = 0; d < p->head_dim; d++) dot += q_i[d] * k_j[d];
    return p->scale * dot + (bias_i ? bias_i[j] : 0);
}

/* One query: rank r folds keys r n / RANKS .. (r + 1) n / RANKS - 1, then neighbours merge
 * until one row is left.   rows (RANKS, head_dim_v + 2)   returns lse */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i,
                           float *o_i, float *rows)
{
    size_t d = p->head_dim_v, width = d + 2, n = p->seqlen_k;
    struct key_range keys = visible_keys(p, i);
    for (size_t r = 0; r < RANKS; r++) {
        float *row = rows + r * width;
        for (size_t c = 0; c < width; c++) row[c] = 0;
        row[0] = -INFINITY;
        for (size_t j = r * n / RANKS; j < (r + 1) * n / RANKS; j++)
            if (j >= keys.first && j < keys.end)
                push(row, d, score(p, q_i, k + j * p->head_dim, bias_i, j),
                     v + j * p->head_dim_v);
    }
    for (size_t step = 1; step < RANKS; step *= 2)
        for (size_t r = 0; r + step < RANKS; r += 2 * step)
            merge_rows(rows + (r + step) * width, rows + r * width, 1, (int)width);
    float l = rows[1];
    for (size_t c = 0; c < d; c++) o_i[c] = l == 0 ? 0 : rows[2 + c] / l;
    return rows[0] + logf(l);
}

/* Every query of every head; heads_q / heads_kv query heads share a key-value head. */
static void attention(const struct problem *p, const struct arrays *a)
{
    const float *q = a->q, *k = a->k, *v = a->v;
    float *o = a->o;
    size_t group = p->heads_q / p->heads_kv;
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++) {
        size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / group;
        for (size_t i = 0; i < p->seqlen_q; i++) {
            size_t row = bh * p->seqlen_q + i;
            a->lse[row] = attention_row(p, i, q + row * p->head_dim,
                                        k + kv * p->seqlen_k * p->head_dim,
                                        v + kv * p->seqlen_k * p->head_dim_v,
                                        a->bias ? a->bias + i * p->seqlen_k : NULL,
                                        o + row * p->head_dim_v, a->workspace);
        }
    }
}

static size_t workspace(const struct problem *p)
{
    return RANKS * (p->head_dim_v + 2) * sizeof(float);
}

static const struct variant exercise = {
    .name = "reduction",
    .idea = "ranks folded alone, merged in a tree",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .does = {{OP_ATTENTION, attention}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 4,
    .name = "exercises/reduction",
    .idea = "ranks folded alone, merged in a tree",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
