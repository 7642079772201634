/* case_list.h: how cases are added to the list. */
#ifndef CASE_LIST_H
#define CASE_LIST_H

#include "verification/cases.h"

/* What a case is marked as. */
enum { QUICK = 1, EXECUTED = 2, BOTH = QUICK | EXECUTED, ONLY_GPU = 4 };

/* The list so far. */
extern struct test_case case_list[];
extern size_t n_cases;

void case_name_add(struct test_case *c, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* appends to its name */

struct test_case *add_rows(enum op op, enum recipe recipe, size_t at, size_t rows,
                           size_t cols, int marks);

/* Where the rows of a case lie. */
enum rows_lie {
    CONTIGUOUS,
    BLHD,       /* [batch, rows, heads, dim] */
    QKV_SLICES, /* q, k and v as slices of one tensor; o with a gap after each row */
};

/* Whom a bias is for. */
enum bias_of { BIAS_OF_ALL, BIAS_PER_BATCH, BIAS_PER_HEAD, BIAS_PER_BOTH, BIAS_TOEPLITZ };

/* What is left out is 1 (batch, heads), 64 (d), heads (kv), d (dv), 0 (causal, bias, and
 * what follows), 1/sqrt(d) (scale). */
struct shape {
    size_t q, k, d, dv, batch, heads, kv;
    int causal, bias, scaled;
    float scale;
    int window, left, right;
    float softcap;
    int sinks, packed;
    size_t page;
    enum rows_lie lie;
    enum bias_of bias_of;
};
#define SHAPE(...) (struct shape){__VA_ARGS__}

struct test_case *add_attention(enum op op, enum recipe recipe, size_t at, struct shape s,
                                int marks);

/* The cases of each kind of operation (cases.c). */
void cases_of_softmax(enum op op);
void cases_of_mean(enum op op);
void cases_of_fused(enum op op);
void cases_of_attention(enum op op);
void cases_of_log_form(enum op op);
void cases_of_one_query(enum op op);
void cases_of_backward(enum op op);

/* Parts of cases_of_attention(): shapes; scores with masks; drawn and large shapes. */
void attention_shapes(enum op op);
void attention_scores(enum op op);
void attention_any(enum op op);
void attention_calls(enum op op); /* windows, caps, sinks, and layouts */

/* Sets the strides, totals and pages of a problem whose other fields are set. */
void lay_out(struct problem *p, enum rows_lie lie);

/* The features of a problem as the end of a name: "-causal-window3,0-page16". */
void features_name(const struct problem *p, enum rows_lie lie, char *text, size_t size);

#endif
