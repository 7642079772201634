/* cases.c: the list of cases.
 *
 * Sizes sit on and around the edges of the tiles that the stages use (16, 32, 48, 64,
 * 128, 176 rows or keys); a case is as small as its point allows, so that a scalar
 * variant does the whole list in a second or two. */
#include "verification/cases.h"

#include <string.h>

#include "problem/random.h"
#include "verification/case_list.h"

/* What adds the cases of each operation, in the order of problem/operation.c. */
static void (*const cases_of[])(enum op op) = {
    [OP_SOFTMAX] = cases_of_softmax,
    [OP_LOGSOFTMAX] = cases_of_softmax,
    [OP_ATTENTION] = cases_of_attention,
    [OP_LOGSOFTMAX_ATTENTION] = cases_of_log_form,
    [OP_MEAN] = cases_of_mean,
    [OP_SCAN] = cases_of_one_query,
    [OP_UPDATE] = cases_of_one_query,
    [OP_FUSED_REDUCTION] = cases_of_fused,
    [OP_BACKWARD] = cases_of_backward,
};
_Static_assert(sizeof cases_of / sizeof *cases_of == N_OPS, "each operation's cases");

const struct test_case *test_cases(size_t *n)
{
    if (!n_cases)
        for (int op = 0; op < N_OPS; op++) cases_of[op]((enum op)op);
    *n = n_cases;
    return case_list;
}

const struct test_case *test_case_find(const char *name)
{
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(c[i].name, name)) return &c[i];
    return NULL;
}

uint64_t test_case_seed(const struct test_case *c)
{
    return random_seed(c->name);
}
