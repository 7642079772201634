/* notes/coverage.md: every file and test that it names exists, and every row is there. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 2048 };

/* Is there a Test(suite, name) in any test file? */
static int test_exists(const char *suite, const char *name)
{
    char want[LINE], line[LINE];
    glob_t files;
    int found = 0;
    snprintf(want, sizeof want, "Test(%s, %s", suite, name);
    cr_assert(glob("tests/test_*.c*", 0, NULL, &files) == 0);
    for (size_t i = 0; i < files.gl_pathc && !found; i++) {
        FILE *f = fopen(files.gl_pathv[i], "r");
        while (f && !found && fgets(line, sizeof line, f)) {
            char after = strstr(line, want) ? strstr(line, want)[strlen(want)] : 'x';
            found = after == ')' || after == ',';
        }
        if (f) fclose(f);
    }
    globfree(&files);
    return found;
}

/* One name between backticks: a path if it has a dot, else suite/test. */
static int check_name(char *name, int line)
{
    char *slash = strchr(name, '/');
    if (!slash || strchr(name, ' ')) return 0;
    if (strchr(name, '.')) {
        cr_expect(access(name, F_OK) == 0, "line %d: no file %s", line, name);
        return 1;
    }
    *slash = '\0';
    cr_expect(test_exists(name, slash + 1), "line %d: no test %s/%s", line, name,
              slash + 1);
    return 1;
}

Test(coverage, files_and_tests_it_names_exist)
{
    char line[LINE];
    int names = 0, at = 0;
    FILE *f = fopen("notes/coverage.md", "r");
    cr_assert(f, "no notes/coverage.md");
    while (fgets(line, sizeof line, f)) {
        at++;
        if (line[0] != '|') continue;
        for (char *open = strchr(line, '`'); open;) {
            char *close = strchr(open + 1, '`');
            cr_assert(close, "line %d: a backtick without its partner", at);
            *close = '\0';
            names += check_name(open + 1, at);
            open = strchr(close + 1, '`');
        }
    }
    fclose(f);
    cr_assert(names > 100, "only %d names were found", names);
}

/* The rows, and for each at least one file, one test and one note. */
Test(coverage, every_row_is_there_with_file_test_and_note)
{
    static const char *const rows[] = {
        "A1", "A2", "A3", "A4",  "B1",  "B2",  "B3", "B4", "B5", "C1",  "C2",
        "C3", "C4", "C5", "C6",  "C7",  "D1",  "D2", "D3", "D4", "D5",  "D6",
        "D7", "D8", "D9", "D10", "D11", "D12", "E1", "E2", "E3", "E3b", "E4",
        "E5", "E6", "F1", "F2",  "F3",  "F4",  "F5", "H1",
        "H2", "H3", "H6", "H7", "H8",  "H9",  "H10", "H11", "H12", "G"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[LINE], start[16];
        int complete = 0;
        FILE *f = fopen("notes/coverage.md", "r");
        cr_assert(f);
        snprintf(start, sizeof start, "| %s |", rows[i]);
        while (fgets(line, sizeof line, f))
            complete |= !strncmp(line, start, strlen(start)) && strstr(line, "`notes/") &&
                        (strstr(line, ".c`") || strstr(line, ".h`") ||
                         strstr(line, ".cu`"));
        fclose(f);
        cr_expect(complete, "row %s is missing, or lacks its code or its note", rows[i]);
    }
}
