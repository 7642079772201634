/* variant.h: what the harness asks of a variant before and while running it. */
#pragma once

#include "problem/dtype.h"
#include "problem/operation.h"
#include "harness.h"

const char *device_name(enum device device); /* "cpu", "gpu", "cpu-executed" */

/* The form of v that this machine runs: its GPU twin where a GPU is present and allowed,
 * else v itself. */
const struct variant *variant_here(const struct variant *v);

/* NULL if v can run on this machine, else why not. */
const char *variant_unavailable(const struct variant *v);

/* NULL if v is also taken where nobody names it, else why not: a kernel for one GPU architecture
 * is executed on the CPU for study only. */
const char *variant_not_by_default(const struct variant *v);
