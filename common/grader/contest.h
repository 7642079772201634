/* contest.h: the work of a timed run: its inputs, new each time, and whether the answer is
 * right.  All that a worker can reach lies in its place (place.h); this is the judge's own. */
#ifndef CONTEST_H
#define CONTEST_H

#include "place.h"

enum { SAMPLES = 256 };
#define UNWRITTEN 0x7fc0dead /* fills the outputs: no number that is an answer */

struct contest {
    struct problem p;
    size_t n_in[3], n_out[2];   /* softmax: x; y.  attention: q, k, v; o, lse */
    float *in[3], *out[2];      /* ours: what lies in a place may change at any time */
    void *raw;                  /* one array as it travels */
    size_t bytes;               /* of a place */
    struct request q;           /* TIMED: where the arrays lie in a place */
    size_t at[SAMPLES];         /* where the judge looks before it stops the clock */
    uint32_t seen[SAMPLES];     /* what it saw there */
};

/* Reads `work`: softmax:ROWSxCOLS or attention:HEADSxSEQLENxDIM.  Returns 0 when it means
 * nothing. */
int contest_understand(struct contest *c, const char *work, enum dtype dtype);

/* New inputs, from the system's random numbers. */
void contest_draw(struct contest *c);

/* Puts the inputs into a place, and UNWRITTEN into its outputs with their frames. */
void contest_hand_over(struct contest *c, struct place *place);

/* Chooses where in the outputs the judge looks.  Call it after the worker has answered. */
void contest_choose(struct contest *c);

/* Takes the answer out of a place.  Returns NULL, or what the worker must not have done: its
 * inputs and the frames are as they were, and what was seen has not changed since. */
const char *contest_take(struct contest *c, struct place *place);

/* What is wrong with the answer, or NULL.  Some rows are compared with double, chosen now; of
 * all rows the sum or the range. */
const char *contest_mistake(const struct contest *c);

#endif
