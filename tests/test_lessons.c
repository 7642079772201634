/* test_lessons.c: what the lessons quote is in the code, what they print is printed, and they
 * keep their form. */
#include "lesson_files.h"

enum { MOST_STAGE_LINES = 120 };

/* Does any source file of the directory (of every stage, for a note) hold the text? */
static int quoted_from(const char *lesson, const char *text)
{
    static const char *const kinds[] = {"*.c", "*.h", "*.cu", "*/*.c", "*/*.cu", "*/*.h",
                                        "*/*/*.cu", "*/*/*.c"};
    const char *slash = strrchr(lesson, '/');
    int length = slash ? (int)(slash - lesson) : 0, found = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !found; i++) {
        char pattern[LINE];
        if (lesson[0] == '0') snprintf(pattern, sizeof pattern, "%.*s/%s", length, lesson, kinds[i]);
        else snprintf(pattern, sizeof pattern, "[0c]*/%s", kinds[i]);
        glob_t files;
        if (glob(pattern, 0, NULL, &files)) continue;
        for (size_t k = 0; k < files.gl_pathc && !found; k++) {
            char *source = slurp(files.gl_pathv[k]);
            found = source && strstr(source, text) != NULL;
            free(source);
        }
        globfree(&files);
    }
    return found;
}

/* The next fenced block after *at: its language and text; advances *at behind it. */
static char *next_block(const char **at, char *language, size_t size)
{
    const char *open = *at;
    while ((open = strstr(open, "```")) && open != *at && open[-1] != '\n') open += 3;
    if (!open) return NULL;
    const char *body = strchr(open, '\n');
    if (!body) return NULL;
    snprintf(language, size, "%.*s", (int)(body - open - 3), open + 3);
    body++;
    const char *close = strstr(body, "\n```");
    if (!strncmp(body, "```", 3)) close = body - 1;
    if (!close) return NULL;
    *at = close + 4;
    return strndup(body, (size_t)(close + 1 - body));
}

Test(lessons, excerpts_are_exactly_in_the_code)
{
    glob_t list = lessons();
    int excerpts = 0;
    for (size_t i = 0; i < list.gl_pathc; i++) {
        char *text = slurp(list.gl_pathv[i]), language[64];
        const char *at = text;
        for (char *block; (block = next_block(&at, language, sizeof language)); free(block)) {
            if (strcmp(language, "c") && strcmp(language, "cuda")) continue;
            excerpts++;
            cr_expect(quoted_from(list.gl_pathv[i], block), "%s quotes what no file holds:\n%s",
                      list.gl_pathv[i], block);
        }
        free(text);
    }
    cr_assert(excerpts >= 6, "only %d excerpts were found", excerpts);
    globfree(&list);
}

static void strip_right(char *s)
{
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1])) s[--n] = '\0';
}

/* The command as it is run here: the programs of this build, and `make trace 3` without
 * make, which might find that something is to be rebuilt while other tests use it. */
static void runnable(const char *command, char *shell, size_t size)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    glob_t stage;
    char pattern[16];
    if (!strncmp(command, "make trace ", 11)) {
        snprintf(pattern, sizeof pattern, "0%c_*", command[11]);
        cr_assert(glob(pattern, 0, NULL, &stage) == 0);
        snprintf(shell, size, "%s/%s trace 2>&1", build, stage.gl_pathv[0]);
        globfree(&stage);
    } else if (!strncmp(command, "build/", 6)) {
        snprintf(shell, size, "%s/%s 2>&1", build, command + 6);
    } else {
        snprintf(shell, size, "%s 2>&1", command);
    }
}

/* Compares the lines after "$ command" with what it prints; "..." stands for any lines. */
static void replay(const char *lesson, const char *command, char *shown)
{
    char shell[LINE * 2], line[LINE];
    runnable(command, shell, sizeof shell);
    FILE *f = popen(shell, "r");
    cr_assert(f);
    int elided = 0;
    char *want = strtok(shown, "\n");
    while (fgets(line, sizeof line, f)) {
        strip_right(line);
        if (want && !strcmp(want, "...")) {
            elided = 1;
            want = strtok(NULL, "\n");
        }
        if (!line[0]) continue;
        if (want) strip_right(want);
        if (want && !strcmp(want, line)) {
            elided = 0;
            want = strtok(NULL, "\n");
        } else if (!elided) {
            cr_expect(0, "%s: $ %s\n prints:      %s\n the lesson:  %s", lesson, command, line,
                      want ? want : "(ends here)");
            break;
        }
    }
    if (want && !strcmp(want, "...")) want = strtok(NULL, "\n");
    pclose(f);
    cr_expect(!want, "%s: $ %s does not print: %s", lesson, command, want ? want : "");
}

