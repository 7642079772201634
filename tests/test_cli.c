/* test_cli.c: the stage programs as a user meets them: real data in every form, and bad
 * use of every kind.  Expected outputs come from the attention written out here in
 * double, for the fixture from NumPy. */
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

static void make_place(void)
{
    cr_assert(getcwd(root, sizeof root) != NULL);
    strcpy(place, "/tmp/test_cli.XXXXXX");
    cr_assert(mkdtemp(place) && !chdir(place));
    setenv("OMP_NUM_THREADS", "2", 1);
}

static void remove_place(void)
{
    char command[192];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(!chdir("/") && !system(command));
}

TestSuite(cli, .init = make_place, .fini = remove_place, .timeout = 120);

static void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

/* Runs build/STAGE with the arguments, through sh; returns its exit status. */
static int run(const char *stage, const char *format, ...)
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
static int n_files(void)
{
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
             strcmp(e->d_name, ".stdout") && strcmp(e->d_name, ".stderr");
    closedir(d);
    return n;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static int holds(const char *path, const char *text)
{
    char found[64];
    slurp(path, found, sizeof found);
    return !strcmp(found, text);
}

/* n numbers between -2 and 2 with no pattern a tile could hide in. */
static float *numbers(size_t n, unsigned seed)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (1 << 22) - 2;
    }
    return x;
}

static size_t product(size_t ndim, const size_t *shape)
{
    size_t n = 1;
    for (size_t t = 0; t < ndim; t++) n *= shape[t];
    return n;
}

