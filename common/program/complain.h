/* complain.h: one line about what is wrong. */
#ifndef COMPLAIN_H
#define COMPLAIN_H

#include <stdarg.h>

#include "harness.h"

/* Writes "STAGE: " and a line, printf style, to stderr, with control characters (of file
 * names, of arguments) as '?', so that one complaint is one line.  Returns 2. */
int complain(const struct stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int complain_list(const struct stage *stage, const char *format, va_list arguments);

#endif
