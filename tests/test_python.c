/* test_python.c: the Python package over the C library, against NumPy.  What needs PyTorch is
 * skipped inside, by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static char said[1 << 14];

/* Runs a line of shell; its output is in `said`. */
static int shell(const char *line)
{
    FILE *f = popen(line, "r");
    cr_assert(f);
    size_t got = fread(said, 1, sizeof said - 1, f);
    said[got] = 0;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* The interpreter that has a package: $FIVE_STEPS_PYTHON, that of the PATH, or the system's. */
#define FIND_WITH(package) "for p in $FIVE_STEPS_PYTHON python3 /usr/bin/python3 ''; do " \
             "$p -c 'import " package "' 2>/dev/null && break; done; [ \"$p\" ]"
#define FIND FIND_WITH("numpy")
#define SETTINGS "OMP_NUM_THREADS=2 PYTHONPATH=common/library/python PYTHONDONTWRITEBYTECODE=1 "

/* Runs a Python file with the library under test, by the interpreter that `find` finds; returns
 * the exit status. */
static int python(const char *find, const char *file)
{
    const char *build = getenv("BUILD");
    char line[1024];
    snprintf(line, sizeof line, "%s; FIVE_STEPS_LIBRARY=%s/libfive_steps.so " SETTINGS
             "$p -W error::DeprecationWarning %s 2>&1", find, build ? build : "build", file);
    return shell(line);
}

Test(python, the_package_agrees_with_the_definition, .timeout = 900)
{
    if (SANITIZED) cr_skip_test("the interpreter has no sanitizer");
    if (shell(FIND)) cr_skip_test("no python3 with NumPy");
    cr_assert(python(FIND, "tests/python/test_five_steps.py") == 0, "%s", said);
    cr_expect(strstr(said, "\nOK"), "%s", said);
}

/* Without a net and without setuptools: the folder brings its own build backend. */
Test(python, the_folder_is_installed_in_a_fresh_environment, .timeout = 900)
{
    const char *build = getenv("BUILD");
    char place[] = "/tmp/test_python.XXXXXX", line[1024];
    if (SANITIZED) cr_skip_test("the interpreter has no sanitizer");
    cr_assert(mkdtemp(place));
    snprintf(line, sizeof line, "sh tests/python/install.sh %s/libfive_steps.so %s 2>&1",
             build ? build : "build", place);
    int status = shell(line);
    char cleanup[64];
    snprintf(cleanup, sizeof cleanup, "rm -rf %s", place);
    cr_expect(system(cleanup) == 0);
    if (status == 77) cr_skip_test("%s", said);
    cr_assert(status == 0 && strstr(said, "installed"), "%s", said);
}

Test(python, keys_in_pages_give_what_keys_in_a_row_give, .timeout = 900)
{
    if (SANITIZED) cr_skip_test("the interpreter has no sanitizer");
    if (shell(FIND)) cr_skip_test("no python3 with NumPy");
    cr_assert(python(FIND, "tests/python/test_decode.py") == 0, "%s", said);
    cr_expect(strstr(said, "\nOK"), "%s", said);
}

/* On a GPU: also views, captured graphs, threads with a stream each. */
Test(python, cuda_tensors_agree_with_the_definition, .timeout = 900)
{
    if (SANITIZED) cr_skip_test("the interpreter has no sanitizer");
    if (shell(FIND_WITH("torch"))) cr_skip_test("no python3 with PyTorch");
    int status = python(FIND_WITH("torch"), "tests/python/test_cuda.py");
    if (strstr(said, "skipped: ") == said) cr_skip_test("%s", said);
    cr_assert(status == 0, "%s", said);
    cr_expect(strstr(said, "\nOK"), "%s", said);
}

/* The models beside PyTorch's attention. */
Test(python, the_models_agree_with_pytorch, .timeout = 900)
{
    static const char *const models[] = { "encoder.py", "generate.py --steps 0 --tokens 60" };
    const char *build = getenv("BUILD");
    char line[1024];
    if (SANITIZED) cr_skip_test("the interpreter has no sanitizer");
    if (shell(FIND_WITH("torch"))) cr_skip_test("no python3 with PyTorch");
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, FIND_WITH("torch") "; FIVE_STEPS_LIBRARY=%s/libfive_steps.so "
                 SETTINGS "$p common/library/models/%s 2>&1", build ? build : "build", models[i]);
        int status = shell(line);
        if (status == 77) printf("skipped inside: %s", said);
        cr_expect(status == 0 || status == 77, "%s: %s", models[i], said);
        cr_expect(strstr(said, status ? "skipped" : i ? "same text" : "\nagree"), "%s", said);
    }
}
