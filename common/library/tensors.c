/* tensors.c: the arrays of a problem, read from objects of Python.  To ask a tensor for its shape,
 * strides, type, device and address takes Python longer than a small kernel runs; DLPack's C exchange
 * API answers all at once. */
#include "library/tensors.h"

#include <stdint.h>

/* dlpack.h: DLTensor and DLPackExchangeAPI. */
struct tensor {
    char *data;
    int32_t device, device_number, rank;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides;
    uint64_t offset;
};

struct exchange {
    uint32_t major, minor;
    void *older, *allocate, *from_object, *to_object;
    int (*tensor_of)(void *object, struct tensor *t);
    int (*stream_of)(int32_t device, int32_t number, void **stream);
};

enum { ON_CPU = 1, ON_CUDA = 2, FLOATS = 2, BFLOATS = 4, MOST_RANK = 4 };

/* An array [batch, heads, rows, width]. */
struct rows {
    char *data;
    size_t batch, heads, rows, width;
    struct five_steps_strides strides;
};

/* The size of a dimension: 1 where it is not there.  Of one element the stride says nothing; 1 keeps
 * the strides from being all 0. */
static void dimension(const struct tensor *t, int i, size_t *size, size_t *stride)
{
    *size = i < 0 ? 1 : (size_t)t->shape[i];
    *stride = *size == 1 ? 1 : (size_t)t->strides[i];
}

/* Can the library use the array as it lies?  On a GPU rows begin at multiples of 16 bytes. */
static int rows_of(const struct tensor *t, int order, struct rows *x)
{
    const int n = t->rank, last = n - 1;
    if (n < (order == FIVE_STEPS_HEADS_ROWS ? 2 : 3) || n > MOST_RANK) return 0;
    const int at[3][3] = {{n - 4, n - 3, n - 2}, {n - 4, n - 2, n - 3}, {0, 1, -1}};
    dimension(t, at[order][0], &x->batch, &x->strides.batch);
    dimension(t, at[order][1], &x->heads, &x->strides.head);
    dimension(t, at[order][2], &x->rows, &x->strides.row);
    x->width = (size_t)t->shape[last];
    x->data = t->data + t->offset;
    size_t element = t->bits / 8u, steps = 0;
    if (x->batch > 1) steps |= x->strides.batch;
    if (x->heads > 1) steps |= x->strides.head;
    if (x->rows > 1) steps |= x->strides.row;
    return x->batch * x->heads * x->rows * x->width != 0 &&
           (t->strides[last] == 1 || x->width == 1) &&
           (x->strides.batch || x->strides.head || x->strides.row) && steps <= PTRDIFF_MAX &&
           ((uintptr_t)x->data | steps * element) % (t->device == ON_CUDA ? 16 : element) == 0;
}

/* The library's number of the type, or -1. */
static int type_of(const struct tensor *t)
{
    if (t->lanes != 1 || (t->device != ON_CPU && t->device != ON_CUDA)) return -1;
    if (t->code == FLOATS && t->bits == 32) return FIVE_STEPS_F32;
    if (t->code == FLOATS && t->bits == 16) return FIVE_STEPS_F16;
    return t->code == BFLOATS && t->bits == 16 ? FIVE_STEPS_BF16 : -1;
}

int five_steps_read_tensors(struct five_steps_tensors *all, void *q, void *k, void *v, void *o)
{
    const struct exchange *exchange = all->exchange;
    struct five_steps_attention_problem *p = &all->problem;
    void *const objects[] = {q, k, v, o};
    struct tensor t[4];
    struct rows x[4];
    for (int i = 0; i < 4; i++) {
        int of_keys = i == 1 || i == 2;
        if (exchange->tensor_of(objects[i], &t[i])) return FIVE_STEPS_INVALID;
        if (type_of(&t[i]) < 0 || type_of(&t[i]) != type_of(t) || t[i].device != t->device ||
            t[i].device_number != t->device_number || t[i].rank != t[of_keys].rank ||
            !rows_of(&t[i], of_keys ? all->order_k : all->order_q, &x[i]))
            return FIVE_STEPS_INVALID;
    }
    int packed = p->cu_seqlens_q != NULL, pages = p->page_table != NULL;
    if (x[1].batch != x[2].batch || x[1].heads != x[2].heads || x[1].rows != x[2].rows ||
        (!pages && x[1].batch != x->batch) || x[1].width != x->width || x[3].width != x[2].width ||
        x[3].batch != x->batch || x[3].heads != x->heads || x[3].rows != x->rows ||
        (!pages && all->keys != SIZE_MAX && all->keys > x[1].rows))
        return FIVE_STEPS_INVALID;
    p->device = t->device == ON_CPU ? FIVE_STEPS_CPU : FIVE_STEPS_GPU;
    p->type = type_of(t);
    p->heads_q = x->heads, p->heads_kv = x[1].heads;
    p->head_dim = x->width, p->head_dim_v = x[2].width;
    if (packed) {
        p->total_q = x->rows, p->total_k = x[1].rows;
    } else {
        p->batch = x->batch, p->seqlen_q = x->rows;
        p->seqlen_k = all->keys == SIZE_MAX ? x[1].rows : all->keys;
    }
    if (pages) p->n_pages = x[1].batch, p->page_size = x[1].rows;
    p->q = x->data, p->k = x[1].data, p->v = x[2].data, p->o = x[3].data;
    p->q_strides = x->strides, p->k_strides = x[1].strides, p->v_strides = x[2].strides;
    p->o_strides = x[3].strides;
    p->stream = NULL;
    if (t->device == ON_CUDA && exchange->stream_of(ON_CUDA, t->device_number, &p->stream))
        return FIVE_STEPS_INVALID;
    return five_steps_attention_workspace(p, &all->bytes, NULL);
}