/* Saves numbers of that shape under the name; returns them. */
static float *save_numbers(const char *path, size_t ndim, const size_t *shape,
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
static void save_as(const char *path, const float *x, size_t rows, size_t cols, int size,
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
static float *load(const char *stage, const char *path, size_t ndim, const size_t *shape)
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
static void compare(const char *what, const float *got, const double *want, size_t n,
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
static void oracle_row(struct oracle *t, size_t bh, size_t i)
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

static void oracle_compute(struct oracle *t)
{
    size_t rows = t->batch * t->heads_q * t->seqlen_q;
    t->o = malloc((rows * t->head_dim_v + 1) * sizeof *t->o);
    t->lse = malloc((rows + 1) * sizeof *t->lse);
    for (size_t bh = 0; bh < t->batch * t->heads_q; bh++)
        for (size_t i = 0; i < t->seqlen_q; i++) oracle_row(t, bh, i);
}

/* Compares o.npy and lse.npy, of q's rank, with the oracle. */
static void compare_outputs(const char *what, const struct oracle *t, size_t ndim,
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

#define FILES "--q q.npy --k k.npy --v v.npy --o o.npy --lse lse.npy "

/* Saves q, k, v of the oracle's shape with that rank. */
static void save_problem(struct oracle *t, size_t ndim)
{
    size_t skip = 4 - ndim;
    const size_t q[4] = { t->batch, t->heads_q, t->seqlen_q, t->head_dim };
    const size_t k[4] = { t->batch, t->heads_kv, t->seqlen_k, t->head_dim };
    const size_t v[4] = { t->batch, t->heads_kv, t->seqlen_k, t->head_dim_v };
    t->q = save_numbers("q.npy", ndim, q + skip, 1);
    t->k = save_numbers("k.npy", ndim, k + skip, 2);
    t->v = save_numbers("v.npy", ndim, v + skip, 3);
}

Test(cli, list_prints_one_line_a_variant)
{
    for (int s = 0; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "list") == 0, "%s: %s", stages[s], complained);
        cr_expect(!*complained && *printed, "%s list: '%s'", stages[s], complained);
        cr_expect(*printed != '\n' && !strstr(printed, "\n\n"), "%s: empty line",
                  stages[s]);
        int lines = 0;
        cr_expect(!strncmp(printed, "# ", 2), "%s: no heading", stages[s]);
        for (char *line = strtok(printed, "\n"); line; line = strtok(NULL, "\n")) {
            cr_expect(strlen(line) <= 100, "%s: %zu columns: '%s'", stages[s],
                      strlen(line), line);
            if (!strncmp(line, "# ", 2)) continue;
            cr_expect(line[0] >= 'a' && line[0] <= 'z', "%s: '%s'", stages[s], line);
            cr_expect(strstr(line, "f32") || strstr(line, "f16"), "%s: '%s'", stages[s],
                      line);
            lines++;
        }
        cr_expect(lines >= 1);
    }
}

#define FIXTURE "run --q %s/tests/fixture/q.npy --k %s/tests/fixture/k.npy " \
                "--v %s/tests/fixture/v.npy "

/* Stage 5's dispatch, without a GPU: which variant, which tile, and why no later one. */
Test(cli, the_choice_is_explained)
{
    static const struct { const char *options, *want; } cases[] = {
        {"--verbose", "variant register_tiled (cpu-executed, f32)"},
        {"--verbose", "takes tiles of 64 queries and 64 keys, 8 x 4 results a thread"},
        {"--verbose", "\n  not tensor_cores, async_copies, larger_tiles, lazy_rescaling: does not "
                      "compute in f32\n"},
        {"--verbose --dtype f16", "takes blocks of 128 queries and 64 keys; head dims up to 64"},
        {"--verbose --dtype f16", "not split_kv: does not support more than 64 queries"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(run("05_flash_cuda", "run --device cpu --q %s/tests/fixture/q.npy "
                      "--k %s/tests/fixture/k.npy --v %s/tests/fixture/v.npy --o o.npy %s",
                      root, root, root, cases[i].options) == 0, "%s", complained);
        cr_expect(strstr(printed, cases[i].want), "no '%s' in:\n%s", cases[i].want, printed);
    }
    cr_expect(run("05_flash_cuda", "list --verbose --device cpu") == 0);
    cr_expect(strstr(printed, "from head_dim 128, 512 keys: tiles of 64 queries and 32 keys"),
              "%s", printed);
    cr_expect(strstr(printed, "from head_dim 64, 16384 keys: tiles of 192 queries"), "%s",
              printed);
    cr_expect(run("03_online_softmax", "list --verbose") == 0);
    cr_expect(strstr(printed, "from 512 columns: gpu_registers\n"), "%s", printed);
}

Test(cli, fixture_is_right_in_every_variant)
{
    struct npy o, lse;
    char at[1100], list[sizeof printed + 32];
    snprintf(at, sizeof at, "%s/tests/fixture/o.npy", root);
    cr_assert(!npy_read(at, &o));
    snprintf(at, sizeof at, "%s/tests/fixture/lse.npy", root);
    cr_assert(!npy_read(at, &lse));
    double *want_o = malloc(o.count * sizeof *want_o);
    double *want_lse = malloc(lse.count * sizeof *want_lse);
    for (size_t i = 0; i < o.count; i++) want_o[i] = (double)((float *)o.data)[i];
    for (size_t i = 0; i < lse.count; i++) want_lse[i] = (double)((float *)lse.data)[i];

    for (int s = 0; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "list") == 0);
        snprintf(list, sizeof list, "default attention f32\n%s", printed);
        char *next;
        for (char *line = strtok_r(list, "\n", &next); line;
             line = strtok_r(NULL, "\n", &next)) {
            char name[64], chosen[80] = "", what[160];
            if (!strstr(line, "attention") || !strstr(line, "f32")) continue;
            sscanf(line, "%63s", name);
            if (strcmp(name, "default")) sprintf(chosen, "--variant %s", name);
            snprintf(what, sizeof what, "%s %s", stages[s], name);
            int status = run(stages[s], FIXTURE "--o o.npy --lse lse.npy %s", root, root,
                             root, chosen);
            if (status == 77 || strstr(complained, "not support attention") ||
                strstr(complained, "queries for a key head"))
                continue;
            cr_assert(status == 0, "%s: %d %s", what, status, complained);
            float *got = load(what, "o.npy", 3, o.shape);
            compare(what, got, want_o, o.count, 1e-5);
            free(got);
            got = load(what, "lse.npy", 2, lse.shape);
            compare(what, got, want_lse, lse.count, 2e-5);
            free(got);
        }
    }
}

Test(cli, two_three_and_four_dimensions_are_accepted)
{
    for (size_t ndim = 2; ndim <= 4; ndim++) {
        struct oracle t = { .batch = ndim == 4 ? 2 : 1, .heads_q = ndim >= 3 ? 6 : 1,
                            .heads_kv = ndim >= 3 ? 2 : 1, .seqlen_q = 5, .seqlen_k = 7,
                            .head_dim = 3, .head_dim_v = 4, .scale = 1 / sqrt(3) };
        save_problem(&t, ndim);
        oracle_compute(&t);
        for (int s = 0; s < N_STAGES; s++) {
            cr_assert(run(stages[s], "run " FILES) == 0, "%s: %s", stages[s], complained);
            compare_outputs(stages[s], &t, ndim, 1e-5);
        }
    }
}

Test(cli, causal_bias_and_scale_are_obeyed)
{
    struct oracle t = { .batch = 1, .heads_q = 4, .heads_kv = 2, .seqlen_q = 9,
                        .seqlen_k = 13, .head_dim = 8, .head_dim_v = 5 };
    save_problem(&t, 3);
    float *bias = numbers(9 * 13, 4);
    bias[3] = bias[20] = -INFINITY;
    cr_assert(!npy_write_f32("bias.npy", 2, (size_t[]){ 9, 13 }, bias));
    for (int mask = 0; mask < 8; mask++) {
        t.causal = mask & 1;
        t.bias = mask & 2 ? bias : NULL;
        t.scale = mask & 4 ? -0.25 : 1 / sqrt(8);
        oracle_compute(&t);
        for (int s = 0; s < N_STAGES; s++) {
            char what[80];
            snprintf(what, sizeof what, "%s, mask %d", stages[s], mask);
            cr_assert(run(stages[s], "run " FILES "%s %s %s", mask & 1 ? "--causal" : "",
                          mask & 2 ? "--bias bias.npy" : "",
                          mask & 4 ? "--scale=-0.25" : "") == 0, "%s: %s", what,
                      complained);
            compare_outputs(what, &t, 3, 1e-5);
        }
    }
}

/* More queries than keys: causal, bottom right, hides every key from the first two. */
Test(cli, fully_masked_rows_are_zero)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 6,
                        .seqlen_k = 4, .head_dim = 8, .head_dim_v = 8, .causal = 1,
                        .scale = 1 / sqrt(8) };
    save_problem(&t, 2);
    oracle_compute(&t);
    cr_assert(t.lse[1] == -INFINITY && t.lse[2] > -INFINITY && t.o[0] == 0);
    for (int s = 1; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "run " FILES "--causal") == 0, "%s", complained);
        compare_outputs(stages[s], &t, 2, 1e-5);
    }
}

