/* problem.h: what is to be computed: sizes, types, options, and where the arrays are.  Part of
 * harness.h.
 *
 * Letters: q [batch, heads_q, seqlen_q, head_dim], k [batch, heads_kv, seqlen_k, head_dim],
 * v [batch, heads_kv, seqlen_k, head_dim_v], o [batch, heads_q, seqlen_q, head_dim_v],
 * lse [batch, heads_q, seqlen_q], bias [seqlen_q, seqlen_k].  Row-major, and contiguous
 * unless the problem says otherwise (strides, packed, page_size). */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* A function of the host, and in CUDA also of the device. */
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

enum dtype { F32, F16, BF16, E4M3, INT8, N_DTYPES }; /* problem/dtype.c describes them */

enum op {
    OP_SOFTMAX,              /* x [rows, cols] -> y [rows, cols] */
    OP_LOGSOFTMAX,           /* the same, logarithm of it */
    OP_ATTENTION,            /* q, k, v (, bias) -> o, lse */
    OP_LOGSOFTMAX_ATTENTION, /* o_i = sum_j (s_ij - lse_i) v_j over the visible keys */
    OP_MEAN,                 /* x [rows, cols] -> y [rows], the mean of each row */
    OP_SCAN,                 /* seqlen_q = 1: o [batch, heads_q, seqlen_k, head_dim_v] and
                              * lse [batch, heads_q, seqlen_k], the answer for keys 0..j */
    OP_UPDATE,               /* seqlen_q = 1: attention after n_updates replaced (k, v) rows */
    OP_FUSED_REDUCTION,      /* x, w [rows, cols] -> y [rows, N_FUSED] */
    OP_BACKWARD,             /* q, k, v, o, lse, d_o -> dq, dk, dv (, dsinks, dbias): the gradients of
                              * sum_i do_i . o_i */
    N_OPS
};

/* The columns of y of OP_FUSED_REDUCTION. */
enum fused {
    FUSED_LSE,           /* log sum_j exp(x_j): the softmax denominator */
    FUSED_SOFTMAX_DOT,   /* sum_j softmax(x)_j w_j */
    FUSED_VARIANCE,      /* sum_j (x_j - mean(x))^2 / cols */
    FUSED_COVARIANCE,    /* sum_j (x_j - mean(x)) (w_j - mean(w)) / cols */
    FUSED_LOGSOFTMAX_DOT,/* sum_j (x_j - lse(x)) w_j */
    N_FUSED
};

/* Elements from one batch, head and row to the next; all 0: as the shape says.  With pages,
 * batch leads from page to page.  The last dimension is always contiguous. */
struct strides { size_t batch, head, row; };

/* What is to be computed.  Sizes are element counts. */
struct problem {
    enum op op;
    enum dtype dtype;       /* of x, w, q, k, v, y, o; bias and lse are always float.  o of 8-bit
                             * q, k and v is bf16 */
    enum dtype cache;       /* E4M3 or INT8: the type of v, and of k unless q has 8 bits itself;
                             * F32 (0): they have dtype.  k_dtype() and v_dtype() say it */
    size_t rows, cols;      /* softmax, logsoftmax, mean, fused_reduction */
    size_t batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
    int causal;             /* key j is visible to query i when j <= i + seqlen_k - seqlen_q */
    int has_bias;
    float scale;            /* multiplies q.k; 1/sqrt(head_dim) unless given */
    size_t n_updates;       /* update */
    ptrdiff_t shift;        /* causal or window, of a part of a longer problem: i counts as
                             * i + shift */
    /* Query i stands at key i_0 = i + seqlen_k - seqlen_q and sees keys i_0 - window_left to
     * i_0 + window_right, of which causal hides those behind i_0.  -1: no limit; else at
     * most 2^40. */
    int has_window;
    ptrdiff_t window_left, window_right;
    float softcap;          /* c > 0: the scaled score s becomes c tanh(s / c), before the
                             * bias and the mask; 0: it stays s */
    int has_sinks;          /* each query head has a logit that adds exp(sink) to l only */
    float dropout;          /* 0 <= p < 1: so probable it is that a weight counts 0; the others count
                             * 1 / (1 - p).  lse stays (dropout.h) */
    uint64_t seed;          /* of dropout */
    size_t first_head;      /* of dropout, in a part of a larger problem: query heads before it */
    /* Sequences of different lengths, one after another: q [heads_q, total_q, head_dim],
     * k [heads_kv, total_k, head_dim], lse [heads_q, total_q].  batch is their number,
     * seqlen_q and seqlen_k are the lengths of the longest. */
    int packed;
    size_t total_q, total_k;
    int has_lengths;        /* sequence b has seqlens_k[b] keys, the first of seqlen_k */
    /* Keys in pages: k [n_pages, heads_kv, page_size, head_dim], v likewise; 0: no pages. */
    size_t page_size, n_pages, pages_per_sequence;
    struct strides q_strides, k_strides, v_strides, o_strides;
    /* A bias for each batch or head, or one that repeats: that of query i and key j stands at
     * batch * b + head * h + row * i + j, modulo 2^64 (a row stride of -1 is a Toeplitz matrix,
     * such as ALiBi's).  Without has_bias_strides: bias [seqlen_q, seqlen_k] for all heads. */
    int has_bias_strides;
    struct strides bias_strides;
    int has_bias_gradient;  /* backward: dbias is wanted */
    int deterministic;      /* every sum in a fixed order: the same bits in every run */
    int invariant;          /* the bits of a query depend on itself and its keys alone: not on other
                             * queries, pages, threads, or how keys are dealt out */
};

