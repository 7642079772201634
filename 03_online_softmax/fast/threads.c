/* threads.c: stage 3 on all cores: a thread takes whole rows, or chunks of a long row.
 *
 * Each chunk as in one_look.c; the states of the chunks are merged in their order. */
#include "row.h"

static void softmax_threads(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, online_row_one_look, is_large(p) ? divide_streaming : divide);
}

static void logsoftmax_threads(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, online_row_one_look, subtract);
}

const struct variant online_threads = {
    .name = "threads", .idea = "one_look on all cores",
    .group = IN_FAST, .all_cores = 1, SAFE_ON_CPU, .workspace = states_of_rows,
    .cost = cost_streaming_large,
    .by_head = {{OP_ATTENTION, attention_head}},
    .does = {{OP_SOFTMAX, softmax_threads}, {OP_LOGSOFTMAX, logsoftmax_threads}},
};
