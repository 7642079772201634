/* complain.c: one line about what is wrong. */
#include "program/complain.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

static int silent;
static char last[8192];

void complain_silently(int yes) { silent = yes; }
int complains(void) { return !silent; }
const char *complained(void) { return last; }

void announce(const struct stage *stage, const char *text)
{
    fprintf(stderr, "%s: ", stage->name);
    for (const char *c = text; *c; c++) fputc(iscntrl((unsigned char)*c) ? '?' : *c, stderr);
    fputc('\n', stderr);
}

int complain(const struct stage *stage, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last, sizeof last, format, arguments);
    va_end(arguments);
    if (!silent) announce(stage, last);
    return 2;
}
