/* tensors.c: attention of PyTorch's tensors, as an extension of Python (stable ABI, from 3.10).
 *
 * To ask tensors for their shapes, strides, types, devices and addresses takes Python longer than a
 * small kernel runs.  DLPack's C exchange API (DLPack 1.3, PyTorch 2.10) answers all of it at once.
 * What cannot be taken as it lies gives None: then the general way of the package copies or explains. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../five_steps.h"

/* dlpack.h: DLTensor and DLPackExchangeAPI. */
struct tensor {
    char *data;
    int32_t device, number, rank;
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

enum { ON_CPU = 1, ON_CUDA = 2, INTEGERS = 0, FLOATS = 2, BFLOATS = 4, E4M3S = 10, MOST_RANK = 4 };
enum order { HEADS_ROWS, ROWS_HEADS, ONE_ROW }; /* the dimensions of an array before its last */

/* What setup() is given; by device: the library's functions, and (shape, strides, type) -> tensor. */
static const struct exchange *exchange;
enum pass { FORWARD, BACKWARD };
static int (*workspace_of[3][2])(const struct five_steps_attention_problem *, size_t *, void *);
static int (*compute[3][2])(const struct five_steps_attention_problem *, void *, size_t, void *);
static int (*max_threads)(void); /* OpenMP's, of the library */
static PyObject *empty[3];
static PyObject *byte_type, *float_type, *type_name;

/* An array [batch, heads, rows, width]. */
struct rows {
    PyObject *object;
    struct tensor t;
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
static int read_rows(PyObject *object, enum order order, struct rows *x)
{
    struct tensor *t = &x->t;
    x->object = object;
    if (exchange->tensor_of(object, t)) return 0;
    const int n = t->rank, last = n - 1;
    if (n < (order == HEADS_ROWS ? 2 : 3) || n > MOST_RANK) return 0;
    const int at[3][3] = {{n - 4, n - 3, n - 2}, {n - 4, n - 2, n - 3}, {0, 1, -1}};
    dimension(t, at[order][0], &x->batch, &x->strides.batch);
    dimension(t, at[order][1], &x->heads, &x->strides.head);
    dimension(t, at[order][2], &x->rows, &x->strides.row);
    x->width = (size_t)t->shape[last];
    t->data += t->offset;
    size_t element = t->bits / 8u, steps = 0;
    if (x->batch > 1) steps |= x->strides.batch;
    if (x->heads > 1) steps |= x->strides.head;
    if (x->rows > 1) steps |= x->strides.row;
    return x->batch * x->heads * x->rows * x->width != 0 &&
           (t->strides[last] == 1 || x->width == 1) &&
           (x->strides.batch || x->strides.head || x->strides.row) && steps <= PTRDIFF_MAX &&
           ((uintptr_t)t->data | steps * element) % (t->device == ON_CUDA ? 16 : element) == 0;
}

/* The library's number of the type, or -1. */
static int type_of(const struct tensor *t)
{
    if (t->lanes != 1 || (t->device != ON_CPU && t->device != ON_CUDA)) return -1;
    if (t->code == FLOATS && t->bits == 32) return FIVE_STEPS_F32;
    if (t->code == FLOATS && t->bits == 16) return FIVE_STEPS_F16;
    if (t->code == E4M3S && t->bits == 8) return FIVE_STEPS_E4M3;
    if (t->code == INTEGERS && t->bits == 8) return FIVE_STEPS_INT8;
    return t->code == BFLOATS && t->bits == 16 ? FIVE_STEPS_BF16 : -1;
}

/* Is it a type of codes, whose numbers have a scale? */
static int is_coded(int type) { return type == FIVE_STEPS_E4M3 || type == FIVE_STEPS_INT8; }

/* Are they of one kind, on one device? */
static int alike(const struct tensor *a, const struct tensor *b)
{
    return type_of(a) == type_of(b) && a->device == b->device && a->number == b->number;
}

/* Writes q, k and v into the problem.  keys: of a decoding step, whose cache may have 8 bits; SIZE_MAX: as
 * many as k has.  0: they do not fit together. */
static int describe(struct five_steps_attention_problem *p, const struct rows *q,
                    const struct rows *k, const struct rows *v, size_t keys)
{
    int packed = p->cu_seqlens_q != NULL, pages = p->page_table != NULL;
    int coded = keys != SIZE_MAX && is_coded(type_of(&k->t)) && k->t.device == q->t.device &&
                k->t.number == q->t.number;
    if (type_of(&q->t) < 0 || is_coded(type_of(&q->t)) || !(coded || alike(&q->t, &k->t)) ||
        !alike(&k->t, &v->t) || k->t.rank != v->t.rank || k->batch != v->batch || k->heads != v->heads ||
        k->rows != v->rows || k->width != q->width ||
        (packed && q->t.rank != 3) || k->t.rank != (keys == SIZE_MAX ? q->t.rank : MOST_RANK) ||
        (keys != SIZE_MAX && !pages && keys > k->rows) ||
        (!pages && k->batch != q->batch))
        return 0;
    p->device = q->t.device == ON_CPU ? FIVE_STEPS_CPU : FIVE_STEPS_GPU;
    p->type = type_of(&q->t);
    p->kv_type = coded ? type_of(&k->t) : 0;
    p->heads_q = q->heads, p->heads_kv = k->heads;
    p->head_dim = q->width, p->head_dim_v = v->width;
    if (packed) {
        p->total_q = q->rows, p->total_k = k->rows;
    } else {
        p->batch = q->batch, p->seqlen_q = q->rows;
        p->seqlen_k = keys == SIZE_MAX ? k->rows : keys;
    }
    if (pages) p->n_pages = k->batch, p->page_size = k->rows;
    p->q = q->t.data, p->k = k->t.data, p->v = v->t.data;
    p->q_strides = q->strides, p->k_strides = k->strides, p->v_strides = v->strides;
    return q->t.device == ON_CPU || !exchange->stream_of(ON_CUDA, q->t.number, &p->stream);
}

/* Writes a bias that is broadcast to [batch, heads_q, seqlen_q, seqlen_k] into the problem, as it lies.  0: it
 * is none, or does not lie as the library reads it. */
static int describe_bias(struct five_steps_attention_problem *p, const struct rows *q, PyObject *bias)
{
    const size_t sizes[] = {p->batch, p->heads_q, p->seqlen_q, p->seqlen_k};
    size_t *const strides[] = {&p->bias_strides.batch, &p->bias_strides.head, &p->bias_strides.row};
    struct tensor t;
    if (bias == Py_None) return 1;
    if (exchange->tensor_of(bias, &t) || type_of(&t) != FIVE_STEPS_F32 || t.device != q->t.device ||
        t.number != q->t.number || t.rank < 1 || t.rank > MOST_RANK || (size_t)t.shape[t.rank - 1] != p->seqlen_k ||
        t.strides[t.rank - 1] != 1)
        return 0;
    for (int i = 4 - t.rank, at = 0; i < 3; i++, at++) {
        if (t.shape[at] != 1 && (size_t)t.shape[at] != sizes[i]) return 0;
        *strides[i] = t.shape[at] == 1 ? 0 : (size_t)t.strides[at];
    }
    p->bias = (const float *)(t.data + t.offset);
    p->bias_is_strided = 1;
    return 1;
}

/* A new tensor on the current device of that kind, contiguous, or with the last two dimensions but one in
 * the other order in memory. */
static PyObject *make(int device, const int64_t *shape, int n, PyObject *type, int turned)
{
    PyObject *sizes = PyTuple_New(n), *strides = PyTuple_New(n), *made = NULL;
    int64_t step[MOST_RANK + 1];
    step[n] = 1;
    for (int i = n; i-- > 0;) step[i] = step[i + 1] * shape[i];
    if (turned) step[n - 2] = shape[n - 1], step[n - 1] = shape[n - 1] * shape[n - 3];
    for (int i = 0; sizes && strides && i < n; i++) {
        PyTuple_SetItem(sizes, i, PyLong_FromLongLong(shape[i]));
        PyTuple_SetItem(strides, i, PyLong_FromLongLong(step[i + 1]));
    }
    if (sizes && strides)
        made = PyObject_CallFunctionObjArgs(empty[device], sizes, strides, type, NULL);
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    return made;
}

/* A new tensor on the device of x, and its address.  type NULL: that of x.  NULL: an error of Python's, or x
 * is not on the current GPU. */
static PyObject *make_at(const struct rows *x, const int64_t *shape, int n, PyObject *type, int turned,
                         void *address)
{
    struct tensor t;
    PyObject *own = type ? NULL : PyObject_GetAttr(x->object, type_name), *made = NULL;
    if (type || own) made = make(x->t.device, shape, n, type ? type : own, turned);
    Py_XDECREF(own);
    if (made && (exchange->tensor_of(made, &t) || t.number != x->t.number)) Py_DECREF(made), made = NULL;
    if (made) *(void **)address = t.data + t.offset;
    return made;
}

/* o as q, with the width of v and heads and rows in the order of q's memory. */
static PyObject *make_o(const struct rows *q, enum order order, size_t width,
                        struct five_steps_attention_problem *p)
{
    int64_t shape[MOST_RANK];
    const int64_t *steps = q->t.strides;
    for (int i = 0; i < q->t.rank; i++) shape[i] = q->t.shape[i];
    shape[q->t.rank - 1] = (int64_t)width;
    int rows_first = order == HEADS_ROWS && q->t.rank == 4 && shape[1] > 1 && shape[2] > 1 &&
                     steps[1] < steps[2];
    if (rows_first || order == ROWS_HEADS) {
        if (q->t.device == ON_CUDA && width * q->t.bits / 8u % 16) return NULL;
        p->o_strides = (struct five_steps_strides){q->rows * q->heads * width, width, q->heads * width};
    }
    return make_at(q, shape, q->t.rank, NULL, rows_first, &p->o);
}

/* lse [batch, heads, rows] without the dimensions that q does not have. */
static PyObject *make_lse(const struct rows *q, enum order order,
                          struct five_steps_attention_problem *p)
{
    const int64_t shape[] = {(int64_t)q->batch, (int64_t)q->heads, (int64_t)q->rows};
    int n = q->t.rank - 1;
    return make_at(q, order == ONE_ROW ? shape : shape + 3 - n, n, float_type, 0, &p->lse);
}

/* Sets *bytes of workspace.  To ask takes a tenth of a short call, so the last answer is remembered, with
 * the problem but for its addresses, and with the number of threads, on which it depends on the CPU. */
static int ask(const struct five_steps_attention_problem *p, int device, enum pass pass,
               size_t *bytes)
{
    static struct five_steps_attention_problem last_of[2];
    static size_t bytes_of[2];
    static int threads_of[2];
    int threads = max_threads();
    struct five_steps_attention_problem *const last = &last_of[pass];
    struct five_steps_attention_problem x = *p;
    const void **given[] = {(const void **)&x.lse, (const void **)&x.bias, (const void **)&x.sinks,
                            (const void **)&x.cu_seqlens_q, (const void **)&x.cu_seqlens_k,
                            (const void **)&x.page_table, (const void **)&x.seqlens_k,
                            (const void **)&x.k_scale, (const void **)&x.v_scale,
                            (const void **)&x.dsinks, (const void **)&x.dbias};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (*given[i]) *given[i] = last; /* whether it is there */
    x.q = x.k = x.v = x.o = x.stream = NULL;
    x.d_o = x.dq = x.dk = x.dv = NULL;
    x.seed = 0;
    if (threads != threads_of[pass] || memcmp(&x, last, sizeof x)) {
        last->size = 0, threads_of[pass] = threads;
        if (workspace_of[device][pass](p, &bytes_of[pass], NULL)) return 1;
        memcpy(last, &x, sizeof x);
    }
    *bytes = bytes_of[pass];
    return 0;
}

/* Computes with a workspace: PyTorch's allocator knows when a stream is done with it.  0: done. */
static int run(const struct five_steps_attention_problem *p, const struct rows *q, enum pass pass)
{
    const int device = q->t.device;
    size_t bytes;
    void *memory = NULL;
    PyObject *work = NULL;
    if (ask(p, device, pass, &bytes)) return 1;
    int64_t size = (int64_t)bytes;
    if (device == ON_CPU) memory = malloc(bytes);
    else if (size && !(work = make_at(q, &size, 1, byte_type, 0, &memory))) return 1;
    PyThreadState *others = PyEval_SaveThread();
    int code = compute[device][pass](p, memory, bytes, NULL);
    PyEval_RestoreThread(others);
    if (device == ON_CPU) free(memory);
    Py_XDECREF(work);
    return code;
}

/* The problem's fields that only this call has: (offset, number), ... */
static void set_fields(struct five_steps_attention_problem *p, PyObject *fields)
{
    for (Py_ssize_t i = 0; i + 1 < PyTuple_Size(fields); i += 2) {
        size_t at = PyLong_AsSize_t(PyTuple_GetItem(fields, i));
        size_t value = PyLong_AsSize_t(PyTuple_GetItem(fields, i + 1));
        if (at + sizeof value <= sizeof *p) memcpy((char *)p + at, &value, sizeof value);
    }
}

/* attention(address of a problem with its options, order_q, order_k, keys, q, k, v, bias or None, fields,
 * with_lse) gives (o, lse or None), or None.  with_lse None: nothing is computed. */
static PyObject *attention(PyObject *self, PyObject *const *a, Py_ssize_t n)
{
    (void)self;
    if (n != 10) return PyErr_SetString(PyExc_TypeError, "ten arguments"), NULL;
    struct five_steps_attention_problem p =
        *(const struct five_steps_attention_problem *)PyLong_AsVoidPtr(a[0]);
    enum order order_q = (enum order)PyLong_AsLong(a[1]), order_k = (enum order)PyLong_AsLong(a[2]);
    size_t bytes;
    struct rows q, k, v;
    PyObject *o = NULL, *lse = Py_None, *both = NULL;
    Py_INCREF(lse);
    set_fields(&p, a[8]);
    if (read_rows(a[4], order_q, &q) && read_rows(a[5], order_k, &k) && read_rows(a[6], order_k, &v) &&
        describe(&p, &q, &k, &v, PyLong_AsSize_t(a[3])) && describe_bias(&p, &q, a[7]))
        o = make_o(&q, order_q, v.width, &p);
    if (o && a[9] == Py_True) Py_DECREF(lse), lse = make_lse(&q, order_q, &p);
    if (o && lse && !(a[9] == Py_None ? ask(&p, q.t.device, FORWARD, &bytes) : run(&p, &q, FORWARD)))
        both = PyTuple_Pack(2, o, lse);
    Py_XDECREF(o);
    Py_XDECREF(lse);
    if (both) return both;
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* The gradient of q, k or v: a new tensor like it, with heads before rows in memory. */
static PyObject *make_gradient(const struct rows *x, enum order order, void **address)
{
    return make_at(x, x->t.shape, x->t.rank, NULL, order == ROWS_HEADS, address);
}

/* The address of an array of so many elements, one after another; NULL: it is none. */
static void *address_of(PyObject *object, size_t count, int type, const struct rows *q)
{
    struct tensor t;
    size_t step = 1;
    if (exchange->tensor_of(object, &t) || type_of(&t) != type || t.device != q->t.device) return NULL;
    for (int i = t.rank; i-- > 0; step *= (size_t)t.shape[i])
        if (t.shape[i] != 1 && (size_t)t.strides[i] != step) return NULL;
    return step == count ? t.data + t.offset : NULL;
}

/* gradients(address of a problem with its options, order, q, k, v, bias or None, fields, o, lse, d_o) gives
 * (dq, dk, dv, dsinks or None), or None.  d_o has heads before rows. */
static PyObject *gradients(PyObject *self, PyObject *const *a, Py_ssize_t n)
{
    (void)self;
    if (n != 10) return PyErr_SetString(PyExc_TypeError, "ten arguments"), NULL;
    struct five_steps_attention_problem p =
        *(const struct five_steps_attention_problem *)PyLong_AsVoidPtr(a[0]);
    enum order order = (enum order)PyLong_AsLong(a[1]);
    struct rows q, k, v, o;
    PyObject *dq = NULL, *dk = NULL, *dv = NULL, *dsinks = NULL, *all = NULL;
    set_fields(&p, a[6]);
    if (read_rows(a[2], order, &q) && read_rows(a[3], order, &k) && read_rows(a[4], order, &v) &&
        read_rows(a[7], order, &o) && describe(&p, &q, &k, &v, SIZE_MAX) && describe_bias(&p, &q, a[5])) {
        size_t rows = q.batch * q.heads * q.rows;
        const int64_t heads = (int64_t)q.heads;
        p.o = o.t.data, p.o_strides = o.strides;
        p.lse = address_of(a[8], rows, FIVE_STEPS_F32, &q);
        p.d_o = address_of(a[9], rows * v.width, p.type, &q);
        if (p.lse && p.d_o && alike(&o.t, &q.t) && (dq = make_gradient(&q, order, &p.dq)) &&
            (dk = make_gradient(&k, order, &p.dk)) && (dv = make_gradient(&v, order, &p.dv)) &&
            (!p.sinks || (dsinks = make_at(&q, &heads, 1, float_type, 0, &p.dsinks))) &&
            !run(&p, &q, BACKWARD))
            all = PyTuple_Pack(4, dq, dk, dv, dsinks ? dsinks : Py_None);
    }
    Py_XDECREF(dq);
    Py_XDECREF(dk);
    Py_XDECREF(dv);
    Py_XDECREF(dsinks);
    if (all) return all;
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* setup(exchange, the header's version, bytes of its problem, uint8, float32, and for the CPU and a GPU:
 * workspace and compute of the forward pass and of the backward pass, empty; omp_get_max_threads).  The
 * functions of C are addresses.  A header of the same version may have a longer problem while the version is made. */
static PyObject *setup(PyObject *self, PyObject *const *a, Py_ssize_t n)
{
    (void)self;
    const size_t size = sizeof(struct five_steps_attention_problem);
    const struct exchange *given = PyLong_AsVoidPtr(a[0]);
    if (n != 16 || PyUnicode_CompareWithASCIIString(a[1], FIVE_STEPS_VERSION) || PyLong_AsSize_t(a[2]) != size)
        return PyErr_SetString(PyExc_TypeError, "it was built for another version of the library"), NULL;
    if (given->major != 1 || !given->tensor_of || !given->stream_of)
        return PyErr_SetString(PyExc_ImportError, "another DLPack"), NULL;
    exchange = given;
    byte_type = a[3], float_type = a[4];
    for (int device = ON_CPU; device <= ON_CUDA; device++) {
        PyObject *const *of = a + 5 + 5 * (device - ON_CPU);
        for (int pass = FORWARD; pass <= BACKWARD; pass++) {
            *(void **)&workspace_of[device][pass] = PyLong_AsVoidPtr(of[2 * pass]);
            *(void **)&compute[device][pass] = PyLong_AsVoidPtr(of[2 * pass + 1]);
        }
        empty[device] = of[4];
    }
    *(void **)&max_threads = PyLong_AsVoidPtr(a[15]);
    for (int i = 3; i < 15; i++) Py_INCREF(a[i]);
    type_name = PyUnicode_InternFromString("dtype");
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"attention", (PyCFunction)(void *)attention, METH_FASTCALL, NULL},
                                {"gradients", (PyCFunction)(void *)gradients, METH_FASTCALL, NULL},
                                {"setup", (PyCFunction)(void *)setup, METH_FASTCALL, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "five_steps_tensors", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_five_steps_tensors(void) { return PyModule_Create(&module); }
