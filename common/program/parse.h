/* parse.h: from the words after a verb to its options. */
#ifndef PARSE_H
#define PARSE_H

#include "program/options.h"
#include "harness.h"

/* Which verbs take an option: a mask of these. */
enum { IN_LIST = 1, IN_CHECK = 2, IN_BENCH = 4, IN_TRACE = 8, IN_RUN = 16 };

struct verb {
    const char *name;
    const char *what; /* it does, in the help; NULL: not a line of its own */
    unsigned bit;     /* IN_LIST ... */
    int (*function)(const struct stage *stage, const struct options *opt);
};

/* Fills *opt from the words that follow the verb.  Returns 0, or 2 after one line on
 * stderr that names the culprit. */
int options_parse(int argc, char **argv, const struct verb *verb, const struct stage *stage,
                  struct options *opt);

/* Prints the options of a verb, as the help shows them. */
void options_help(const struct stage *stage, const struct verb *verb);

/* The operation that `run` is asked for: --op, or that of the files. */
enum op run_operation(const struct options *opt);

#endif
