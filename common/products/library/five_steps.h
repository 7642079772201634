/* five_steps.h: exact attention and softmax, on the CPU and on NVIDIA GPUs.
 *
 *     o = softmax(scale q k^T + bias) v,    lse = log of the softmax's denominator
 * with causal masks, windows, soft caps, sinks, packed sequences, pages and strides.
 *
 * Link with -lfive_steps (pkg-config five_steps).  C99 and C++.
 *
 * Arrays are row-major, and contiguous unless strides are given; sizes count elements:
 *     q [batch, heads_q,  seqlen_q, head_dim]      o   [batch, heads_q, seqlen_q, head_dim_v]
 *     k [batch, heads_kv, seqlen_k, head_dim]      lse [batch, heads_q, seqlen_q]
 *     v [batch, heads_kv, seqlen_k, head_dim_v]    bias [seqlen_q, seqlen_k], added to scores
 *     x, y [rows, cols]
 * q, k, v, o, x, y have the type that the problem names; bias and lse are always float.
 *
 * Where: FIVE_STEPS_CPU computes on host memory with OpenMP's threads (OMP_NUM_THREADS) and
 * returns when it is done.  FIVE_STEPS_GPU computes on memory of the current CUDA device: it
 * starts its kernels in the given stream and returns at once.  It neither allocates nor
 * waits, so it may be captured in a CUDA graph.  GPU arrays start at multiples of 16 bytes.
 *
 * Errors: each function returns 0 or a code, and then has touched no array.  It never ends
 * the process and never prints.  A GPU reports a failure of the kernel itself later, as CUDA
 * does: cudaStreamSynchronize() returns it.
 *
 * Threads: no function has state.  Any number of threads and streams may call at the same
 * time, each call with a workspace and an error of its own.  A workspace may be used again
 * when the call that had it is complete (on a GPU: when the stream has passed it).
 *
 * Edge cases: a query that sees no key (causal, or a bias of -infinity, or seqlen_k = 0)
 * gives o = 0 and lse = -infinity (with a sink: the sink).  A row of x that is all -infinity
 * gives y = 0 (its logarithm: -infinity).  A problem without elements (batch, heads or
 * seqlen_q = 0) returns 0 at once.  NaN in q, in a visible key or in a visible value gives
 * NaN in exactly the affected elements.  NaN or infinity in a value that is *hidden* meets a
 * weight of 0, and 0 * NaN is NaN, in the fastest GPU kernels: set isolate_v where v may hold
 * such values. */
#ifndef FIVE_STEPS_H
#define FIVE_STEPS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FIVE_STEPS_VERSION "1.9.0"

enum five_steps_device { FIVE_STEPS_CPU, FIVE_STEPS_GPU };
/* The last two of attention alone: 1 sign, 4 exponent and 3 fraction bits; whole numbers.  Where they are
 * the problem's type q, k and v have 8 bits, and o is bfloat16. */
enum five_steps_type { FIVE_STEPS_F32, FIVE_STEPS_F16, FIVE_STEPS_BF16, FIVE_STEPS_E4M3, FIVE_STEPS_INT8 };

/* What a function returns. */
enum five_steps_code {
    FIVE_STEPS_OK = 0,
    FIVE_STEPS_INVALID = 1,     /* an argument is wrong: a size, a pointer, an alignment */
    FIVE_STEPS_UNSUPPORTED = 2, /* the problem is sound, but no kernel (or not the one that
                                 * was named) supports it */
    FIVE_STEPS_WORKSPACE = 3,   /* the workspace is smaller than the query said */
    FIVE_STEPS_NO_GPU = 4,      /* no GPU, or the library was built without CUDA */
    FIVE_STEPS_CUDA = 5         /* a CUDA call failed; the message names it */
};

/* The caller's memory for what went wrong.  message is one line, ended by 0; after a call
 * that returned 0 it is empty.  Every function takes NULL for an error that nobody reads. */