/* What a problem p can ask for beyond the plain operation: its bit, whether p asks, and words to
 * complete "variant NAME does not support ...".  A variant lists what it supports; the harness
 * refuses the rest, also a feature that is younger than the variant. */
#define FEATURES(X)                                                                       \
    X(WITH_CAUSAL, p->causal, "a causal mask")                                            \
    X(WITH_BIAS, p->has_bias, "a bias")                                                   \
    X(WITH_GROUPS, p->heads_q != p->heads_kv,                                             \
      "query heads that share a key head (heads_q != heads_kv)")                          \
    X(WITH_HEAD_DIM_V, p->head_dim_v != p->head_dim,                                      \
      "a head_dim_v that differs from head_dim")                                          \
    X(WITH_SHIFT, (p->causal || p->has_window) && p->shift, "a shifted mask")             \
    X(WITH_WINDOW, p->has_window, "a window")                                             \
    X(WITH_SOFTCAP, p->softcap != 0, "a soft cap")                                        \
    X(WITH_SINKS, p->has_sinks, "sinks")                                                  \
    X(WITH_PACKED, p->packed, "packed sequences (cu_seqlens)")                            \
    X(WITH_PAGES, p->page_size != 0, "keys in pages")                                     \
    X(WITH_STRIDES, has_strides(p), "strides")                                            \
    X(WITH_BIAS_STRIDES, p->has_bias && p->has_bias_strides,                              \
      "a bias of each batch or head")                                                     \
    X(WITH_LENGTHS, p->has_lengths, "a number of keys of each sequence")                  \
    X(WITH_INVARIANT, p->invariant, "bits of a query that depend on its keys alone")      \
    X(WITH_EIGHT_BITS, has_eight_bits(p), "keys and values in 8 bits")                    \
    X(WITH_DROPOUT, p->dropout != 0, "dropout")                                           \
    X(WITH_BIAS_GRADIENT, p->has_bias_gradient, "the gradient of a bias")

#define FEATURE_NUMBER(bit, condition, words) NUMBER_##bit,
#define FEATURE_BIT(bit, condition, words) bit = 1 << NUMBER_##bit,
enum feature_number { FEATURES(FEATURE_NUMBER) N_FEATURES };
enum feature { FEATURES(FEATURE_BIT) FEATURES_END = 1 << N_FEATURES };

/* What acts on a score: the option of `run` with its value in the help, the verbs that take it, how
 * it is read (program/parse.c), its field, and whether it was given; then the word of a case, how that
 * is read (verification/case_list.c). */
#define SCORE_OPTIONS(X)                                                                  \
    X("causal", NULL, IN_RUN | IN_BENCH, FLAG, causal, NO_FLAG, "causal", FLAG)           \
    X("scale", "S", IN_RUN, NUMBER, scale, AT(has_scale), "scale", REAL)                  \
    X("window", "L,R", IN_RUN, WINDOW, window_left, SCORE(has_window), "window", RANGE)   \
    X("softcap", "C", IN_RUN, POSITIVE, softcap, NO_FLAG, "cap", REAL)                    \
    X("dropout", "P", IN_RUN, NUMBER, dropout, NO_FLAG, "dropout", REAL)

/* A key whose score is -INFINITY weighs 0 and its value is not looked at, whatever made the
 * score: causal, the bias, or arithmetic.  A query without any other key gives o = 0 and
 * lse = -INFINITY, or the sink.  A score of NaN or +INFINITY gives NaN in the whole row.
 *
 * Where the data is.  For a GPU variant these are device addresses.  Inputs that an
 * operation does not use are NULL.  Outputs never overlap inputs. */
struct arrays {
    const void *x, *w;
    void *y;
    const void *q, *k, *v;
    const float *bias;
    const float *sinks;         /* [heads_q] */
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* packed: [batch + 1] where each sequence
                                 * begins, and the total; on the device for a GPU variant */
    const int32_t *seqlens_k;   /* [batch] keys of each sequence */
    const int32_t *page_table;  /* [batch, pages_per_sequence] a sequence's pages */
    void *o;                    /* an output, of backward an input; so is lse */
    float *lse;
    float *l;                   /* as lse, or NULL: then l = sum exp(s - m), and lse takes m.  For
                                 * parts that are merged; only all_cores knows it */
    const void *d_o;            /* [as o] backward: the gradient that comes in, "do" */
    void *dq, *dk, *dv;         /* [as q, k, v], contiguous; over all query heads of the group */
    float *dsinks;              /* [heads_q] */
    float *dbias;               /* lies as bias; an element that several scores share gets their sum */
    const size_t *index;        /* [n_updates] the key row that update u replaces */
    const void *k_new, *v_new;  /* [batch, heads_kv, n_updates, head_dim or head_dim_v] */
    const float *q_scale, *k_scale, *v_scale; /* [batch, heads_kv], of q, k, v in 8 bits: a number
                                 * is its code times that of its key head; NULL: 1 */
    void *workspace;            /* variant_scratch() bytes, 1024-byte aligned */
    void *stream;               /* cudaStream_t of a GPU variant; NULL: the default one */
};

/* What theory says a variant costs. */
struct cost {
    double passes; /* reads and writes of the whole large array: x, or the scores */
    double bytes;  /* main-memory bytes moved, if nothing but one row or tile stays cached */
    double exps;   /* exponentials evaluated */
    double rfo_bytes; /* bytes of read-for-ownership, not part of `bytes`: before a CPU
                       * writes to a line that is not cached, it reads the line */
};
