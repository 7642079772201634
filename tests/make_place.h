/* make_place.h: make in a line of shell, with everything that it builds below /tmp. */
#ifndef MAKE_PLACE_H
#define MAKE_PLACE_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[1024], place[64];
static char printed[1 << 18], complained[1 << 14];

static void make_place(void)
{
    const char *const inherited[] = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES",
                                     "BUILD", "CC", "CXX", "WERROR", "CUDA", "NO_INSTALL"};
    cr_assert(getcwd(root, sizeof root) != NULL);
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++) unsetenv(inherited[i]);
    setenv("ROOT", root, 1);
    strcpy(place, "/tmp/test_make.XXXXXX");
    cr_assert(mkdtemp(place) && !chdir(place));
    setenv("PLACE", place, 1);
    cr_assert(!system("mkdir -p class/ada && : > file"));
}

static void remove_place(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(!chdir("/") && !system(command));
}

static void slurp(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

/* Runs a line of shell in the repository; returns its exit status. */
static int shell(const char *format, ...)
{
    char line[4096], command[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    FILE *f = fopen("line", "w");
    cr_assert(f && fprintf(f, "cd \"$ROOT\"\n%s\n", line) > 0 && !fclose(f));
    snprintf(command, sizeof command, "sh line > out 2> err < /dev/null");
    int status = system(command);
    slurp("out", printed, sizeof printed);
    slurp("err", complained, sizeof complained);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define MAKE "make BUILD=$PLACE/b CUDA=0 NO_INSTALL=1 "

#endif