struct five_steps_error {
    int code;
    char message[244];
};

/* Elements from one batch (with pages: from one page), head and row to the next.  The last
 * dimension is contiguous. */
struct five_steps_strides { size_t batch, head, row; };

/* Attention.  Clear the struct with memset(), then set size to its sizeof: that tells a later
 * version of the library which fields its caller knows. */
struct five_steps_attention_problem {
    size_t size;
    int device;              /* enum five_steps_device */
    int type;                /* enum five_steps_type */
    size_t batch, heads_q, heads_kv; /* heads_q is a multiple of heads_kv (MHA, GQA, MQA) */
    size_t seqlen_q, seqlen_k, head_dim, head_dim_v;
    int causal;              /* 1: query i sees keys j <= i + seqlen_k - seqlen_q */
    int isolate_v;           /* 1: v may hold NaN or infinity where it is hidden */
    float scale;             /* multiplies q.k; 0 stands for 1 / sqrt(head_dim) */
    const void *q, *k, *v;
    const float *bias;       /* NULL: none */
    void *o;                 /* as every output, overlaps no other array */
    float *lse;              /* NULL: not wanted */
    void *stream;            /* GPU: a cudaStream_t; NULL is the default stream */
    const char *kernel;      /* NULL: the best for the problem; or a kernel's name */

    /* Since 1.1.  All 0: none of it. */
    /* window = 1: query i stands at key i_0 = i + seqlen_k - seqlen_q and sees keys
     * i_0 - window_left to i_0 + window_right; -1: no limit.  causal hides keys behind i_0. */
    int window;
    float softcap;           /* c > 0: the scaled score s becomes c tanh(s / c), then bias */
    ptrdiff_t window_left, window_right;
    const float *sinks;      /* [heads_q] logits that count in the denominator and in lse */
    /* Packed sequences: cu_seqlens_q is not NULL.  q [heads_q, total_q, head_dim],
     * k [heads_kv, total_k, head_dim], lse [heads_q, total_q]; sequence b has the rows
     * cu_seqlens[b] to cu_seqlens[b + 1] - 1.  batch is the number of sequences, seqlen_q and
     * seqlen_k are the lengths of the longest (or more).  On the problem's device; the CPU
     * checks them. */
    const int *cu_seqlens_q, *cu_seqlens_k; /* [batch + 1], 0 first, total last */
    size_t total_q, total_k;
    /* Keys in pages: page_table is not NULL.  k [n_pages, heads_kv, page_size, head_dim], v
     * likewise; key j of sequence b lies in page page_table[b, j / page_size], row
     * j % page_size.  With packed sequences cu_seqlens_k says how many keys each has. */
    const int *page_table;   /* [batch, pages_per_sequence], on the problem's device */
    size_t page_size, n_pages, pages_per_sequence;
    /* All 0: contiguous.  Rows of inputs may overlap or repeat; rows of o may not.  What lies
     * between the rows is not touched. */
    struct five_steps_strides q_strides, k_strides, v_strides, o_strides;

    /* Since 1.2. */
    /* bias_is_strided = 1: a bias for each batch or head, or one that repeats.  That of query i
     * of head h of batch b and key j is element b * batch + h * head + i * row + j, modulo 2^64;
     * 0: bias [seqlen_q, seqlen_k] serves all. */
    int bias_is_strided;
    struct five_steps_strides bias_strides;

    /* Since 1.3.  The backward pass reads d_o and writes the others; attention looks at none. */
    const void *d_o;         /* as o, contiguous: the gradient of o */
    void *dq, *dk, *dv;      /* as q, k, v, contiguous */
    float *dsinks;           /* [heads_q]; NULL: not wanted */

    /* Since 1.4.  NULL: all have seqlen_k.  Sequence b uses the first seqlens_k[b] keys of a row of
     * seqlen_k, or of its pages; causal and window are aligned at their end.  Not with packed
     * sequences.  On the problem's device; the CPU checks them. */
    const int *seqlens_k;    /* [batch] */

