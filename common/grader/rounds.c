/* rounds.c: stands in for the harness's stage_main where a project is timed.
 *
 *     PROGRAM softmax ROWS COLS FOLDER [VARIANT]
 *     PROGRAM attention HEADS N D FOLDER [VARIANT]
 *
 * Reads the inputs (raw floats: FOLDER/x, or q, k and v), and for each byte on stdin makes a new
 * problem of them and has it computed: in each row of x, or of q and k, one element is replaced,
 * where and by what follows from the byte, the round and the row.  Then it writes a byte to stdout.
 * At the end of stdin it writes the last round's y, or o and lse, into the folder where it runs, and
 * after a byte from SHOWN on one row of that round's, into the file `rows`.  The judge decides byte by
 * byte: no round knows whether it is the last, or one that is shown.
 * judge: projects.py, which makes the same changes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "problem/variant.h"

enum { SHOWN = 208 };

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

static uint64_t hash(uint64_t seed, uint64_t i)
{
    uint64_t r = (seed * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;
    return (r ^ r >> 29) * 0xbf58476d1ce4e5b9u;
}

/* One element of each row (n) changes. */
static void change(float *x, size_t rows, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < rows; i++) {
        uint64_t r = hash(seed, i);
        x[i * n + (r >> 40) % n] = (float)(r >> 8 & 0xffff) * 0x1p-13f - 4.0f;
    }
}

static size_t number(char **word) { return strtoull(*word, NULL, 10); }

int stage_main(int argc, char **argv, const struct stage *stage)
{
    int rows = argc > 4 && !strcmp(argv[1], "softmax");
    if (argc < 6 - rows) return 2;
    const char *folder = argv[5 - rows], *wanted = argv[6 - rows];
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
    const struct variant *v = stage->variants[0];
    for (int i = 0; stage->variants[i]; i++)
        if (wanted && !strcmp(stage->variants[i]->name, wanted)) v = stage->variants[i];
    a.workspace = memory(variant_scratch(v, &p) / sizeof(float) + 1);

    unsigned char byte;
    FILE *f = fopen("rows", "wb");
    if (!f) return 1;
    for (uint64_t round = 0; read(STDIN_FILENO, &byte, 1) == 1; round++) {
        for (int i = 0; i < 2; i++)
            if (x[i]) change(x[i], n_out / n_row, n_row, byte + 256 * (2 * round + (uint64_t)i));
        variant_call(v, &p, &a);
        const float *y = rows ? a.y : a.o;
        size_t shown = hash(byte + 256 * 2 * round, 0) % (n_out / n_row);
        if (byte >= SHOWN && fwrite(y + shown * n_row, sizeof *y, n_row, f) != n_row) return 1;
        if (write(STDOUT_FILENO, "", 1) != 1) return 1;
    }
    if (fclose(f)) return 1;
    write_floats(rows ? "y" : "o", rows ? a.y : a.o, n_out);
    if (n_lse) write_floats("lse", a.lse, n_lse);
    return 0;
}
