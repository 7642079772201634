/* call.h: what a call asks for beyond sizes and a causal mask: window, soft cap, sinks, packed
 * sequences, pages, strides. */
#ifndef CALL_H
#define CALL_H

#include "library/request.h"

/* Fills r->p in with it, checked.  What is written but asks for nothing is left out, so that
 * every kernel can take it: a window without limits, strides of contiguous arrays. */
int request_call(struct request *r, const struct five_steps_attention_problem *p);

/* On the CPU: are the prefix sums and the page table what they say? */
int request_indices(struct request *r, const struct five_steps_attention_problem *p);

/* Is it a problem without keys on a GPU, where no kernel needs to start? */
int request_has_no_keys(const struct request *r);

#endif