    /* Since 1.6.  deterministic = 1: every sum in a fixed order, so all runs give the same bits.  The
     * gradient on a GPU asks for it; all else does so anyway.
     * invariant = 1, of attention: the bits of a query's o and lse depend on the query and on its
     * keys alone, not on the batch, other queries, strides, pages, or the number of threads.  So
     * decoding gives the bits of a prefill, whole or in chunks.  On one kind of machine, and while
     * no hidden value is NaN or infinite. */
    int deterministic, invariant;

    /* Since 1.7.  kv_type: 0: k and v have the problem's type; FIVE_STEPS_E4M3 or FIVE_STEPS_INT8: they
     * have 8 bits, and a number is its code times the scale of its sequence and key head.  Where q has
     * 8 bits, k has its type, and kv_type is that of v (int8 q may go with v in e4m3).  Attention only.
     * What no kernel reads as it lies becomes 16 bits (on a CPU: float) in the workspace, rounded unless
     * the scales are powers of two. */
    int kv_type;
    const float *k_scale, *v_scale; /* [batch, heads_kv] on the problem's device; NULL: 1 */

    const float *q_scale;    /* Since 1.8: of q of 8 bits, [batch, heads_kv]: its key head's */

    /* Since 1.9.  dropout, 0 <= p < 1: each weight counts 0 with that probability, else 1 / (1 - p); lse stays.
     * Which ones is a function of seed, sequence, head, query and key, so the backward pass, given the same,
     * finds them again, on any device. */
    float dropout;
    size_t seed;
    /* The backward pass: lies as bias; an element that several scores share gets their sum.  NULL: not
     * wanted.  With bias_strides none of which is negative. */
    float *dbias;
};

/* Since 1.8.  Numbers as codes of 8 bits, with the least scale of each head at which none saturates:
 *     x' = rotate(x - mean),   scale = max |x'| / largest code,   codes = x' / scale, rounded
 * that of e4m3 rounded up to a power of two, which costs no accuracy: codes times scale are exact in 16 bits.
 * smooth: the mean row is subtracted (of keys: softmax stays, lse falls by scale q.mean).  rotate: each row
 * is multiplied by the Hadamard matrix / sqrt(head_dim); q and k alike have the same products. */
struct five_steps_quantise_problem {
    size_t size;
    int device, type;        /* type of x */
    size_t batch, heads, rows, head_dim; /* head_dim: 32, 64, 128 or 256 */
    struct five_steps_strides strides;   /* of x; all 0: contiguous */
    const void *x;           /* [batch, heads, rows, head_dim] */
    int to;                  /* FIVE_STEPS_E4M3 or FIVE_STEPS_INT8 */
    int smooth, rotate;
    void *codes;             /* as x, contiguous */
    float *scale;            /* [batch, heads] */
    float *mean;             /* [batch, heads, head_dim], where smooth is 1 */
    void *stream;
};

/* Softmax of each row. */
struct five_steps_softmax_problem {
    size_t size;
    int device, type;
    size_t rows, cols;
    int log;                 /* 1: the logarithm of the softmax */
    const void *x;
    void *y;                 /* does not overlap x */
    void *stream;
    const char *kernel;
};

/* Two partial results of the same queries, over keys that do not overlap, become the result
 * over both (the SE monoid):
 *     lse = log(exp(lse1) + exp(lse2)),   o = exp(lse1 - lse) o1 + exp(lse2 - lse) o2
 * A part without keys (lse = -infinity) gives the other part, bit for bit. */
struct five_steps_merge_problem {
    size_t size;
    int device, type;        /* type of o1, o2, o */
    size_t rows, head_dim_v; /* rows: batch * heads_q * seqlen_q */
    const void *o1, *o2;     /* [rows, head_dim_v] */
    const float *lse1, *lse2;/* [rows] */
    void *o;                 /* may be o1 or o2 */
    float *lse;              /* may be lse1 or lse2 */
    void *stream;
};

