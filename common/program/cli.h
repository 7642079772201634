/* cli.h: the command line of a stage program. */
#ifndef CLI_H
#define CLI_H

#include "program/parse.h"

/* Sets *verb and *opt from the command line.  Returns 0, or 2 after one line on stderr
 * that names the culprit. */
int command_parse(int argc, char **argv, const struct stage *stage, const struct verb **verb,
                  struct options *opt);

/* Prints the stage's name and version. */
int print_version(const struct stage *stage);

#endif
