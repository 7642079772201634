/* op_checks.c: how each operation is checked, in the order of problem/operation.c. */
#include "verification/op_checks.h"

#include "verification/case_list.h"

const struct op_check op_checks[] = {
    [OP_SOFTMAX] = {reference_softmax, allow_softmax, cases_of_softmax, 0},
    [OP_LOGSOFTMAX] = {reference_logsoftmax, allow_logsoftmax, cases_of_softmax, 0},
    [OP_ATTENTION] = {reference_attention, allow_attention, cases_of_attention, 0},
    [OP_LOGSOFTMAX_ATTENTION] = {reference_attention, allow_log_form, cases_of_log_form, 1},
    [OP_MEAN] = {reference_mean, allow_bound, cases_of_mean, 0},
    [OP_SCAN] = {reference_attention, allow_attention, cases_of_one_query, 0},
    [OP_UPDATE] = {reference_attention, allow_attention, cases_of_one_query, 0},
    [OP_FUSED_REDUCTION] = {reference_fused, allow_bound, cases_of_fused, 0},
};
_Static_assert(sizeof op_checks / sizeof *op_checks == N_OPS, "each operation's entry");