/* Sets the sizes of p, batch to head_dim_v, from the shapes of q, k and v: all [seqlen, head_dim],
 * [heads, seqlen, head_dim] or [batch, heads, seqlen, head_dim].
 *   ranks (3)  numbers of dimensions      sizes  those of q, then of k, then of v */
int five_steps_attention_shapes(struct five_steps_attention_problem *p, const size_t *ranks,
                                const size_t *sizes, struct five_steps_error *error);

/* Bytes of workspace that the problem needs in the memory of its device; 0: none.  Pointers
 * are not followed here, but what is NULL now must be NULL in the call too: bias, sinks,
 * cu_seqlens, seqlens_k, page_table, scales, dbias.  What is given may not overlap already. */
int five_steps_attention_workspace(const struct five_steps_attention_problem *p,
                                   size_t *bytes, struct five_steps_error *error);
int five_steps_softmax_workspace(const struct five_steps_softmax_problem *p, size_t *bytes,
                                 struct five_steps_error *error);

/* Computes.  workspace: `bytes` bytes at any address, at least as many as the query said. */
int five_steps_attention(const struct five_steps_attention_problem *p, void *workspace,
                         size_t bytes, struct five_steps_error *error);
int five_steps_softmax(const struct five_steps_softmax_problem *p, void *workspace,
                       size_t bytes, struct five_steps_error *error);
int five_steps_merge(const struct five_steps_merge_problem *p,
                     struct five_steps_error *error);
int five_steps_quantise(const struct five_steps_quantise_problem *p,
                        struct five_steps_error *error);

/* The gradients of attention, from q, k, v, o and lse of the forward pass and the gradient of o:
 *     D_i   = do_i . o_i,  p_ij = exp(s_ij - lse_i),  ds_ij = p_ij (do_i . v_j - D_i)
 *     dq_i  = scale sum_j ds_ij k_j,   dk_j = scale sum_i ds_ij q_i,   dv_j = sum_i p_ij do_i
 *     dsink = -sum_i exp(sink - lse_i) D_i, of a head
 * A soft cap multiplies ds_ij by its slope; dk and dv are sums over the query heads that share the
 * key head; dbias is ds without the cap's slope.  The problem is the forward pass's, with its results, which
 * are read here, and the fields since 1.3 and 1.9.  What no query sees has gradient 0, and so has a query
 * without keys.  Keys in pages are not supported. */
int five_steps_attention_backward_workspace(const struct five_steps_attention_problem *p,
                                            size_t *bytes, struct five_steps_error *error);
int five_steps_attention_backward(const struct five_steps_attention_problem *p,
                                  void *workspace, size_t bytes,
                                  struct five_steps_error *error);

/* The kernel that the problem would be given, and the bytes of main memory that it moves
 * according to its own model.  *name lives as long as the library. */
int five_steps_attention_kernel(const struct five_steps_attention_problem *p,
                                const char **name, double *bytes_moved,
                                struct five_steps_error *error);

/* What that kernel takes for the problem's shape, such as "tiles of 128 queries, 64 keys";
 * "" for a kernel that takes the same for all.  A later call may overwrite *choice. */
int five_steps_attention_choice(const struct five_steps_attention_problem *p,
                                const char **choice, struct five_steps_error *error);

const char *five_steps_version(void);    /* of the library: FIVE_STEPS_VERSION of its header */
const char *five_steps_built_with(void); /* "nvcc 80 90a", or "no CUDA" */

/* The level of x86-64 that this processor has: 4 (AVX-512), 3 (AVX2, FMA), 2, or 1; 0 elsewhere.
 * Where the library was compiled for a higher one, no other function may be called. */
int five_steps_cpu_level(void);

#ifdef __cplusplus
}
#endif
#endif
