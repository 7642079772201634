/* tensors.h: for the Python package: a problem of attention, of which q, k, v and o are objects that
 * DLPack's C exchange API can read (DLPack 1.3; PyTorch 2.10 has it). */
#ifndef FIVE_STEPS_TENSORS_H
#define FIVE_STEPS_TENSORS_H

#include "five_steps.h"

/* The dimensions of an array before its last: batch (or page) and heads may be missing. */
enum five_steps_order { FIVE_STEPS_HEADS_ROWS, FIVE_STEPS_ROWS_HEADS, FIVE_STEPS_ONE_ROW };

struct five_steps_tensors {
    const void *exchange; /* what the capsule __dlpack_c_exchange_api__ of their class points at */
    int order_q, order_k; /* enum five_steps_order: of q and o, and of k and v */
    size_t keys;          /* of a decoding step; SIZE_MAX: as many as k has */
    size_t bytes;         /* written: of the workspace */
    struct five_steps_attention_problem problem;
};

/* Writes sizes, addresses, strides, type, device and stream of q, k, v and o into the problem, beside
 * the options that are there; of packed sequences the lengths and their number are there, too.  Not
 * 0: the library cannot use the arrays as they lie, or they do not fit together. */
int five_steps_read_tensors(struct five_steps_tensors *t, void *q, void *k, void *v, void *o);

#endif
