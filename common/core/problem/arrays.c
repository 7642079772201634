/* arrays.c: the one list of arrays, and what follows from it. */
#include "problem/arrays.h"

#include "problem/feature.h"
#include "problem/layout.h"
#include "problem/operation.h"

#define AT(name) offsetof(struct arrays, name)
#define BY(name) offsetof(struct problem, name##_strides)

const struct array_entry array_list[N_ARRAYS] = {
    [ARRAY_X] = {"x", AT(x), OF_PROBLEM, {ROWS, COLS}, 0, 0},
    [ARRAY_W] = {"w", AT(w), OF_PROBLEM, {ROWS, COLS}, 0, 0},
    [ARRAY_Y] = {"y", AT(y), OF_PROBLEM, {ROWS, RESULTS}, 0, 0},
    [ARRAY_Q] = {"q", AT(q), OF_PROBLEM, {BATCHES, HEADS_Q, QUERIES, HEAD_DIM}, 0, BY(q)},
    [ARRAY_K] = {"k", AT(k), OF_PROBLEM, {PAGES_OR_BATCHES, HEADS_KV, KEYS, HEAD_DIM}, 0,
                 BY(k)},
    [ARRAY_V] = {"v", AT(v), OF_PROBLEM, {PAGES_OR_BATCHES, HEADS_KV, KEYS, HEAD_DIM_V}, 0,
                 BY(v)},
    [ARRAY_BIAS] = {"bias", AT(bias), FLOAT, {SEQLEN_Q, SEQLEN_K}, WITH_BIAS, 0},
    [ARRAY_SINKS] = {"sinks", AT(sinks), FLOAT, {HEADS_Q}, WITH_SINKS, 0},
    [ARRAY_CU_SEQLENS_Q] = {"cu-seqlens-q", AT(cu_seqlens_q), INT32, {SUMS}, WITH_PACKED, 0},
    [ARRAY_CU_SEQLENS_K] = {"cu-seqlens-k", AT(cu_seqlens_k), INT32, {SUMS}, WITH_PACKED, 0},
    [ARRAY_SEQLENS_K] = {"seqlens-k", AT(seqlens_k), INT32, {SEQUENCES}, WITH_LENGTHS, 0},
    [ARRAY_PAGE_TABLE] = {"page-table", AT(page_table), INT32, {SEQUENCES, SEQUENCE_PAGES},
                          WITH_PAGES, 0},
    [ARRAY_INDEX] = {"index", AT(index), SIZE, {UPDATES}, 0, 0},
    [ARRAY_K_NEW] = {"k-new", AT(k_new), OF_PROBLEM, {BATCHES, HEADS_KV, UPDATES, HEAD_DIM},
                     0, 0},
    [ARRAY_V_NEW] = {"v-new", AT(v_new), OF_PROBLEM, {BATCHES, HEADS_KV, UPDATES, HEAD_DIM_V},
                     0, 0},
    [ARRAY_O] = {"o", AT(o), OF_PROBLEM, {BATCHES, HEADS_Q, ANSWERS, HEAD_DIM_V}, 0, BY(o)},
    [ARRAY_LSE] = {"lse", AT(lse), FLOAT, {BATCHES, HEADS_Q, ANSWERS}, 0, 0},
    [ARRAY_DO] = {"do", AT(d_o), OF_PROBLEM, {BATCHES, HEADS_Q, ANSWERS, HEAD_DIM_V}, 0, 0},
    [ARRAY_DQ] = {"dq", AT(dq), OF_PROBLEM, {BATCHES, HEADS_Q, QUERIES, HEAD_DIM}, 0, 0},
    [ARRAY_DK] = {"dk", AT(dk), OF_PROBLEM, {BATCHES, HEADS_KV, KEYS, HEAD_DIM}, 0, 0},
    [ARRAY_DV] = {"dv", AT(dv), OF_PROBLEM, {BATCHES, HEADS_KV, KEYS, HEAD_DIM_V}, 0, 0},
    [ARRAY_DSINKS] = {"dsinks", AT(dsinks), FLOAT, {HEADS_Q}, WITH_SINKS, 0},
    [ARRAY_DBIAS] = {"dbias", AT(dbias), FLOAT, {SEQLEN_Q, SEQLEN_K}, WITH_BIAS_GRADIENT, 0},
    [ARRAY_Q_SCALE] = {"q-scale", AT(q_scale), FLOAT, {SEQUENCES, HEADS_KV}, WITH_EIGHT_BITS, 0},
    [ARRAY_K_SCALE] = {"k-scale", AT(k_scale), FLOAT, {SEQUENCES, HEADS_KV}, WITH_EIGHT_BITS, 0},
    [ARRAY_V_SCALE] = {"v-scale", AT(v_scale), FLOAT, {SEQUENCES, HEADS_KV}, WITH_EIGHT_BITS, 0},
};

