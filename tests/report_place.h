/* report_place.h: a directory to make figures and tables in, and the interpreter for them.
 * tests/plots/synthetic.py invents the measurements. */
#ifndef REPORT_PLACE_H
#define REPORT_PLACE_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[1024], place[64], python[1200], said[1 << 14];

static inline void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

static inline void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

/* The interpreter that `make` found for the plots, else python3. */
static inline void make_place(void)
{
    char path[1200];
    const char *build = getenv("BUILD");
    cr_assert(getcwd(root, sizeof root) != NULL);
    snprintf(path, sizeof path, "%s/%s/python", root, build ? build : "build");
    slurp(path, python, sizeof python);
    python[strcspn(python, "\n")] = 0;
    if (!*python) strcpy(python, "python3");
    if (strchr(python, '/') && *python != '/') { /* inside the build directory */
        snprintf(path, sizeof path, "%s/%.100s", root, python);
        strcpy(python, path);
    }
    strcpy(place, "/tmp/test_plot.XXXXXX");
    cr_assert(mkdtemp(place) && !chdir(place));
}

static inline void remove_place(void)
{
    char command[192];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(!chdir("/") && !system(command));
}

/* Runs the script of the repository with the arguments; returns its exit status. */
static inline int run(const char *script, const char *format, ...)
{
    char command[4096];
    int n = snprintf(command, sizeof command, "%s -B %s/%s ", python, root, script);
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(command + n, sizeof command - (size_t)n, format, arguments);
    va_end(arguments);
    cr_assert(n < 4000);
    strcat(command, " >.said 2>&1");
    int status = system(command);
    slurp(".said", said, sizeof said);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static inline int has_python(void)
{
    char command[1300];
    snprintf(command, sizeof command, "%s -c '' >.said 2>&1", python);
    return !system(command);
}

#endif
