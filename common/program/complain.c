/* complain.c: one line about what is wrong. */
#include "program/complain.h"

#include <ctype.h>
#include <stdio.h>

int complain_list(const struct stage *stage, const char *format, va_list arguments)
{
    char text[8192];
    vsnprintf(text, sizeof text, format, arguments);
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c)) *c = '?';
    fprintf(stderr, "%s: %s\n", stage->name, text);
    return 2;
}

int complain(const struct stage *stage, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_list(stage, format, arguments);
    va_end(arguments);
    return 2;
}
