/* run_line.c: executes a command line in this process, with its output in files. */
#include "run_line.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct line line;
uint64_t seed;
int terminal;
char place[] = "/tmp/fuzz_run.XXXXXX";
char printed[1 << 16], error_line[1 << 16];
static int inside; /* is a stage running? */

void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

static void describe(void)
{
    dprintf(terminal, "fuzz_run: seed %llu, in %s: ", (unsigned long long)seed, place);
    for (int i = 0; i < line.argc; i++) dprintf(terminal, "%s ", line.argv[i]);
    dprintf(terminal, "\n");
}

void fail(const char *what)
{
    inside = 0;
    describe();
    dprintf(terminal, "fuzz_run: %s\n%s", what, error_line);
    exit(1);
}

void end_of_process(void)
{
    if (!inside) return;
    inside = 0;
    describe();
    slurp(".stderr", error_line, sizeof error_line);
    dprintf(terminal, "fuzz_run: the program ended by itself, or a sanitizer ended it\n%s",
            error_line);
}

static void redirect(int to, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) < 0) abort();
    close(fd);
}

int execute_line(void)
{
    int real = dup(1);
    fflush(stdout);
    redirect(1, ".stdout");
    redirect(2, ".stderr");
    inside = 1;
    int status = line.stage->main(line.argc, line.argv);
    inside = 0;
    fflush(stdout), fflush(stderr);
    dup2(real, 1), dup2(terminal, 2);
    close(real);
    slurp(".stdout", printed, sizeof printed);
    slurp(".stderr", error_line, sizeof error_line);
    return status;
}

void begin_line(const struct stage_program *stage)
{
    for (int i = 0; i < line.argc; i++) free(line.argv[i]);
    memset(&line, 0, sizeof line);
    line.stage = stage;
    line.argv[line.argc++] = strdup(stage->name);
}

void add(const char *option, const char *value)
{
    if (line.argc + 2 > MOST_ARGUMENTS) abort();
    line.argv[line.argc++] = strdup(option);
    if (value) line.argv[line.argc++] = strdup(value);
    line.argv[line.argc] = NULL;
}

void learn_variants(struct stage_program *stage)
{
    char *next;
    begin_line(stage);
    add("list", NULL);
    if (execute_line() != 0) fail("list fails");
    for (char *at = strtok_r(printed, "\n", &next); at; at = strtok_r(NULL, "\n", &next))
        if (*at >= 'a' && *at <= 'z' && stage->n_variants < MOST_VARIANTS)
            sscanf(at, "%31s", stage->variants[stage->n_variants++]);
}
