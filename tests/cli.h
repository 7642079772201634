/* cli.h: a stage program in a directory of its own: run it, give it files, read what it wrote. */
#ifndef CLI_H
#define CLI_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "problem/half.h"
#include "npy/npy.h"

static const char *const stages[] = { "01_naive", "02_safe_softmax", "03_online_softmax",
                                      "04_monoid_tiled_cpu", "05_flash_cuda" };
enum { N_STAGES = 5 };

static char root[1024];          /* the repository */
static char place[64];           /* a directory of this test's own, where it works */
static char printed[1 << 16];    /* what the last program wrote to stdout, */
static char complained[1 << 14]; /* and to stderr */

static inline void make_place(void)
{
    cr_assert(getcwd(root, sizeof root) != NULL);
    strcpy(place, "/tmp/test_cli.XXXXXX");
    cr_assert(mkdtemp(place) && !chdir(place));
    setenv("OMP_NUM_THREADS", "2", 1);
}

static inline void remove_place(void)
{
    char command[192];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(!chdir("/") && !system(command));
}

static inline void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

/* Runs build/STAGE with the arguments, through sh; returns its exit status. */
static inline int run(const char *stage, const char *format, ...)
{
    const char *build = getenv("BUILD");
    char command[4096];
    int n = snprintf(command, sizeof command, "%s/%s/%s ", root, build ? build : "build",
                     stage);
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(command + n, sizeof command - (size_t)n, format, arguments);
    va_end(arguments);
    cr_assert(n < 4000);
    strcat(command, strchr(command, '>') ? " 2>.stderr" : " >.stdout 2>.stderr");
    int status = system(command);
    slurp(".stdout", printed, sizeof printed);
    slurp(".stderr", complained, sizeof complained);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* Files in the working directory that are not the two streams. */
static inline int n_files(void)
{
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
             strcmp(e->d_name, ".stdout") && strcmp(e->d_name, ".stderr");
    closedir(d);
    return n;
}

static inline void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static inline int holds(const char *path, const char *text)
{
    char found[64];
    slurp(path, found, sizeof found);
    return !strcmp(found, text);
}

/* n numbers between -2 and 2 with no pattern a tile could hide in. */
static inline float *numbers(size_t n, unsigned seed)
{
    float *x = calloc(n ? n : 1, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (1 << 22) - 2;
    }
    return x;
}

static inline size_t product(size_t ndim, const size_t *shape)
{
    size_t n = 1;
    for (size_t t = 0; t < ndim; t++) n *= shape[t];
    return n;
}

/* Saves numbers of that shape under the name; returns them. */
static inline float *save_numbers(const char *path, size_t ndim, const size_t *shape,
                           unsigned seed)
{
    float *x = numbers(product(ndim, shape), seed);
    const char *error = npy_write_f32(path, ndim, shape, x);
    cr_assert(!error, "%s", error);
    return x;
}

#define SAVE(path, seed, ...)                                                            \
    save_numbers(path, sizeof((size_t[]){ __VA_ARGS__ }) / sizeof(size_t),               \
                 (size_t[]){ __VA_ARGS__ }, seed)

/* Saves x in another form: type 'f2', 'f4' or 'f8', big endian, and if fortran as the 2-D
 * array [rows, cols] in column-major order. */
static inline void save_as(const char *path, const float *x, size_t rows, size_t cols, int size,
                    int big, int fortran)
{
    char header[118];
    FILE *f = fopen(path, "wb");
    snprintf(header, sizeof header, "{'descr': '%cf%d', 'fortran_order': %s, "
             "'shape': (%zu, %zu), }", big ? '>' : '<', size, fortran ? "True" : "False",
             rows, cols);
    fprintf(f, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, header);
    for (size_t i = 0; i < rows * cols; i++) {
        float value = fortran ? x[i % rows * cols + i / rows] : x[i];
        double wide = (double)value;
        uint16_t half = float_to_half(value);
        void *number = size == 2 ? (void *)&half : size == 4 ? (void *)&value : &wide;
        const unsigned char *bytes = number;
        for (int t = 0; t < size; t++) fputc(bytes[big ? size - 1 - t : t], f);
    }
    cr_assert(!fclose(f));
}

/* The file as floats, of the shape expected. */
static inline float *load(const char *stage, const char *path, size_t ndim, const size_t *shape)
{
    struct npy a;
    const char *error = npy_read(path, &a);
    cr_assert(!error, "%s: %s", stage, error);
    cr_assert(a.dtype == F32 && a.ndim == ndim &&
              !memcmp(a.shape, shape, ndim * sizeof *shape),
              "%s: %s is %s", stage, path, npy_describe(&a));
    return a.data;
}

/* Compares n floats; want may be infinite. */
static inline void compare(const char *what, const float *got, const double *want, size_t n,
                    double allowed)
{
    for (size_t i = 0; i < n; i++) {
        int same = isinf(want[i]) ? (double)got[i] == want[i]
                 : fabs((double)got[i] - want[i]) <= allowed;
        cr_assert(same, "%s: element %zu: got %g, want %g, allowed %g", what, i,
                  (double)got[i], want[i], allowed);
    }
}

/* A problem and its answer in double. */
struct oracle {
    size_t batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
    int causal;
    double scale;
    const float *q, *k, *v, *bias;
    double *o, *lse;
};

/* o and lse of query row i of head bh = b * heads_q + h. */
static inline void oracle_row(struct oracle *t, size_t bh, size_t i)
{
    size_t d = t->head_dim, dv = t->head_dim_v;
    size_t kv = bh / t->heads_q * t->heads_kv +
                bh % t->heads_q / (t->heads_q / t->heads_kv);
    double m = -INFINITY, l = 0, s[512];
    for (size_t j = 0; j < t->seqlen_k; j++) {
        s[j] = 0;
        for (size_t c = 0; c < d; c++)
            s[j] += (double)t->q[(bh * t->seqlen_q + i) * d + c] *
                    (double)t->k[(kv * t->seqlen_k + j) * d + c];
        s[j] = s[j] * t->scale + (t->bias ? (double)t->bias[i * t->seqlen_k + j] : 0);
        if (t->causal && j + t->seqlen_q > i + t->seqlen_k) s[j] = -INFINITY;
        m = fmax(m, s[j]);
    }
    double *o = t->o + (bh * t->seqlen_q + i) * dv;
    for (size_t j = 0; j < t->seqlen_k; j++)
        if (s[j] > -INFINITY) l += s[j] = exp(s[j] - m);
        else s[j] = 0;
    t->lse[bh * t->seqlen_q + i] = l > 0 ? m + log(l) : -INFINITY;
    for (size_t c = 0; c < dv; c++) {
        o[c] = 0;
        for (size_t j = 0; j < t->seqlen_k; j++)
            if (s[j] > 0)
                o[c] += s[j] / l * (double)t->v[(kv * t->seqlen_k + j) * dv + c];
    }
}

static inline void oracle_compute(struct oracle *t)
{
    size_t rows = t->batch * t->heads_q * t->seqlen_q;
    t->o = malloc((rows * t->head_dim_v + 1) * sizeof *t->o);
    t->lse = malloc((rows + 1) * sizeof *t->lse);
    for (size_t bh = 0; bh < t->batch * t->heads_q; bh++)
        for (size_t i = 0; i < t->seqlen_q; i++) oracle_row(t, bh, i);
}

/* Compares o.npy and lse.npy, of q's rank, with the oracle. */
static inline void compare_outputs(const char *what, const struct oracle *t, size_t ndim,
                            double allowed)
{
    const size_t shape[4] = { t->batch, t->heads_q, t->seqlen_q, t->head_dim_v };
    size_t rows = t->batch * t->heads_q * t->seqlen_q;
    float *o = load(what, "o.npy", ndim, shape + 4 - ndim);
    float *lse = load(what, "lse.npy", ndim - 1, shape + 4 - ndim);
    compare(what, o, t->o, rows * t->head_dim_v, allowed);
    compare(what, lse, t->lse, rows, allowed);
    free(o), free(lse);
}

#define FIXTURE "run --q %s/tests/fixture/q.npy --k %s/tests/fixture/k.npy " \
                "--v %s/tests/fixture/v.npy "
#define FILES "--q q.npy --k k.npy --v v.npy --o o.npy --lse lse.npy "

/* Saves q, k, v of the oracle's shape with that rank. */
static inline void save_problem(struct oracle *t, size_t ndim)
{
    size_t skip = 4 - ndim;
    const size_t q[4] = { t->batch, t->heads_q, t->seqlen_q, t->head_dim };
    const size_t k[4] = { t->batch, t->heads_kv, t->seqlen_k, t->head_dim };
    const size_t v[4] = { t->batch, t->heads_kv, t->seqlen_k, t->head_dim_v };
    t->q = save_numbers("q.npy", ndim, q + skip, 1);
    t->k = save_numbers("k.npy", ndim, k + skip, 2);
    t->v = save_numbers("v.npy", ndim, v + skip, 3);
}

#endif