Test(cli, nan_in_a_masked_value_does_not_leak)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 70,
                        .seqlen_k = 70, .head_dim = 8, .head_dim_v = 8, .causal = 1,
                        .scale = 1 / sqrt(8) };
    save_problem(&t, 2);
    float *v = (float *)t.v;
    for (int c = 0; c < 8; c++) v[69 * 8 + c] = c % 2 ? NAN : INFINITY;
    cr_assert(!npy_write_f32("v.npy", 2, (size_t[]){ 70, 8 }, v));
    oracle_compute(&t);
    for (int s = 1; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "run " FILES "--causal") == 0, "%s", complained);
        float *o = load(stages[s], "o.npy", 2, (size_t[]){ 70, 8 });
        compare(stages[s], o, t.o, 69 * 8, 1e-5);
        cr_assert(isnan(o[69 * 8 + 1]), "%s: the last query sees the NaN", stages[s]);
        free(o);
    }
}

/* Every form of file gives what the plain one gives, and says what was converted. */
Test(cli, other_types_and_orders_are_converted_and_said)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 5,
                        .seqlen_k = 7, .head_dim = 3, .head_dim_v = 4,
                        .scale = 1 / sqrt(3) };
    save_problem(&t, 2);
    float *const arrays[3] = { (float *)t.q, (float *)t.k, (float *)t.v };
    const size_t counts[3] = { 5 * 3, 7 * 3, 7 * 4 };
    for (int a = 0; a < 3; a++) /* numbers that every type holds */
        for (size_t i = 0; i < counts[a]; i++)
            arrays[a][i] = half_to_float(float_to_half(arrays[a][i]));
    oracle_compute(&t);
    for (int size = 2; size <= 8; size *= 2)
        for (int form = 0; form < 4; form++) {
            int big = form & 1, fortran = form >> 1;
            save_as("q.npy", t.q, 5, 3, size, big, fortran);
            save_as("k.npy", t.k, 7, 3, size, big, fortran);
            save_as("v.npy", t.v, 7, 4, size, big, fortran);
            for (int s = 0; s < N_STAGES; s++) {
                char what[80];
                snprintf(what, sizeof what, "%s, f%d, form %d", stages[s], 8 * size,
                         form);
                cr_assert(run(stages[s], "run " FILES) == 0, "%s: %s", what, complained);
                compare_outputs(what, &t, 2, size == 2 ? 5e-3 : 1e-5);
                cr_expect(!!strstr(printed, "f64") == (size == 8) &&
                          !!strstr(printed, "big-endian") == big &&
                          !!strstr(printed, "Fortran") == fortran, "%s: %s", what,
                          printed);
            }
        }
}

Test(cli, dtype_rounds_the_inputs)
{
    struct oracle t = { .batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 5,
                        .seqlen_k = 7, .head_dim = 16, .head_dim_v = 4, .scale = 0.25 };
    static const char *const names[2] = { "f16", "bf16" };
    save_problem(&t, 3);
    for (int type = 0; type < 2; type++) {
        float *rounded[3], *original[3] = { (float *)t.q, (float *)t.k, (float *)t.v };
        const size_t n[3] = { 2 * 5 * 16, 7 * 16, 7 * 4 };
        for (int a = 0; a < 3; a++) {
            rounded[a] = malloc(n[a] * sizeof(float));
            for (size_t i = 0; i < n[a]; i++)
                rounded[a][i] = type ? bfloat_to_float(float_to_bfloat(original[a][i]))
                              : half_to_float(float_to_half(original[a][i]));
        }
        struct oracle r = t;
        r.q = rounded[0], r.k = rounded[1], r.v = rounded[2];
        oracle_compute(&r);
        for (int s = 0; s < N_STAGES; s++) {
            char what[80];
            snprintf(what, sizeof what, "%s --dtype %s", stages[s], names[type]);
            cr_assert(run(stages[s], "run " FILES "--dtype %s", names[type]) == 0,
                      "%s: %s", what, complained);
            cr_expect(strstr(printed, "converted"), "%s: said '%s'", what, printed);
            compare_outputs(what, &r, 3, type ? 3e-2 : 4e-3);
        }
    }
}

Test(cli, softmax_and_its_logarithm)
{
    enum { ROWS = 3, COLS = 37 };
    float *x = numbers(ROWS * COLS, 7);
    double want[ROWS * COLS], logarithm[ROWS * COLS];
    for (int i = 0; i < COLS; i++) x[i] *= 20;
    x[5] = -INFINITY;
    for (int r = 0; r < ROWS; r++) {
        double l = 0;
        for (int j = 0; j < COLS; j++) l += exp((double)x[r * COLS + j]);
        for (int j = 0; j < COLS; j++) {
            want[r * COLS + j] = exp((double)x[r * COLS + j]) / l;
            logarithm[r * COLS + j] = (double)x[r * COLS + j] - log(l);
        }
    }
    cr_assert(!npy_write_f32("x.npy", 2, (size_t[]){ ROWS, COLS }, x));
    for (int s = 0; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "list") == 0);
        int has_log = strstr(printed, "logsoftmax,") || strstr(printed, "logsoftmax ");
        int status = run(stages[s], "run --x x.npy --y y.npy");
        if (s == 4) {
            cr_expect(status == 2 && strstr(complained, "softmax"), "%d %s", status,
                      complained);
            continue;
        }
        cr_assert(status == 0, "%s: %s", stages[s], complained);
        float *y = load(stages[s], "y.npy", 2, (size_t[]){ ROWS, COLS });
        compare(stages[s], y, want, ROWS * COLS, 1e-6);
        free(y);
        status = run(stages[s], "run --x x.npy --y y.npy --log");
        cr_assert(status == (has_log ? 0 : 2), "%s --log: %s", stages[s], complained);
        if (!has_log) continue;
        y = load(stages[s], "y.npy", 2, (size_t[]){ ROWS, COLS });
        compare(stages[s], y, logarithm, ROWS * COLS, 2e-5);
        free(y);
    }
}

