/* rounds.c: the program in which a project is timed.  It calls the project's variant, `exercise`;
 * the project's own main() is not in it.
 *
 *     PROGRAM softmax ROWS COLS FOLDER WHAT
 *     PROGRAM attention HEADS N D FOLDER WHAT
 *     PROGRAM fma                                  prints the GFLOP/s of multiply-adds
 *
 * WHAT is `it`, or one of two yardsticks: `nothing` and a plain `copy`.  Reads the inputs (raw floats:
 * FOLDER/x, or q, k and v).  A round: changes come from stdin, one for each row of x, or of q and k;
 * WHAT computes; a byte goes to stdout; a number comes, and that row of the output goes into the file
 * `rows`.  At the end of stdin the last y, or o and lse, is written where the program runs.  So nobody
 * knows, while it computes, whether a round is the last, or which of its rows is kept.
 * judge: timing.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "measurement/ceiling.h"
#include "problem/variant.h"

static float *memory(size_t n)
{
    float *p = aligned_alloc(4096, (n * sizeof *p + 4095) / 4096 * 4096);
    if (!p) exit(1);
    memset(p, 0xff, n * sizeof *p); /* NaN */
    return p;
}

static float *read_floats(const char *folder, const char *name, size_t n)
{
    char path[4096];
    float *p = memory(n);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f || fread(p, sizeof *p, n, f) != n) exit(1);
    fclose(f);
    return p;
}

static void write_floats(const char *name, const float *p, size_t n)
{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(p, sizeof *p, n, f) != n || fclose(f)) exit(1);
}

/* One element of each row (n) changes; 0 at the end of stdin. */
static int change(float *x, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows; i++) {
        struct { uint32_t at; float value; } new;
        if (fread(&new, sizeof new, 1, stdin) != 1) return 0;
        x[i * n + new.at % n] = new.value;
    }
    return 1;
}

static void nothing(const struct problem *p, const struct arrays *a)
{
    (void)p, (void)a;
}

static void copy(const struct problem *p, const struct arrays *a)
{
    memcpy(a->y, a->x, p->rows * p->cols * sizeof(float));
}

static const struct variant idle = {.does = {{OP_SOFTMAX, nothing}, {OP_ATTENTION, nothing}}},
                            copier = {.does = {{OP_SOFTMAX, copy}}};
extern const struct variant exercise __attribute__((weak)); /* not in a yardstick alone */

static size_t number(char **word) { return strtoull(*word, NULL, 10); }

int main(int argc, char **argv)
{
    if (argc == 2) return printf("%.6g\n", ceiling_fma_gflops(1)) < 0;
    int rows = argc > 4 && !strcmp(argv[1], "softmax");
    if (argc < 7 - rows) return 2;
    const char *folder = argv[5 - rows], *what = argv[6 - rows];
    const struct variant *v = !strcmp(what, "it") ? &exercise : *what == 'c' ? &copier : &idle;
    struct problem p = {.op = rows ? OP_SOFTMAX : OP_ATTENTION, .batch = 1};
    struct arrays a = {0};
    size_t n_out, n_lse = 0, n_row = number(argv + 4 - rows);
    float *x[2] = {0};
    if (rows) {
        p.rows = number(argv + 2), p.cols = n_row;
        n_out = p.rows * p.cols;
        a.x = x[0] = read_floats(folder, "x", n_out);
        a.y = memory(n_out);
    } else {
        p.heads_q = p.heads_kv = number(argv + 2), p.seqlen_q = p.seqlen_k = number(argv + 3);
        p.head_dim = p.head_dim_v = n_row;
        p.scale = 1 / sqrtf((float)n_row);
        n_lse = p.heads_q * p.seqlen_q, n_out = n_lse * n_row;
        a.q = x[0] = read_floats(folder, "q", n_out);
        a.k = x[1] = read_floats(folder, "k", n_out);
        a.v = read_floats(folder, "v", n_out);
        a.o = memory(n_out);
        a.lse = memory(n_lse);
    }
    a.workspace = memory(variant_scratch(v, &p) / sizeof(float) + 1);

    uint32_t kept;
    size_t n_rows = n_out / n_row;
    FILE *f = fopen("rows", "wb");
    if (!f) return 1;
    while (change(x[0], n_rows, n_row) && (!x[1] || change(x[1], n_rows, n_row))) {
        variant_call(v, &p, &a);
        if (write(STDOUT_FILENO, "", 1) != 1 || fread(&kept, sizeof kept, 1, stdin) != 1) return 1;
        const float *y = (const float *)(rows ? a.y : a.o) + kept % n_rows * n_row;
        if (fwrite(y, sizeof *y, n_row, f) != n_row) return 1;
    }
    if (fclose(f)) return 1;
    write_floats(rows ? "y" : "o", rows ? a.y : a.o, n_out);
    if (n_lse) write_floats("lse", a.lse, n_lse);
    return 0;
}
