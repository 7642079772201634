/* case_list.h: what the files that make cases share: the table (case_table.c), drawn cases, and
 * inputs. */
#pragma once

#include "problem/random.h"
#include "verification/cases.h"

/* A row of the table. */
struct cases { const char *recipes, *problems; };
extern const struct cases *const cases_of[]; /* by operation; each ends with {0} */

/* The part of the suite. */
enum { FULL, QUICK, EXECUTED, BOTH, ONLY_GPU };

/* Where the rows of a case lie. */
enum rows_lie {
    CONTIGUOUS,
    BLHD,       /* [batch, rows, heads, dim] */
    QKV_SLICES, /* q, k and v as slices of one tensor; o with a gap after each row */
};

/* Whom a bias is for. */
enum bias_form { BIAS_FOR_ALL, BIAS_PER_BATCH, BIAS_PER_HEAD, BIAS_PER_BOTH, BIAS_TOEPLITZ };

void case_name_add(struct test_case *c, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* appends to its name */

/* Sets the strides, totals and pages of a problem whose other fields are set. */
void lay_out(struct problem *p, enum rows_lie lie);

/* Sets the strides of its bias: a row for all queries of a batch, a matrix per head or per
 * both, or for each head a number per distance j - i (as ALiBi's): rows run backwards. */
void give_bias(struct problem *p, enum bias_form of);

/* Replaces the plain arrays [batch, heads, rows, .] of in by those of c's layout, and its
 * problem by c's.  Of a sequence the first rows are taken.  What lies between the rows, in
 * pages that nobody owns and behind the last key of a page is NaN. */
void inputs_lay_out(struct inputs *in, const struct test_case *c, struct random *r);

/* Adds the features of c's problem to its name: "-causal-window3,0-page16". */
void add_features(struct test_case *c, enum rows_lie lie, enum bias_form of);

/* The recipe `powers`, as the functions of inputs.c.   x: a normal number, of values the place of one */
float powers_query(size_t i, size_t t, float x);
float powers_key(const struct test_case *c, size_t j, size_t t, float x);
float powers_bias(size_t j);
float powers_value(const struct test_case *c, size_t j, size_t t, const float *x);