Test(cli, softmax_of_one_and_of_three_dimensions_keeps_the_shape)
{
    free(SAVE("x.npy", 1, 6));
    free(SAVE("x3.npy", 1, 2, 3, 4));
    for (int s = 0; s < 4; s++) {
        cr_assert(run(stages[s], "run --x x.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 1, (size_t[]){ 6 }));
        cr_assert(run(stages[s], "run --x x3.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 3, (size_t[]){ 2, 3, 4 }));
    }
}

Test(cli, empty_arrays_give_empty_outputs)
{
    free(SAVE("rows.npy", 1, 0, 4));
    free(SAVE("cols.npy", 1, 4, 0));
    for (int s = 0; s < 4; s++) {
        cr_assert(run(stages[s], "run --x rows.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 2, (size_t[]){ 0, 4 }));
        cr_assert(run(stages[s], "run --x cols.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 2, (size_t[]){ 4, 0 }));
    }
    for (int zero = 0; zero < 4; zero++) { /* no batch, no heads, no queries, no keys */
        size_t batch = zero != 0, heads = zero == 1 ? 0 : 2, nq = zero == 2 ? 0 : 3;
        size_t nk = zero == 3 ? 0 : 5;
        free(SAVE("q.npy", 1, batch, heads, nq, 4));
        free(SAVE("k.npy", 2, batch, heads, nk, 4));
        free(SAVE("v.npy", 3, batch, heads, nk, 6));
        for (int s = 0; s < N_STAGES; s++) {
            const size_t shape[4] = { batch, heads, nq, 6 };
            cr_assert(run(stages[s], "run " FILES) == 0, "%s, %d: %s", stages[s], zero,
                      complained);
            float *o = load(stages[s], "o.npy", 4, shape);
            float *lse = load(stages[s], "lse.npy", 3, shape);
            size_t rows = batch * heads * nq;
            for (size_t i = 0; i < rows * 6; i++)
                cr_assert(o[i] == 0, "%s: o[%zu] is %g", stages[s], i, (double)o[i]);
            for (size_t i = 0; i < rows; i++)
                cr_assert(lse[i] == -INFINITY, "%s: lse[%zu] is %g", stages[s], i,
                          (double)lse[i]);
            free(o), free(lse);
        }
    }
}

/* Arguments, and a word of the one line that they must cause. */
struct misuse { const char *arguments, *word; };

#define QKV "run --q q.npy --k k.npy --v v.npy --o o.npy "

static const struct misuse misuses[] = {
    { "", "verb" },
    { "dance", "dance" },
    { "--quick", "--quick" },
    { "run", "--x" },
    { "run --q q.npy", "--k" },
    { "run --q q.npy --k k.npy --v v.npy", "--o" },
    { "run --q q.npy --k k.npy --o o.npy", "--v" },
    { "run --k k.npy --v v.npy --o o.npy", "--q" },
    { "run --x x.npy", "--y" },
    { "run --y y.npy", "--x" },
    { "run --x x.npy --y y.npy --q q.npy", "--q" },
    { "run --x x.npy --y y.npy --causal", "--causal" },
    { QKV "--log", "--log" },
    { QKV "--x x.npy", "--x" },
    { QKV "--frobnicate", "--frobnicate" },
    { QKV "stray", "stray" },
    { QKV "'stray\nargument'", "stray?argument" },
    { "check --case 'no\nsuch'", "no?such" },
    { "bench --csv 'missing\n/a.csv'", "missing?" },
    { "trace --row '1\n,'", "--row" },
    { QKV "-v", "-v" },
    { QKV "--", "--" },
    { QKV "--quick", "--quick" },
    { QKV "--row 1,2", "--row" },
    { QKV "--o o2.npy", "--o" },
    { QKV "--causal --causal", "--causal" },
    { QKV "--causal=1", "--causal" },
    { QKV "--scale", "--scale" },
    { QKV "--scale nan", "--scale" },
    { QKV "--scale inf", "--scale" },
    { QKV "--scale -inf", "--scale" },
    { QKV "--scale abc", "--scale" },
    { QKV "--scale ''", "--scale" },
    { QKV "--scale 1e99", "--scale" },
    { QKV "--scale 1.0x", "--scale" },
    { QKV "--scale ' 1'", "--scale" },
    { QKV "--scale 1 --scale 1", "--scale" },
    { QKV "--variant", "--variant" },
    { QKV "--variant nosuch", "nosuch" },
    { QKV "--variant ''", "--variant" },
    { QKV "--dtype f64", "f64" },
    { QKV "--dtype", "--dtype" },
    { QKV "--threads 0", "--threads" },
    { QKV "--threads -1", "--threads" },
    { QKV "--threads 1e3", "--threads" },
    { QKV "--threads 99999999999999999999", "--threads" },
    { QKV "--device tpu", "tpu" },
    { QKV "--lse o.npy", "--lse" },
    { QKV "--lse ./o.npy", "o.npy" },
    { QKV "--lse missing/lse.npy", "missing/lse.npy" },
    { QKV "--lse directory", "directory" },
    { QKV "--bias missing.npy", "missing.npy" },
    { QKV "--bias q.npy", "q.npy" },
    { QKV "--bias x.npy", "x.npy" },
    { "run --q missing.npy --k k.npy --v v.npy --o o.npy", "missing.npy" },
    { "run --q q.npy --k directory --v v.npy --o o.npy", "directory" },
    { "run --q q.npy --k k.npy --v text.npy --o o.npy", "text.npy" },
    { "run --q q.npy --k k.npy --v short.npy --o o.npy", "short.npy" },
    { "run --q q.npy --k k.npy --v integers.npy --o o.npy", "integers.npy" },
    { "run --q q.npy --k k.npy --v big.npy --o o.npy", "big.npy" },
    { "run --q q.npy --k k.npy --v '' --o o.npy", "--v" },
    { "run --q q.npy --k k.npy --v v.npy --o ''", "--o" },
    { "run --q q.npy --k k.npy --v v.npy --o missing/o.npy", "missing/o.npy" },
    { "run --q q.npy --k k.npy --v v.npy --o directory", "directory" },
    { "run --q q.npy --k k.npy --v v.npy --o v.npy/o.npy", "v.npy/o.npy" },
    { "run --q q.npy --k k_dim.npy --v v.npy --o o.npy", "k_dim.npy" },
    { "run --q q.npy --k k.npy --v v_keys.npy --o o.npy", "v_keys.npy" },
    { "run --q q.npy --k k.npy --v v_heads.npy --o o.npy", "v_heads.npy" },
    { "run --q q.npy --k k_heads.npy --v v_heads.npy --o o.npy", "k_heads.npy" },
    { "run --q q.npy --k k_none.npy --v v_none.npy --o o.npy", "k_none.npy" },
    { "run --q q.npy --k k4.npy --v v.npy --o o.npy", "k4.npy" },
    { "run --q q4.npy --k k4.npy --v v4.npy --o o.npy", "k4.npy" },
    { "run --q one.npy --k one.npy --v one.npy --o o.npy", "one.npy" },
    { "run --q scalar.npy --k scalar.npy --v scalar.npy --o o.npy", "scalar.npy" },
    { "run --q five.npy --k five.npy --v five.npy --o o.npy", "five.npy" },
    { "run --q no_dim.npy --k no_dim.npy --v v.npy --o o.npy", "no_dim.npy" },
    { "run --x scalar.npy --y y.npy", "scalar.npy" },
    { "run --x missing.npy --y y.npy", "missing.npy" },
    { "check --o o.npy", "--o" },
    { "check --variant nosuch", "nosuch" },
    { "check --case nosuch", "nosuch" },
    { "check --seed -1", "--seed" },
    { "check --seed x", "--seed" },
    { "list --quick", "--quick" },
    { "trace --row ''", "--row" },
    { "trace --row abc", "abc" },
    { "trace --row 1,,2", "--row" },
    { "bench --rows 0", "--rows" },
    { "bench --rows -5", "--rows" },
    { "bench --head-dim 3.5", "--head-dim" },
    { "bench --op dance", "dance" },
    { "bench --heads-q 3 --heads-kv 2", "--heads" },
    { "bench --rows 5 --seqlen-q 6", "--rows" },
    { "bench --rows 5 --op attention", "--op" },
    { "bench --seqlen-q 5 --op softmax", "--op" },
    { "bench --op mean", "--op" },
    { "bench --rows 1099511627776 --cols 1099511627776 --csv new.csv", "memory" },
    { "bench --seqlen-q 1099511627776 --csv new.csv", "memory" },
    { "bench --quick --batch 2147483648", "--batch: the arrays" },
    { "bench --quick --heads-q 2147483648", "--heads-q: the arrays" },
    { "bench --quick --head-dim 2147483648", "--head-dim: the arrays" },
    { "bench --head-dim-v 2147483648 --batch 64", "--batch, --head-dim-v: the arrays" },
    { "bench --csv missing/a.csv", "missing/a.csv" },
    { "bench --csv directory", "directory" },
    { "bench --csv text.npy", "text.npy" },
};

/* q.npy, k.npy, v.npy that fit, and files that do not. */
static void save_misfits(void)
{
    free(SAVE("q.npy", 1, 4, 3, 8)), free(SAVE("k.npy", 2, 2, 5, 8));
    free(SAVE("v.npy", 3, 2, 5, 6)), free(SAVE("x.npy", 4, 3, 4));
    free(SAVE("k_dim.npy", 5, 2, 5, 7)), free(SAVE("v_keys.npy", 6, 2, 4, 6));
    free(SAVE("v_heads.npy", 7, 3, 5, 6)), free(SAVE("k_heads.npy", 8, 3, 5, 8));
    free(SAVE("k_none.npy", 9, 0, 5, 8)), free(SAVE("v_none.npy", 9, 0, 5, 6));
    free(SAVE("q4.npy", 9, 1, 2, 5, 8)), free(SAVE("k4.npy", 9, 2, 2, 5, 8));
    free(SAVE("v4.npy", 9, 2, 2, 5, 8)), free(SAVE("one.npy", 9, 8));
    free(SAVE("five.npy", 9, 1, 1, 1, 2, 3)), free(SAVE("no_dim.npy", 9, 2, 5, 0));
    const float one = 1;
    cr_assert(!npy_write_f32("scalar.npy", 0, NULL, &one));
    write_text("text.npy", "no array at all\n");
    cr_assert(!system("head -c 200 v.npy > short.npy && sed 's/<f4/<i4/' v.npy >"
                      " integers.npy && sed 's/(2, 5, 6), }          /"
                      "(2, 5, 6000000000000)}/' v.npy > big.npy && mkdir directory"));
    write_text("o.npy", "old"), write_text("lse.npy", "old"), write_text("y.npy", "old");
}

Test(cli, bad_use_exits_2_names_the_culprit_and_touches_nothing)
{
    save_misfits();
    int before = n_files();
    for (int s = 0; s < N_STAGES; s++)
        for (size_t t = 0; t < sizeof misuses / sizeof *misuses; t++) {
            const struct misuse *m = &misuses[t];
            int status = run(stages[s], "%s", m->arguments);
            char *newline = strchr(complained, '\n');
            cr_expect(status == 2, "%s %s: exit %d, want 2: %s", stages[s], m->arguments,
                      status, complained);
            cr_expect(newline && !newline[1], "%s %s: not one line: '%s'", stages[s],
                      m->arguments, complained);
            cr_expect(strstr(complained, m->word), "%s %s: want '%s' in '%s'", stages[s],
                      m->arguments, m->word, complained);
            cr_expect(holds("o.npy", "old") && holds("lse.npy", "old") &&
                      holds("y.npy", "old") && n_files() == before,
                      "%s %s: touched a file", stages[s], m->arguments);
        }
}

/* A named variant is judged by what it can do before it is asked where it can run. */
Test(cli, variant_that_cannot_do_the_problem_exits_2)
{
    static const struct { int stage; const char *arguments; } cases[] = {
        { 2, "run --x long.npy --y y.npy --variant gpu_registers" }, /* f32 in 16 bits */
        { 2, "run --x x.npy --y y.npy --variant normalised" },
        { 2, "run --q x.npy --k x.npy --v x.npy --o y.npy --variant gpu_cluster" },
        { 4, "run --x x.npy --y y.npy --variant wgmma" },
        { 2, "bench --rows 2 --cols 16384 --variant gpu_registers --csv new.csv" },
        { 3, "bench --op softmax --quick --variant tiled --csv new.csv" },
        { 3, "bench --quick --variant scan --csv new.csv" },
        { 4, "bench --rows 3 --cols 4 --variant wgmma --csv new.csv" },
        { 4, "bench --rows 3 --cols 4 --csv new.csv" },
    };
    free(SAVE("x.npy", 1, 3, 4)), free(SAVE("long.npy", 1, 2, 16384));
    write_text("y.npy", "old");
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        int status = run(stages[cases[t].stage], "%s", cases[t].arguments);
        cr_expect(status == 2 && strstr(complained, "not support"), "%s: exit %d, '%s'",
                  cases[t].arguments, status, complained);
        cr_expect(holds("y.npy", "old") && n_files() == 3, "%s: touched a file",
                  cases[t].arguments);
    }
}

/* Asking for f32 by name, of a variant that would have to round to 16 bits. */
Test(cli, f32_is_computed_in_16_bits_only_where_nothing_else_was_asked_for)
{
    static const struct { const char *options; int status; const char *want; } cases[] = {
        { "--dtype f32", 2, "variant tensor_cores does not support f32" },
        { "", 0, "q.npy: f32 converted to bf16" },
        { "--dtype bf16", 0, "q.npy: f32 converted to bf16" },
        { "--dtype f16", 0, "q.npy: f32 converted to f16" },
    };
    free(SAVE("q.npy", 1, 4, 3, 8)), free(SAVE("k.npy", 2, 2, 5, 8));
    free(SAVE("v.npy", 3, 2, 5, 8));
    for (size_t i = 0; i < 4; i++) {
        int status = run(stages[4], "run " FILES "--device cpu --variant tensor_cores %s",
                         cases[i].options);
        cr_expect(status == cases[i].status, "'%s': exit %d: %s", cases[i].options, status,
                  complained);
        cr_expect(strstr(status ? complained : printed, cases[i].want), "'%s': %s%s",
                  cases[i].options, printed, complained);
        cr_expect(n_files() == (i ? 5 : 3), "'%s': %d files", cases[i].options, n_files());
    }
}

/* Their GPU kernels are for a GPU; on the CPU a vector variant widens the 16 bits, or computes
 * in them. */
Test(cli, default_of_stages_1_to_4_executes_no_gpu_kernel_on_the_cpu)
{
    free(SAVE("x.npy", 1, 3, 40)), free(SAVE("q.npy", 1, 4, 3, 8));
    free(SAVE("k.npy", 2, 2, 5, 8)), free(SAVE("v.npy", 3, 2, 5, 8));
    for (int s = 0; s < 4; s++)
        for (int type = 0; type < 3; type++) {
            static const char *const types[] = { "f32", "f16", "bf16" };
            cr_assert(run(stages[s], "run --x x.npy --y y.npy --device cpu --dtype %s",
                          types[type]) == 0, "%s: %s", stages[s], complained);
            cr_expect(strstr(printed, "(cpu, f32)"), "%s: %s", stages[s], printed);
            cr_assert(run(stages[s], "run " FILES "--device cpu --dtype %s",
                          types[type]) == 0, "%s: %s", stages[s], complained);
            int bf16 = s == 3 && type == 2; /* where the processor has instructions for it */
            cr_expect(strstr(printed, "(cpu, f32)") || (bf16 && strstr(printed, "(cpu, bf16)")),
                      "%s: %s", stages[s], printed);
        }
}

/* Wherever an option may stand, and whatever stands beside it. */
Test(cli, help_and_version_follow_every_program_and_verb)
{
    static const char *const verbs[] = { "", "list", "check", "bench", "trace", "run",
                                         "run --q nosuch.npy", "bench --quick", "help" };
    static const char *const options[][2] = { { "--help", "Exit status:" },
                                              { "-h", "Exit status:" },
                                              { "--version", " 1." } };
    for (int s = 0; s < N_STAGES; s++)
        for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++)
            for (int o = 0; o < 3; o++) {
                cr_expect(run(stages[s], "%s %s", verbs[v], options[o][0]) == 0, "%s %s %s: %s",
                          stages[s], verbs[v], options[o][0], complained);
                cr_expect(strstr(printed, options[o][1]) && strstr(printed, stages[s]) &&
                          !*complained, "%s %s: %s", verbs[v], options[o][0], printed);
            }
    cr_expect(run(stages[0], "run --helping") == 2 && run(stages[0], "--helping") == 2);
    cr_expect(run(stages[0], "list --version=1") == 2 && run(stages[0], "-v") == 2);
    cr_expect(n_files() == 0);
}

Test(cli, csv_goes_into_a_pipe)
{
    cr_assert(run(stages[0], "bench --rows 3 --cols 4 --variant naive --csv /dev/stdout "
                  "| cat > .piped") == 0);
    char *text = printed;
    slurp(".piped", text, sizeof printed);
    cr_expect(strstr(text, "stage,variant,op") && strstr(text, "\n01_naive,naive,softmax"),
              "%s", text);
}

Test(cli, check_of_one_operation_runs_no_other)
{
    cr_assert(run(stages[2], "check --quick --op mean") == 0, "%s", complained);
    cr_expect(strstr(printed, "mean_total") && !strstr(printed, "attention-"), "%s", printed);
    cr_expect(run(stages[4], "check --quick --op softmax") == 77, "%s", printed);
}

/* The first row sees key 0 alone; the other key's value is infinite once it is rounded. */
Test(cli, value_that_overflows_in_f16_stays_behind_its_mask)
{
    const float v[2] = { 1, 1e6f };
    free(SAVE("q.npy", 1, 2, 8)), free(SAVE("k.npy", 2, 2, 8));
    float wide[16];
    for (int i = 0; i < 16; i++) wide[i] = v[i / 8];
    cr_assert(!npy_write_f32("v.npy", 2, (size_t[]){ 2, 8 }, wide));
    for (int s = 1; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "run " FILES "--causal --dtype f16") == 0, "%s: %s",
                  stages[s], complained);
        float *o = load(stages[s], "o.npy", 2, (size_t[]){ 2, 8 });
        for (int c = 0; c < 8; c++)
            cr_expect(o[c] == 1 && isinf(o[8 + c]), "%s: column %d: %g, %g", stages[s], c,
                      (double)o[c], (double)o[8 + c]);
        free(o);
    }
}

/* The sizes of o overflow a size_t, once to a number that is 0 modulo 2^64. */
Test(cli, output_of_more_elements_than_memory_is_refused)
{
    const size_t shapes[][2] = { { 17, 1085102592571150096 }, { 32, 576460752303423488 },
                                 { 64, (size_t)1 << 59 }, { 1, (size_t)1 << 45 } };
    free(SAVE("k.npy", 2, 0, 1));
    for (size_t i = 0; i < 4; i++) {
        free(SAVE("q.npy", 1, shapes[i][0], 1));
        free(SAVE("v.npy", 3, 0, shapes[i][1]));
        for (int s = 0; s < N_STAGES; s++) {
            int status = run(stages[s], "run " FILES);
            cr_assert(status == 2 && strstr(complained, "the output does not fit into memory"),
                      "%s, %zu: exit %d: %s", stages[s], i, status, complained);
            cr_assert(n_files() == 3, "%s, %zu: an output exists", stages[s], i);
        }
    }
}

/* o [0, 2^30, 2^57] is empty, but NumPy and our reader refuse such a shape. */
Test(cli, empty_output_of_a_shape_that_no_reader_takes_is_refused)
{
    free(SAVE("q.npy", 1, 0, (size_t)1 << 30, 1)), free(SAVE("k.npy", 2, 0, 1, 1));
    free(SAVE("v.npy", 3, 0, 1, (size_t)1 << 57));
    for (int s = 0; s < N_STAGES; s++) {
        int status = run(stages[s], "run " FILES);
        cr_assert(status == 2 && n_files() == 3, "%s: exit %d: %s", stages[s], status,
                  complained);
    }
}

Test(cli, no_heads_give_empty_files)
{
    free(SAVE("q.npy", 1, 0, 5, 8)), free(SAVE("k.npy", 2, 0, 7, 8));
    free(SAVE("v.npy", 3, 0, 7, 16));
    for (int s = 0; s < N_STAGES; s++)
        for (int f16 = 0; f16 < 2; f16++) {
            cr_assert(run(stages[s], "run " FILES "%s", f16 ? "--dtype f16" : "") == 0,
                      "%s: %s", stages[s], complained);
            free(load(stages[s], "o.npy", 3, (size_t[]){ 0, 5, 16 }));
            free(load(stages[s], "lse.npy", 2, (size_t[]){ 0, 5 }));
        }
}

Test(cli, arguments_without_end_are_refused)
{
    char longest[3000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    for (int s = 0; s < N_STAGES; s++) {
        cr_expect(run(stages[s], "%s", longest) == 2);
        cr_expect(run(stages[s], "run --x %s --y y.npy", longest) == 2);
        cr_expect(run(stages[s], "run --%s", longest) == 2);
        cr_expect(run(stages[s], "check --variant %s", longest) == 2);
    }
    cr_expect(n_files() == 0);
}

Test(cli, full_disk_exits_1_and_keeps_the_old_files)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 100,
                        .seqlen_k = 3, .head_dim = 8, .head_dim_v = 64 };
    save_problem(&t, 2);
    for (int s = 0; s < N_STAGES; s++) {
        cr_expect(run(stages[s], "run " FILES "> /dev/full") == 1, "%s: stdout: %s",
                  stages[s], complained);
        write_text("lse.npy", "old");
        int before = n_files();
        cr_expect(run(stages[s], "run --q q.npy --k k.npy --v v.npy --o /dev/full "
                      "--lse lse.npy") == 1, "%s: %s", stages[s], complained);
        cr_expect(strstr(complained, "/dev/full") && holds("lse.npy", "old") &&
                  n_files() == before, "%s: %s", stages[s], complained);
    }
}

/* A limit on the size of files stands for the disk: o.npy needs 25 kB. */
Test(cli, file_size_limit_exits_1_and_keeps_the_old_files)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 100,
                        .seqlen_k = 3, .head_dim = 8, .head_dim_v = 64 };
    const char *build = getenv("BUILD");
    save_problem(&t, 2);
    for (int s = 0; s < N_STAGES; s++) {
        write_text("o.npy", "old"), write_text("lse.npy", "old");
        int before = n_files();
        char command[2048];
        snprintf(command, sizeof command, "ulimit -f 8; %s/%s/%s run " FILES
                 ">.stdout 2>.stderr", root, build ? build : "build", stages[s]);
        int status = system(command);
        slurp(".stderr", complained, sizeof complained);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s: %x %s", stages[s],
                  status, complained);
        cr_expect(strstr(complained, "o.npy"), "%s: %s", stages[s], complained);
        cr_expect(holds("o.npy", "old") && holds("lse.npy", "old") && n_files() == before,
                  "%s: an old file is gone or a temporary is left", stages[s]);
    }
}

