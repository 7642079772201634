/* contest.c: see contest.h. */
#include "contest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "problem/half.h"
#include "problem/random.h"
#include "problem/variant.h"

enum { ROWS_CHECKED = 24, FRAME = 4096 };

static struct random fresh(void)
{
    struct random r = {0};
    if (getrandom(&r.state, sizeof r.state, 0) != sizeof r.state)
        machine_fails("no random numbers", strerror(errno));
    return r;
}

static size_t size_in(const struct contest *c) { return dtype_size(c->p.dtype); }

/* lse is always float. */
static size_t size_out(const struct contest *c, int i) { return i ? sizeof(float) : size_in(c); }

static struct span *span_in(struct contest *c, int i)
{
    return &c->q.span[c->p.op == OP_SOFTMAX ? AT_X : AT_Q + i];
}

static struct span *span_out(struct contest *c, int i)
{
    return &c->q.span[c->p.op == OP_SOFTMAX ? AT_Y : AT_O + i];
}

/* What to compute.  Returns 0 when the words mean nothing, or too much. */
static int read_problem(struct contest *c, const char *work, enum dtype dtype)
{
    struct problem *p = &c->p;
    size_t heads, n, d;
    char end;
    if (sscanf(work, "softmax:%zux%zu%c", &p->rows, &p->cols, &end) == 2) {
        if (!p->rows || !p->cols || p->rows > ((size_t)1 << 30) / p->cols) return 0;
        p->op = OP_SOFTMAX;
        c->n_in[0] = c->n_out[0] = p->rows * p->cols;
    } else if (sscanf(work, "attention:%zux%zux%zu%c", &heads, &n, &d, &end) == 3) {
        if (!heads || !n || !d || heads > 64 || n > 65536 || d > 256) return 0;
        p->op = OP_ATTENTION;
        p->batch = 1;
        p->heads_q = p->heads_kv = heads;
        p->seqlen_q = p->seqlen_k = n;
        p->head_dim = p->head_dim_v = d;
        p->scale = 1 / sqrtf((float)d);
        for (int i = 0; i < 3; i++) c->n_in[i] = heads * n * d;
        c->n_out[0] = heads * n * d;
        c->n_out[1] = heads * n;
    } else {
        return 0;
    }
    p->dtype = dtype;
    return 1;
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) machine_fails("no memory for the timed work", strerror(errno));
    return p;
}

int contest_understand(struct contest *c, const char *work, enum dtype dtype)
{
    size_t used = 0, largest = 0;
    if (!read_problem(c, work, dtype)) return 0;
    c->q = (struct request){.kind = TIMED, .problem = c->p, .guard = FRAME};
    for (int i = 0; i < 5; i++) {
        int out = i - 3;
        size_t n = out < 0 ? c->n_in[i] : c->n_out[out];
        if (!n) continue;
        struct span *s = out < 0 ? span_in(c, i) : span_out(c, out);
        size_t bytes = n * (out < 0 ? size_in(c) : size_out(c, out));
        *s = (struct span){used, bytes + (out < 0 ? 0 : 2 * FRAME)};
        used += (s->bytes + FRAME - 1) / FRAME * FRAME;
        largest = s->bytes > largest ? s->bytes : largest;
        *(out < 0 ? &c->in[i] : &c->out[out]) = memory(n * sizeof(float));
    }
    c->raw = memory(largest);
    c->bytes = used;
    return 1;
}

/* The n numbers of x as they travel, into c->raw; then x holds what arrives. */
static void *travels(const struct contest *c, float *x, size_t n)
{
    if (c->p.dtype == F32) return memcpy(c->raw, x, n * sizeof(float));
    uint16_t *to = c->raw;
    for (size_t i = 0; i < n; i++) {
        to[i] = c->p.dtype == F16 ? float_to_half(x[i]) : float_to_bfloat(x[i]);
        x[i] = c->p.dtype == F16 ? half_to_float(to[i]) : bfloat_to_float(to[i]);
    }
    return c->raw;
}

