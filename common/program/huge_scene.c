/* huge_scene.c: arrays of more than 2^31 elements on a GPU, of which the host knows every one.
 *
 * Element e of an array is block[e % PERIOD], PERIOD a prime: an address that is off by 2^31 or
 * 2^32 holds other numbers.  Rows are chosen at the start, on 2^31, on 2^32 and at the end. */
#include "program/huge_scene.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "problem/random.h"
#include "problem/variant.h"
#include "problem/xcalloc.h"

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

int set_scene(struct scene *s, const struct huge *huge, enum dtype dtype)
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

void strike_scene(struct scene *s)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        if (array_of(&s->device, i)) gpu_free(array_of(&s->device, i));
        for (int t = 0; t < SPOTS; t++) free(array_of(&s->spots[t].a, i));
    }
    for (int t = 0; t < SPOTS; t++) standard_free(s->spots[t].standard);
    free(s->block);
}

void move_outputs(const struct scene *s, const struct spot *spot, struct outputs *out, int up)
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
