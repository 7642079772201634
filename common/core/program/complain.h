/* complain.h: one line about what is wrong. */
#pragma once

#include "harness.h"

/* Writes "STAGE: " and a line, printf style, to stderr, with control characters (of file
 * names, of arguments) as '?', so that one complaint is one line.  Returns 2. */
int complain(const struct stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Of several processes one speaks: in the others complaints are kept, and not printed. */
void complain_silently(int yes);
int complains(void);          /* does this process print? */
const char *complained(void); /* the last complaint */

/* Prints the line in any case. */
void announce(const struct stage *stage, const char *text);
