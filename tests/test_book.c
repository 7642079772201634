/* test_book.c: the book, built and driven in a browser by tests/book/browser.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* What the last command printed. */
static char printed[1 << 16];

static int run(const char *command)
{
    FILE *f = popen(command, "r");
    if (!f) return -1;
    size_t n = fread(printed, 1, sizeof printed - 1, f);
    printed[n] = 0;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The tools are looked for, never installed, by a test. */
Test(book, pages_and_figures_work_in_a_browser, .timeout = 900)
{
    const char *build = getenv("BUILD");
    char command[512];
    if (run("NO_INSTALL=1 sh common/make/require.sh wasm venv browser 2>&1"))
        cr_skip("%s", printed);
    snprintf(command, sizeof command, "env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make "
             "--no-print-directory BUILD=%s book-test 2>&1", build ? build : "build");
    int status = run(command);
    if (strstr(printed, "skipped:")) cr_skip("%s", strstr(printed, "skipped:"));
    cr_assert(status == 0, "%s", printed + (strlen(printed) > 4000 ? strlen(printed) - 4000 : 0));
}
