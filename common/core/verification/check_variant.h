/* check_variant.h: one variant on one case, for the verb check and for tests. */
#pragma once

#include "verification/cases.h"
#include "verification/compare.h"

/* A case in one type: its inputs and what is accepted as their result. */
struct prepared {
    const struct test_case *test_case;
    uint64_t seed;
    struct inputs *inputs;
    struct standard *standard;
};

struct prepared prepare(const struct test_case *c, enum dtype dtype, uint64_t seed);
void prepared_free(struct prepared *p);

/* NULL if v promises to be right on this case, else why not: "scores up to 150". */
const char *not_promised(const struct variant *v, const struct prepared *p);

/* Runs v (repeat: twice, which must give the same bits) and judges the result.  Also
 * fails when an input was changed.  *could_not is set, and nothing judged, when v has no
 * memory. */
struct verdict check_variant(const struct variant *v, const struct prepared *p,
                             int repeat, const char **could_not);
