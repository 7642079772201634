/* choice.h: the kernel that a problem is given, of a stage's or of the library's. */
#pragma once

#include "harness.h"

/* NULL if v supports p, else what is not supported, to complete
 * "variant NAME does not support ...".  The text lives until the next call. */
const char *variant_refuses(const struct variant *v, const struct problem *p);

/* Does a bad value in a hidden row leak? */
enum isolation { MAY_LEAK, SHOULD_ISOLATE, MUST_ISOLATE };

/* The types that may be tried: the problem's own; f32, to which 16 and 8 bits are widened; and for
 * a kernel without f32 the 16 or 8 bits that it has, to which f32 is rounded. */
enum types { OWN_TYPE = 1, OR_F32 = 2, OR_ROUNDED = 6 };
enum { ANY_ARCH = -1 };

struct choice {
    const struct variant *const *list;
    size_t n;                      /* entries of the list, some NULL */
    const struct problem *p;
    const char *name;              /* the kernel that is asked for; NULL: the best */
    enum types types;
    int widens_f16;                /* the CPU's kernels get f32 for f16: o will be written as f32 */
    enum isolation isolation;
    int arch;                      /* compute capability x 10 of the GPU; ANY_ARCH: not asked */
    /* What choose() finds. */
    const struct variant *v;
    struct problem asked;          /* p in the type that v computes in */
    const struct variant *closest; /* without v: the kernel that supports the most, or NULL when */
    const char *why;               /* the list has none of that name; and what it does not */
    char text[96];
};

/* The best are those that isolate where they should; of these, those that compute in the problem's
 * own type; of these, the last one listed that does not yield.  Sets c->v, or c->closest and c->why. */
const struct variant *choose(struct choice *c);
