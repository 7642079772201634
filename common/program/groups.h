/* groups.h: the headings under which `list` and `check` show the variants. */
#ifndef GROUPS_H
#define GROUPS_H

#include "harness.h"

const char *group_name(enum group group); /* "lesson" */

#endif
