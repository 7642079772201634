/* test_lesson_links.c: where a lesson points there is something. */
#include "lesson_files.h"

/* GitHub's anchor of a heading: lower case, spaces to hyphens, punctuation dropped. */
static void slug(const char *heading, char *out, size_t size)
{
    size_t n = 0;
    while (*heading == '#') heading++;
    while (*heading == ' ') heading++;
    for (; *heading && *heading != '\n' && n + 1 < size; heading++) {
        unsigned char c = (unsigned char)*heading;
        if (isalnum(c) || c == '_' || c == '-' || c >= 0x80) out[n++] = (char)tolower(c);
        else if (c == ' ') out[n++] = '-';
    }
    out[n] = '\0';
}

static int has_anchor(const char *path, const char *anchor)
{
    char *text = slurp(path), name[LINE];
    int found = 0;
    for (char *line = text; line && !found; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (*line != '#') continue;
        slug(line, name, sizeof name);
        found = !strcmp(name, anchor);
    }
    free(text);
    return found;
}

/* One target of a link: a file beside the lesson, and the heading behind '#'. */
static void check_link(const char *lesson, char *target)
{
    if (strstr(target, "://") || !strncmp(target, "mailto:", 7)) return;
    char path[LINE * 2], *anchor = strchr(target, '#');
    const char *slash = strrchr(lesson, '/');
    if (anchor) *anchor++ = '\0';
    if (!*target) snprintf(path, sizeof path, "%s", lesson);
    else
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - lesson + 1) : 0, lesson,
                 target);
    cr_expect(access(path, F_OK) == 0, "%s links to %s, which does not exist", lesson, path);
    if (anchor && access(path, F_OK) == 0)
        cr_expect(has_anchor(path, anchor), "%s links to #%s, which %s does not have", lesson,
                  anchor, path);
}

Test(lessons, links_resolve)
{
    glob_t list = lessons();
    int links = 0;
    for (size_t i = 0; i < list.gl_pathc; i++) {
        char *text = slurp(list.gl_pathv[i]);
        for (char *at = text; (at = strstr(at, "](")); links++) {
            char *end = strchr(at + 2, ')');
            if (!end) break;
            *end = '\0';
            check_link(list.gl_pathv[i], at + 2);
            at = end + 1;
        }
        free(text);
    }
    cr_assert(links >= 10, "only %d links were found", links);
    globfree(&list);
}