/* New numbers: scores of a row between -6 and 6; of attention with a spread of about 1.3, so
 * that the mean of v is no answer; values between -1 and 1. */
void contest_draw(struct contest *c)
{
    const float width[3] = {c->p.op == OP_SOFTMAX ? 12 : 8, 2, 2};
    for (int a = 0; a < 3; a++) {
        const struct random first = fresh();
#pragma omp parallel for
        for (size_t i = 0; i < c->n_in[a]; i++) {
            struct random r = random_after(first, i);
            c->in[a][i] = width[a] * (random_uniform(&r) - 0.5f);
        }
    }
}

void contest_hand_over(struct contest *c, struct place *place)
{
    for (int i = 0; i < 3; i++)
        if (c->n_in[i])
            place->kind->write(place, span_in(c, i)->offset, travels(c, c->in[i], c->n_in[i]),
                               span_in(c, i)->bytes);
    for (int i = 0; i < 2; i++) {
        if (!c->n_out[i]) continue;
        uint32_t *words = c->raw;
#pragma omp parallel for
        for (size_t k = 0; k < span_out(c, i)->bytes / 4; k++) words[k] = UNWRITTEN;
        place->kind->write(place, span_out(c, i)->offset, c->raw, span_out(c, i)->bytes);
    }
}

void contest_choose(struct contest *c)
{
    struct random r = fresh();
    for (int k = 0; k < SAMPLES; k++) {
        int i = c->n_out[1] && k % 8 == 0;
        size_t words = c->n_out[i] * size_out(c, i) / 4;
        c->at[k] = span_out(c, i)->offset + FRAME + 4 * random_below(&r, words ? words : 1);
    }
}

/* The answer, from `raw` with its frames, as floats.  Returns whether the frames are whole. */
static int take_output(struct contest *c, int i)
{
    size_t n = c->n_out[i], size = size_out(c, i);
    const char *data = (char *)c->raw + FRAME;
    for (size_t k = 0; k < FRAME; k += 4) {
        uint32_t before, behind;
        memcpy(&before, (char *)c->raw + k, 4);
        memcpy(&behind, data + n * size / 4 * 4 + k, 4);
        if (before != UNWRITTEN || (n * size % 4 == 0 && behind != UNWRITTEN)) return 0;
    }
    if (size == sizeof(float)) return memcpy(c->out[i], data, n * size), 1;
    for (size_t k = 0; k < n; k++) {
        uint16_t bits;
        memcpy(&bits, data + 2 * k, 2);
        c->out[i][k] = c->p.dtype == F16 ? half_to_float(bits) : bfloat_to_float(bits);
    }
    return 1;
}

const char *contest_take(struct contest *c, struct place *place)
{
    for (int i = 0; i < 3; i++) {
        if (!c->n_in[i]) continue;
        /* what was handed over again, piece by piece, beside what lies there now */
        enum { PIECE = 1 << 22 };
        static char there[PIECE];
        size_t size = size_in(c), offset = span_in(c, i)->offset;
        for (size_t from = 0; from < c->n_in[i]; from += PIECE / size) {
            size_t n = c->n_in[i] - from < PIECE / size ? c->n_in[i] - from : PIECE / size;
            place->kind->read(place, there, offset + from * size, n * size);
            if (memcmp(there, travels(c, c->in[i] + from, n), n * size))
                return "an input was overwritten";
        }
    }
    for (int i = 0; i < 2; i++) {
        if (!c->n_out[i]) continue;
        place->kind->read(place, c->raw, span_out(c, i)->offset, span_out(c, i)->bytes);
        for (int k = 0; k < SAMPLES; k++) {
            size_t from = span_out(c, i)->offset;
            if (c->at[k] < from || c->at[k] >= from + span_out(c, i)->bytes) continue;
            if (memcmp((char *)c->raw + (c->at[k] - from), &c->seen[k], 4))
                return "a result was written after the clock had stopped";
        }
        if (!take_output(c, i)) return "something beside an output was written";
    }
    return NULL;
}

