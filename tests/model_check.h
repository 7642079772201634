/* model_check.h: the quick cases of `check` for one attention function in bf16. */
#pragma once

#include "program/options.h"

extern const struct variant bf16_amx; /* has the same promises and types */

/* 0 when every case passes. */
static inline int check_model(const char *name, variant_function *attention,
                              size_t (*workspace)(const struct problem *))
{
    struct variant v = bf16_amx;
    const struct variant *variants[] = {&v, NULL};
    struct stage stage = {.number = 9, .name = "99_model", .variants = variants};
    struct options quick = {.quick = 1};
    v.name = name;
    v.lacks = NULL;
    v.workspace = workspace;
    v.does[0].function = attention;
    return check_stage(&stage, &quick);
}