/* Of each dimension the name, and its size in problem p. */
#define DIMENSIONS(X)                                                          \
    X(NO_DIMENSION, "", 0)                                                     \
    X(ROWS, "rows", p->rows)                                                   \
    X(COLS, "cols", p->cols)                                                   \
    X(RESULTS, "results",                                                      \
      operations[p->op].results == AS_X ? p->cols : operations[p->op].results) \
    X(BATCHES, "batch", p->packed ? 1 : p->batch)                              \
    X(PAGES_OR_BATCHES, "batch", p->page_size ? p->n_pages : p->packed ? 1 : p->batch) \
    X(HEADS_Q, "heads_q", p->heads_q)                                          \
    X(HEADS_KV, "heads_kv", p->heads_kv)                                       \
    X(QUERIES, "seqlen_q", stored_queries(p))                                  \
    X(KEYS, "seqlen_k", stored_keys(p))                                        \
    X(ANSWERS, "seqlen_q", p->packed ? p->total_q : rows_per_head(p))          \
    X(SEQLEN_Q, "seqlen_q", p->seqlen_q)                                       \
    X(SEQLEN_K, "seqlen_k", p->seqlen_k)                                       \
    X(HEAD_DIM, "head_dim", p->head_dim)                                       \
    X(HEAD_DIM_V, "head_dim_v", p->head_dim_v)                                 \
    X(SUMS, "sequences + 1", size_plus(p->batch, 1))                           \
    X(SEQUENCES, "sequences", p->batch)                                        \
    X(SEQUENCE_PAGES, "pages_per_sequence", p->pages_per_sequence)             \
    X(UPDATES, "n_updates", p->n_updates)

const char *dimension_name(enum dimension d)
{
#define NAME(dimension, name, size) [dimension] = name,
    static const char *const names[] = {DIMENSIONS(NAME)};
    return names[d];
}

static size_t dimension(const struct problem *p, enum dimension d)
{
#define SIZE_OF(dimension, name, size) case dimension: return size;
    switch (d) { DIMENSIONS(SIZE_OF) }
    return 0;
}

enum role array_role(const struct problem *p, enum array i)
{
    const struct operation *op = &operations[p->op];
    unsigned feature = array_list[i].feature;
    if (!((op->inputs | op->outputs) & HAS(i))) return ABSENT;
    if (feature && !asks_for(p, feature)) return ABSENT;
    return op->outputs & HAS(i) ? OUTPUT : INPUT;
}

struct extents array_extents(const struct problem *p, enum array i)
{
    struct extents e = {0, {0}};
    if (array_role(p, i) == ABSENT) return e;
    const enum dimension *d = array_list[i].dimensions;
    for (; e.rank < MOST_DIMENSIONS && d[e.rank] != NO_DIMENSION; e.rank++) {
        if (d[e.rank] == RESULTS && !operations[p->op].results) break; /* one per row */
        e.size[e.rank] = dimension(p, d[e.rank]);
    }
    return e;
}

static size_t product(const struct extents *e)
{
    size_t n = e->rank > 0;
    for (size_t t = 0; t < e->rank; t++) n = size_times(n, e->size[t]);
    return n;
}

size_t array_dense_count(const struct problem *p, enum array i)
{
    struct extents e = array_extents(p, i);
    return i == ARRAY_DBIAS ? array_count(p, i) : product(&e);
}

