/* request.c: the choice of the kernel, the workspace, and 16-bit numbers where the CPU computes in
 * float. */
#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "library/backend.h"
#include "library/request.h"
#include "problem/choice.h"
#include "problem/convert.h"
#include "problem/feature.h"
#include "problem/heads.h"
#include "problem/layout.h"
#include "problem/operation.h"
#include "problem/quantise.h"

enum { ALIGNMENT = 1024 };

/* The CPU's kernels: stage 4.  The last that supports a problem is taken. */
#define CPU_KERNELS(V)                                                      \
    V(tiled_loops) V(tiled_microkernel) V(tiled_all_cores) V(tiled_widened) \
    V(bf16_dot) V(bf16_amx) V(gradient_all_cores)
VARIANT_LIST(on_cpu, CPU_KERNELS)

int request_is_empty(const struct request *r)
{
    for (unsigned set = r->outputs; set;)
        if (r->count[next_array(&set)]) return 0;
    return 1;
}

/* ---- The kernel. ---- */

/* The kernels of the operation on the device, *n of them. */
static const struct variant *const *kernels_of(const struct request *r, size_t *n)
{
    *n = sizeof on_cpu / sizeof *on_cpu - 1;
    if (!r->on_gpu) return on_cpu;
    *n = on_heads(&r->given) ? n_backend_attention : n_backend_softmax;
    return on_heads(&r->given) ? backend_attention : backend_softmax;
}

/* The same without 8 bits: k and v, and q of 8 bits, become copies in 16 bits (on the CPU floats), pages
 * become rows. */
static struct problem widened(const struct request *r)
{
    struct problem p = r->given;
    const struct strides none = {0, 0, 0};
    p.k_strides = p.v_strides = none;
    p.page_size = p.n_pages = p.pages_per_sequence = 0;
    p.cache = F32;
    if (dtype_size(p.dtype) == 1) p.q_strides = none, p.dtype = r->on_gpu ? BF16 : F32;
    if (!r->on_gpu) p.o_strides = none;
    return p;
}

int request_choose(struct request *r, const char *name)
{
    /* A kernel of the CPU that does not know the caller's 16-bit numbers gets floats, one after
     * another.  Those of attention know them, so no cache of keys is copied. */
    struct choice c = {.p = &r->given, .name = name, .types = r->on_gpu ? OWN_TYPE : OR_F32,
                       .isolation = r->isolate_v ? MUST_ISOLATE : MAY_LEAK, .arch = r->arch};
    c.list = kernels_of(r, &c.n);
    if (has_eight_bits(&r->given)) c.types = OWN_TYPE;
    struct choice wide = c;
    r->v = choose(&c);
    r->p = c.asked;
    if (!r->v && has_eight_bits(&r->given) && (r->on_gpu || dtype_size(r->given.dtype) == 1)) {
        struct problem p = widened(r);
        wide.p = &p;
        r->v = choose(&wide);
        r->p = wide.asked;
    }
    if (r->v) return FIVE_STEPS_OK;
    if (name && !c.closest)
        return fail(r, FIVE_STEPS_INVALID, "kernel: there is no '%.80s' here", name);
    return fail(r, FIVE_STEPS_UNSUPPORTED, "%s%s does not support %s",
                name ? "kernel " : "no kernel supports this: ", c.closest ? c.closest->name : "none",
                c.closest ? c.why : "it");
}

/* ---- The workspace. ---- */

/* Does the kernel take numbers of another type than the caller's? */
static int is_converted(const struct request *r, enum array i)
{
    return array_role(&r->p, i) != ABSENT && array_dtype(&r->p, i) != array_dtype(&r->given, i);
}

/* Is the kernel's array another one than the caller's? */
static int has_own(const struct request *r, enum array i)
{
    if (is_converted(r, i)) return 1;
    if (i == ARRAY_LSE && r->v->lse_may_be_null) return 0;
    return !array_of(&r->theirs, i) && is_optional(&r->p, i);
}

/* Room for so many bytes at the end of the workspace, on a multiple of 1024 bytes. */
static size_t place(struct request *r, size_t bytes)
{
    size_t at = r->total;
    r->total = size_plus(at, size_times(size_plus(bytes, ALIGNMENT - 1) / ALIGNMENT, ALIGNMENT));
    return at;
}

int request_layout(struct request *r)
{
    int threads = omp_get_max_threads();
    r->total = 0;
    if (!r->v) return FIVE_STEPS_OK;
    for (unsigned set = r->inputs | r->outputs; set;) {
        enum array i = next_array(&set);
        if (has_own(r, i)) r->at[i] = place(r, array_bytes(&r->p, i));
    }
    if (threads > MOST_THREADS) omp_set_num_threads(MOST_THREADS);
    r->at_scratch = place(r, variant_scratch(r->v, &r->p));
    if (threads > MOST_THREADS) omp_set_num_threads(threads);
    if (r->total) r->total = size_plus(r->total, ALIGNMENT - 1);
    if (r->total <= PTRDIFF_MAX) return FIVE_STEPS_OK;
    return fail(r, FIVE_STEPS_INVALID, "sizes: the workspace has more bytes than memory has "
                "addresses");
}

