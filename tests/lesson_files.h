/* lesson_files.h: the lessons: README files and notes. */
#ifndef LESSON_FILES_H
#define LESSON_FILES_H

#include <criterion/criterion.h>
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 1024 };

/* The whole file, or NULL.  Freed by the caller. */
static inline char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    size_t n = 0, room = 1 << 16;
    char *text = malloc(room);
    for (size_t got; (got = fread(text + n, 1, room - n - 1, f)) > 0;) {
        n += got;
        if (n + 1 == room) text = realloc(text, room *= 2);
    }
    fclose(f);
    text[n] = '\0';
    return text;
}

static inline void glob_add(const char *pattern, glob_t *list, int *first)
{
    glob(pattern, *first ? 0 : GLOB_APPEND, NULL, list);
    *first = 0;
}

static inline glob_t lessons(void)
{
    glob_t list = {0};
    int first = 1;
    glob_add("README.md", &list, &first);
    glob_add("0*/README.md", &list, &first);
    glob_add("notes/*.md", &list, &first);
    glob_add("tests/*/README.md", &list, &first);
    return list;
}

#endif
