/* check_report.h: what a run of the verb check has counted, and how it is told. */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include "program/options.h"
#include "verification/check_variant.h"

enum { MOST_VARIANTS = 64 };

struct tally {
    size_t passed, failed, skipped;
    double worst;            /* largest err / allowed of the passed */
    char worst_case[sizeof ((struct test_case *)0)->name]; /* where */
    enum dtype worst_dtype;
    unsigned types;          /* checked in these */
};

struct entry {
    const struct variant *v;   /* as it runs here */
    char unavailable[200];     /* why it cannot, or "" */
    struct tally ops[N_OPS];
};

struct run {
    const struct stage *stage;
    const struct options *opt;
    struct entry entries[MOST_VARIANTS];
    size_t n_entries, n_failed, n_cases;
    double started, reported;
};

/* On a terminal a line that is overwritten, else a plain line every ten seconds: case i of n. */
void progress(struct run *run, size_t i, size_t n, const char *name);
void progress_end(void);

/* One failure: where, got and want, and the command that shows it again. */
void print_failure(const struct run *run, const struct variant *v, const struct prepared *p,
                   const struct verdict *verdict);

/* The table of all variants and the counts.  Returns the exit status. */
int conclude(const struct run *run);

#endif