/* Commands whose output is the same every time and everywhere. */
static int repeatable(const char *command)
{
    return (!strncmp(command, "build/", 6) && (strstr(command, " trace") ||
                                                strstr(command, " run "))) ||
           !strncmp(command, "build/on_ramp/", 14) || !strncmp(command, "make trace", 10) || !strcmp(command, "make stage");
}

Test(lessons, transcripts_are_what_the_programs_print, .timeout = 900)
{
    glob_t list = lessons();
    int replayed = 0;
    unsetenv("MAKEFLAGS");
    unsetenv("MAKELEVEL");
    for (size_t i = 0; i < list.gl_pathc; i++) {
        char *text = slurp(list.gl_pathv[i]), language[64];
        const char *at = text;
        for (char *block; (block = next_block(&at, language, sizeof language)); free(block)) {
            if (strncmp(block, "$ ", 2)) continue;
            char *shown = strchr(block, '\n');
            if (!shown) continue;
            *shown++ = '\0';
            if (!repeatable(block + 2)) continue;
            replay(list.gl_pathv[i], block + 2, shown);
            replayed++;
        }
        free(text);
    }
    cr_assert(replayed >= 3, "only %d transcripts were found", replayed);
    globfree(&list);
}

/* What does the same job keeps its name and form from stage to stage (`make diff N`). */
Test(lessons, diff_names_what_a_stage_changes)
{
    static const struct { const char *stage, *line; } wants[] = {
        {"02_safe_softmax", "  same     score weighted_sum attention_head\n"},
        {"02_safe_softmax", "  changed  softmax_row\n"},
        {"03_online_softmax", "  changed  softmax_row attention_head\n"},
        {"03_online_softmax", "  new      attention_row\n"},
        {"03_online_softmax", "  gone     weighted_sum\n"},
        {"04_monoid_tiled_cpu", "+++ 04_monoid_tiled_cpu/stage.c\n"},
    };
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        char command[LINE], line[LINE];
        int found = 0;
        snprintf(command, sizeof command, "sh common/make/diff.sh %s stage.c 01_naive "
                 "02_safe_softmax 03_online_softmax 04_monoid_tiled_cpu 2>&1", wants[i].stage);
        FILE *f = popen(command, "r");
        cr_assert(f);
        while (fgets(line, sizeof line, f)) found |= !strcmp(line, wants[i].line);
        cr_expect(pclose(f) == 0 && found, "make diff of %s does not print: %s", wants[i].stage,
                  wants[i].line);
    }
}

/* Stages 2 and 3 change little in their predecessor, so that what differs is the idea. */
Test(lessons, a_diff_is_short_enough_to_be_read)
{
    for (int stage = 2; stage <= 3; stage++) {
        char command[LINE], line[LINE];
        int added = 0, removed = 0;
        snprintf(command, sizeof command, "sh common/make/diff.sh %s stage.c 01_naive "
                 "02_safe_softmax 03_online_softmax 2>&1",
                 stage == 2 ? "02_safe_softmax" : "03_online_softmax");
        FILE *f = popen(command, "r");
        cr_assert(f);
        while (fgets(line, sizeof line, f))
            sscanf(line, "%d lines added, %d removed", &added, &removed);
        cr_expect(pclose(f) == 0 && added > 0 && added <= 40 && removed <= 40,
                  "make diff %d: %d lines added, %d removed", stage, added, removed);
    }
}

Test(lessons, every_stage_has_the_eight_headings_within_120_lines)
{
    static const char *const headings[] = {
        "## Problem", "## Idea", "## What changes", "## Reading the code", "## Run it",
        "## Cost", "## Limits", "## Exercises"};
    glob_t list;
    cr_assert(glob("0*/README.md", 0, NULL, &list) == 0 && list.gl_pathc == 5,
              "five stages, each with a README.md");
    for (size_t i = 0; i < list.gl_pathc; i++) {
        char *text = slurp(list.gl_pathv[i]), *at = text;
        int lines = 0, in_table = 0;
        for (size_t h = 0; h < sizeof headings / sizeof headings[0] && at; h++) {
            at = strstr(at, headings[h]);
            cr_expect(at, "%s: no '%s' in its place", list.gl_pathv[i], headings[h]);
        }
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            if (strstr(line, "<!-- table:")) in_table = strstr(line, " begin ") != NULL;
            lines += !in_table;
        }
        cr_expect(lines <= MOST_STAGE_LINES, "%s has %d lines of its own", list.gl_pathv[i],
                  lines);
        free(text);
    }
    globfree(&list);
}