struct strides array_given_strides(const struct problem *p, enum array i)
{
    struct strides none = {0, 0, 0};
    if (!array_list[i].strides) return none;
    return *(const struct strides *)(const void *)((const char *)p + array_list[i].strides);
}

struct strides array_strides(const struct problem *p, enum array i)
{
    struct extents e = array_extents(p, i);
    return strides_or(array_given_strides(p, i), e.size[1], e.size[2], e.rank > 3 ? e.size[3] : 1);
}

int array_has_rows(enum array i) { return array_list[i].dimensions[2] != NO_DIMENSION; }

int array_is_of_keys(enum array i) { return array_list[i].dimensions[2] == KEYS; }

/* How far the rows of a bias with strides reach from the first one's begin, forwards or back. */
static size_t bias_reach(const struct problem *p, int back)
{
    const size_t stride[] = {p->bias_strides.batch, p->bias_strides.head, p->bias_strides.row};
    const size_t n[] = {p->batch, p->heads_q, p->seqlen_q};
    size_t reach = 0;
    for (int t = 0; t < 3; t++)
        if (n[t] && (stride[t] > PTRDIFF_MAX) == back)
            reach = size_plus(reach, size_times(n[t] - 1, back ? 0 - stride[t] : stride[t]));
    return reach;
}

void *array_start(const struct problem *p, const struct arrays *a, enum array i)
{
    int strided = i == ARRAY_BIAS && array_of(a, i) && p->has_bias && p->has_bias_strides;
    return (char *)array_of(a, i) - (strided ? bias_reach(p, 1) * sizeof(float) : 0);
}

size_t array_count(const struct problem *p, enum array i)
{
    struct extents e = array_extents(p, i);
    struct strides by = array_given_strides(p, i);
    const size_t stride[] = {by.batch, by.head, by.row};
    size_t n = product(&e), last = 0;
    if (n && (i == ARRAY_BIAS || i == ARRAY_DBIAS) && p->has_bias_strides)
        return size_plus(p->seqlen_k, size_plus(bias_reach(p, 0), bias_reach(p, 1)));
    if (n == 0 || !(by.batch || by.head || by.row)) return n;
    for (int t = 0; t < 3; t++)
        last = size_plus(last, size_times(e.size[t] - 1, stride[t]));
    return size_plus(last, e.size[3]);
}

size_t array_at(const struct problem *p, enum array array, size_t i)
{
    struct strides by = array_given_strides(p, array);
    if (!(by.batch || by.head || by.row)) return i;
    struct extents e = array_extents(p, array);
    size_t width = e.size[3], row = i / width, head = row / e.size[2];
    return head / e.size[1] * by.batch + head % e.size[1] * by.head + row % e.size[2] * by.row +
           i % width;
}

enum dtype array_dtype(const struct problem *p, enum array i)
{
    if (array_list[i].number != OF_PROBLEM) return F32;
    return i == ARRAY_K ? k_dtype(p) : i == ARRAY_V ? v_dtype(p) : i == ARRAY_O ? o_dtype(p) : p->dtype;
}

size_t array_element(const struct problem *p, enum array i)
{
    switch (array_list[i].number) {
    case FLOAT: return sizeof(float);
    case INT32: return sizeof(int32_t);
    case SIZE: return sizeof(size_t);
    default: return dtype_size(array_dtype(p, i));
    }
}

size_t array_bytes(const struct problem *p, enum array i)
{
    return size_times(array_count(p, i), array_element(p, i));
}

size_t problem_bytes(const struct problem *p)
{
    size_t all = 0;
    for (int i = 0; i < N_ARRAYS; i++) all = size_plus(all, array_bytes(p, (enum array)i));
    return all;
}

unsigned files_needed(enum op op)
{
    unsigned needed = operations[op].files;
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_list[i].feature) needed &= ~HAS(i);
    return operations[op].outputs & HAS(ARRAY_LSE) ? needed & ~HAS(ARRAY_LSE) : needed;
}
