/* csv.h: measurements, one line each, with their provenance (design: results). */
#pragma once

#include <stdio.h>

#include "harness.h"

/* One measurement.  A NaN is written as an empty field. */
struct measurement {
    const char *stage, *variant;
    struct problem p;
    enum device device;
    int threads;
    double median_s, min_s;
    int reps;
    double bytes_predicted, bytes_measured, flops, gbps, gflops;
    const char *ceiling_kind; /* copy, read, exp, fma, gemm */
    double ceiling, pct_ceiling, peak_bytes, max_err, allowed_err;
};

struct csv; /* an open file */

/* Opens path to append to it; a new or empty file gets the header with its first line, and
 * is removed again when there is none.  A file with another header is left alone.  NULL and
 * *why set on failure. */
struct csv *csv_open(const char *path, const char **why);
/* Writes one line and flushes it, so that an interrupted run keeps what it measured.
 * NULL, or why it failed. */
const char *csv_write(struct csv *c, const struct measurement *m);
const char *csv_close(struct csv *c);

void csv_text(FILE *f, const char *text); /* one field, in quotes where they are needed */
void csv_columns(FILE *f);                /* a line for each column: its name and kind */

const char *machine_name(void); /* processor and number of cores */
