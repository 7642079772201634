/* run_line.h: a command line of a stage program, executed in this process. */
#ifndef RUN_LINE_H
#define RUN_LINE_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_VARIANTS = 64, MOST_ARGUMENTS = 64 };

struct stage_program {
    const char *name;
    int (*main)(int argc, char **argv);
    char variants[MOST_VARIANTS][32];
    size_t n_variants;
};

/* A command line that grows. */
struct line {
    const struct stage_program *stage;
    char *argv[MOST_ARGUMENTS + 1];
    int argc;
};

extern struct line line;
extern uint64_t seed;              /* of the present combination */
extern int terminal;               /* the real stderr; 1 and 2 are files while a stage runs */
extern char place[];               /* the directory of this run */
extern char printed[1 << 16], error_line[1 << 16]; /* what the program wrote to 1 and 2 */

/* A line of a stage begins; add() an option, with its value or NULL. */
void begin_line(const struct stage_program *stage);
void add(const char *option, const char *value);

/* The exit status of the stage's main; what it prints is in printed and error_line. */
int execute_line(void);

/* The names of a stage's variants, from its list. */
void learn_variants(struct stage_program *stage);

/* The beginning of a file as a string. */
void slurp(const char *path, char *text, size_t size);

/* A finding: prints the seed, the line and what is wrong, and ends with status 1. */
void fail(const char *what);

/* A stage returns its status; a program or a sanitizer that ends the process is a finding. */
void end_of_process(void);

#endif