/* ---- Numbers in another type: of the gradient, of softmax, and of 8 bits. ---- */

/* What the codes of a row of k or v are multiplied by.  That of q counts in k: q stays exact. */
static float factor_of(const struct request *r, enum array i, size_t row)
{
    const float *scales = i == ARRAY_K ? r->theirs.k_scale : r->theirs.v_scale;
    if (dtype_size(array_dtype(&r->given, i)) > 1 || i == ARRAY_Q) return 1;
    size_t at = scale_at(&r->given, &r->theirs, i, row);
    return (scales ? scales[at] : 1) *
           (i == ARRAY_K && r->theirs.q_scale ? r->theirs.q_scale[at] : 1);
}

/* The rows of array i between the caller's array and its float copy: read or, of an output,
 * written. */
static void convert_rows(const struct request *r, enum array i)
{
    struct extents n = array_extents(&r->p, i);
    size_t width = n.size[n.rank - 1], rows = width ? array_dense_count(&r->p, i) / width : 0;
    int out = array_role(&r->p, i) == OUTPUT;
    enum dtype type = array_dtype(&r->given, i);
    char *theirs = array_of(&r->theirs, i);
    float *ours = array_of(&r->a, i);
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        char *at = theirs + array_at(&r->given, i, row * width) * dtype_size(type);
        float *x = ours + row * width, factor = out ? 1 : factor_of(r, i, row);
        if (out) narrow_row(type, x, 1, width, at);
        else widen_row(type, at, width, x);
        for (size_t c = 0; factor != 1 && c < width; c++) x[c] *= factor;
    }
}

/* The same of all arrays in the set of another type. */
static void convert(const struct request *r, unsigned set)
{
    while (set) {
        enum array i = next_array(&set);
        if (!is_converted(r, i)) continue;
        if (r->on_gpu) backend_widen(&r->given, &r->theirs, i, array_of(&r->a, i), r->p.dtype);
        else convert_rows(r, i);
    }
}

/* ---- The call. ---- */

static void *wait_for(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* OpenMP's runtime ends the process where it cannot make a thread: of a team of n, how many can
 * be made?  The team of the last call is still there. */
static int threads_to_be_had(int n)
{
    static _Thread_local int last = 1;
    pthread_t made[MOST_THREADS];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int m = 1;
    if (n > MOST_THREADS) n = MOST_THREADS;
    if (n <= last) return last = n;
    pthread_mutex_lock(&lock);
    while (m < n && !pthread_create(&made[m], NULL, wait_for, &lock)) m++;
    pthread_mutex_unlock(&lock);
    for (int i = 1; i < m; i++) pthread_join(made[i], NULL);
    return last = m < n ? (m + 1) / 2 : n; /* half of them: others want some too */
}

/* The workspace was measured with as many threads as there were then.  As many are used as it has
 * room for and the machine lets us make; *threads: as many as there are. */
static void fit_threads(struct request *r, int *threads)
{
    *threads = omp_get_max_threads();
    int n = r->on_gpu ? *threads : threads_to_be_had(*threads);
    if (n == *threads && r->total <= r->bytes) return;
    do {
        omp_set_num_threads(n);
        request_layout(r);
    } while (r->total > r->bytes && !r->on_gpu && --n > 0);
}

static int bind(struct request *r)
{
    if (r->bytes < r->total || (r->total && !r->workspace))
        return fail(r, FIVE_STEPS_WORKSPACE, "workspace: has %zu bytes, but %zu are needed",
                    r->workspace ? r->bytes : 0, r->total);
    char *memory = r->workspace;
    if (r->total) memory += -(uintptr_t)memory % ALIGNMENT;
    r->a = r->theirs;
    for (unsigned set = r->inputs | r->outputs; set;) {
        enum array i = next_array(&set);
        if (has_own(r, i)) array_set(&r->a, i, memory + r->at[i]);
    }
    r->a.workspace = r->total ? memory + r->at_scratch : NULL;
    convert(r, r->inputs);
    return FIVE_STEPS_OK;
}

/* Without a pair of query and key all gradients are 0. */
static void clear_outputs(const struct request *r)
{
    for (unsigned set = r->outputs; set;) {
        enum array i = next_array(&set);
        size_t bytes = array_bytes(&r->p, i);
        void *array = array_of(&r->a, i);
        if (bytes == 0) continue;
        if (r->on_gpu) backend_clear(array, bytes, r->a.stream);
        else memset(array, 0, bytes);
    }
}

static void compute(struct request *r)
{
    int no_pairs = r->p.batch == 0 || r->p.heads_q == 0 || r->p.seqlen_q == 0 || r->p.seqlen_k == 0;
    if (no_pairs && r->p.op == OP_BACKWARD) clear_outputs(r);
    else if (r->on_gpu && r->p.op == OP_ATTENTION && r->p.seqlen_k == 0)
        backend_no_keys(&r->p, &r->a);
    else
        variant_call(r->v, &r->p, &r->a);
}

int request_run(struct request *r)
{
    int threads, status = request_layout(r);
    if (status) return status;
    fit_threads(r, &threads);
    status = bind(r);
    if (!status) compute(r);
    if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
    if (!status) convert(r, r->outputs);
    return status;
}
