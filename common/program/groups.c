/* groups.c: the headings under which `list` and `check` show the variants. */
#include "program/groups.h"

const char *group_name(enum group group)
{
    static const char *const names[] = {
        [IN_LESSON] = "lesson",     [IN_FAST] = "faster",    [IN_GPU] = "GPU",
        [IN_ASIDES] = "asides",     [IN_PORTABLE] = "any GPU", [IN_HOPPER] = "Hopper",
        [IN_SPLIT_KV] = "few queries",
    };
    _Static_assert(sizeof names / sizeof *names == N_GROUPS, "each group's heading");
    return names[group];
}
