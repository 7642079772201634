/* run_say.c: what a run says: complaints, and its report. */
#include <stdarg.h>

#include "program/complain.h"
#include "program/run.h"

int bad(const struct run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_list(r->stage, format, arguments);
    va_end(arguments);
    return BAD;
}

int bad_file(const struct run *r, enum array i, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return bad(r, "--%s: %s: %s", array_list[i].name, r->opt->file[i], text);
}

void say(const struct run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(r->report, format, arguments);
    va_end(arguments);
}