Test(cli, pipes_carry_arrays_in_and_out)
{
    free(SAVE("x.npy", 1, 3, 4));
    cr_assert(run(stages[2], "run --x x.npy --y y.npy") == 0, "%s", complained);
    cr_assert(run(stages[2], "run --x /dev/stdin --y z.npy < x.npy") == 0, "%s",
              complained);
    cr_assert(!system("cmp -s y.npy z.npy"));
    cr_assert(!system("mkfifo pipe && (cat x.npy > pipe &)"));
    cr_assert(run(stages[2], "run --x pipe --y z2.npy") == 0, "%s", complained);
    cr_assert(!system("cmp -s y.npy z2.npy"));
    cr_assert(run(stages[2], "run --x x.npy --y /dev/fd/3 3>&1 >.said | cat > z3.npy")
              == 0, "%s", complained);
    cr_assert(!system("cmp -s y.npy z3.npy"));
}

/* The array alone goes to the standard output: what is told goes to stderr. */
Test(cli, array_on_the_standard_output_is_not_mixed_with_the_report)
{
    free(SAVE("x.npy", 1, 3, 4));
    for (int s = 0; s < 4; s++) {
        cr_assert(run(stages[s], "run --x x.npy --y y.npy") == 0, "%s", complained);
        cr_expect(strstr(printed, "variant") && !*complained);
        cr_assert(run(stages[s], "run --x x.npy --y /dev/stdout 2>.said | cat >z.npy") == 0);
        cr_assert(!system("cmp y.npy z.npy"), "%s: through a pipe", stages[s]);
        slurp(".said", complained, sizeof complained);
        cr_expect(strstr(complained, "variant"), "%s: %s", stages[s], complained);
        cr_assert(run(stages[s], "run --x x.npy --y /dev/stdout >z.npy") == 0, "%s",
                  complained);
        cr_assert(!system("cmp y.npy z.npy"), "%s: into a file", stages[s]);
        cr_expect(strstr(complained, "variant"), "%s: %s", stages[s], complained);
        cr_assert(run(stages[s], "run --x x.npy --y /dev/null >/dev/null") == 0);
        cr_expect(!*complained, "%s: %s", stages[s], complained);
    }
}