/* x (n) -> the probabilities in y (n), in double. */
static double softmax_of(const double *x, double *y, size_t n)
{
    double m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    for (size_t j = 0; j < n; j++) l += y[j] = exp(x[j] - m);
    for (size_t j = 0; j < n; j++) y[j] /= l;
    return m + log(l);
}

/* How far a result may be from double: the roundings of the type, and those inside. */
static double allowed(const struct contest *c, double want)
{
    double u = c->p.dtype == F32 ? 0 : c->p.dtype == F16 ? 0x1p-10 : 0x1p-7;
    if (c->p.op == OP_SOFTMAX) return 1e-6 + (1e-5 + u) * fabs(want);
    return 2e-5 + 0.1 * u + u * fabs(want);
}

/* Row i of the answer against double. */
static int row_is_right(const struct contest *c, size_t i, double *x, double *y)
{
    const struct problem *p = &c->p;
    if (p->op == OP_SOFTMAX) {
        for (size_t j = 0; j < p->cols; j++) x[j] = c->in[0][i * p->cols + j];
        softmax_of(x, y, p->cols);
        for (size_t j = 0; j < p->cols; j++)
            if (!(fabs(c->out[0][i * p->cols + j] - y[j]) <= allowed(c, y[j]))) return 0;
        return 1;
    }
    size_t n = p->seqlen_k, d = p->head_dim, head = i / n * n;
    for (size_t j = 0; j < n; j++) {
        x[j] = 0;
        for (size_t t = 0; t < d; t++)
            x[j] += (double)p->scale * c->in[0][i * d + t] * c->in[1][(head + j) * d + t];
    }
    double lse = softmax_of(x, y, n);
    if (!(fabs(c->out[1][i] - lse) <= (c->p.dtype == F32 ? 1e-4 : 2e-3))) return 0;
    for (size_t t = 0; t < d; t++) {
        double o = 0;
        for (size_t j = 0; j < n; j++) o += y[j] * c->in[2][(head + j) * d + t];
        if (!(fabs(c->out[0][i * d + t] - o) <= allowed(c, o))) return 0;
    }
    return 1;
}

/* What is wrong with row i of the answer at first sight, or NULL. */
static const char *seen_in_row(const struct contest *c, size_t i, size_t width)
{
    int rows = c->p.op == OP_SOFTMAX;
    double sum = 0;
    for (size_t j = 0; j < width; j++) {
        float e = c->out[0][i * width + j];
        if (!(e >= (rows ? 0 : -1.0001f) && e <= 1.0001f))
            return "a result out of range, or not written";
        sum += e;
    }
    if (rows && !(fabs(sum - 1) <= (c->p.dtype == F32 ? 1e-3 : 1e-1)))
        return "a row that does not add up to 1";
    if (!rows && !isfinite(c->out[1][i])) return "an lse that is not a number";
    return NULL;
}

/* All rows by what is cheap to see, some by all. */
const char *contest_mistake(const struct contest *c)
{
    const struct problem *p = &c->p;
    int rows = p->op == OP_SOFTMAX;
    size_t n = rows ? p->rows : p->heads_q * p->seqlen_q, width = rows ? p->cols : p->head_dim;
    double *x = malloc((width + p->seqlen_k) * sizeof *x), *y = malloc((width + p->seqlen_k) * sizeof *y);
    if (!x || !y) machine_fails("no memory for a row", strerror(errno));
    const char *wrong = NULL;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        const char *why = seen_in_row(c, i, width);
        if (!why) continue;
#pragma omp atomic write
        wrong = why;
    }
    struct random r = fresh();
    for (int k = 0; k < ROWS_CHECKED && !wrong; k++)
        if (!row_is_right(c, random_below(&r, n), x, y)) wrong = "a wrong row";
    free(x);
    free(y);
    return wrong;
}
