/* choose.h: which variant `run` takes, and why not another. */
#ifndef CHOOSE_H
#define CHOOSE_H

#include "harness.h"

/* A type that v computes this problem in: its own, else a 16-bit problem widened to f32,
 * else (only where `narrow`, and v has no f32) f32 rounded to the 16-bit type that v has.
 * 0 when there is none. */
int choice_type(const struct variant *v, const struct problem *p, int narrow,
                enum dtype *type);

/* Why v does not do this problem, in a type that it has.  strict: the type was asked for,
 * and may be widened, but not be rounded. */
const char *choice_refusal(const struct variant *v, const struct problem *p, int strict);

/* The stage's best variant for p on this machine, or NULL; sets the type that is computed
 * in.  The best are those that take the arrays as they lie: for the others execute() gathers
 * each sequence and merges sinks in.  Of these, those that keep a bad value row from leaking
 * where that matters; of these, those that compute in the problem's own type; of these, the
 * last one listed.  In stages 1 to 4 a GPU kernel is never executed on the CPU unasked.
 *   isolate  v holds NaN or inf */
const struct variant *choice_default(const struct stage *stage, const struct problem *p,
                                     int isolate, enum dtype *type);

/* Why v was not taken, though it is listed after the one that was: into text [size]. */
void choice_why_not(const struct stage *stage, const struct problem *p,
                    const struct variant *v, char *text, size_t size);

#endif
