/* test_install.c: the library as it is installed: the files, the names that it exports, what
 * it may call, and the example, built in C and in C++ against the installed tree. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char place[64], said[1 << 14];

/* Runs a line of shell in which $LIB is the built libraries' directory, $D an empty one and
 * $P a prefix below it; returns its exit status. */
static int shell(const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    int n = snprintf(line, sizeof line, "exec 2>&1; D=%s P=/opt/five; ", place);
    vsnprintf(line + n, sizeof line - (size_t)n, format, arguments);
    va_end(arguments);
    FILE *f = popen(line, "r");
    cr_assert(f);
    size_t got = fread(said, 1, sizeof said - 1, f);
    said[got] = 0;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static void make_place(void)
{
    const char *build = getenv("BUILD");
    setenv("LIB", build ? build : "build", 1);
    strcpy(place, "/tmp/test_install.XXXXXX");
    cr_assert(mkdtemp(place) != NULL);
}

static void remove_place(void) { shell("rm -rf $D"); }

TestSuite(install, .init = make_place, .fini = remove_place, .timeout = 900);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define INSTALL "DESTDIR=$D PREFIX=$P sh common/library/install.sh $LIB '-lm -lgomp -lpthread'"

Test(install, every_file_is_in_its_place_and_is_removed_again)
{
    cr_assert(shell(INSTALL) == 0, "%s", said);
    cr_assert(shell("cd $D$P && for f in include/five_steps.h lib/libfive_steps.a "
                    "lib/libfive_steps.so lib/libfive_steps.so.1 lib/pkgconfig/five_steps.pc;"
                    " do [ -s $f ] || { echo no $f; exit 1; }; done") == 0, "%s", said);
    cr_expect(shell("cd $D$P/lib && [ \"$(readlink libfive_steps.so)\" = libfive_steps.so.1 ]"
                    " && grep -q '^prefix=/opt/five$' pkgconfig/five_steps.pc") == 0, "%s", said);
    cr_assert(shell("DESTDIR=$D PREFIX=$P sh common/library/install.sh --remove") == 0, "%s",
              said);
    cr_expect(shell("find $D -type f -o -type l | grep .") == 1, "left: %s", said);
}

Test(install, a_prefix_that_cannot_be_is_one_line_and_2)
{
    cr_expect(shell("PREFIX=relative sh common/library/install.sh $LIB ''") == 2);
    cr_expect(strstr(said, "relative") && strchr(said, '\n') == said + strlen(said) - 1, "%s",
              said);
    cr_expect(shell("touch $D/file; PREFIX=$D/file/x sh common/library/install.sh $LIB ''") == 2);
    cr_expect(strstr(said, "cannot be written"), "%s", said);
}

/* Of the shared library's and of the archive's. */
Test(install, only_five_steps_names_are_exported)
{
    cr_assert(shell("nm -D --defined-only $LIB/libfive_steps.so | grep -v ' five_steps_'") == 1,
              "%s", said);
    cr_assert(shell("nm --defined-only --extern-only $LIB/libfive_steps.a | "
                    "grep ' [A-Z] ' | grep -v ' five_steps_'") == 1, "%s", said);
    cr_assert(shell("nm -D --defined-only $LIB/libfive_steps.so | grep -c ' T five_steps_'")
              == 0 && atoi(said) == 9, "%s", said);
}

/* It never ends the process and never prints.  nvcc's runtime does call some of these. */
Test(install, nothing_that_ends_the_process_or_prints_is_called)
{
    if (SANITIZED) cr_skip_test("a sanitizer's runtime prints");
    if (shell("strings $LIB/libfive_steps.so | grep -q 'no CUDA'"))
        cr_skip_test("the CUDA runtime is part of the library");
    cr_assert(shell("nm -D --undefined-only $LIB/libfive_steps.so | "
                    "grep -wE '_?exit|_Exit|abort|quick_exit|__assert_fail|v?f?printf|puts|"
                    "fputs|perror|stderr|stdout|__v?f?printf_chk'") == 1, "%s", said);
}

Test(install, the_example_is_built_in_c_and_in_cpp_and_runs)
{
    static const char *const compilers[] = {"${CC:-cc} -std=c99", "${CXX:-c++} -x c++ -std=c++11"};
    if (SANITIZED) cr_skip_test("a program without sanitizers cannot load a library with them");
    cr_assert(shell(INSTALL) == 0, "%s", said);
    for (int i = 0; i < 2; i++) {
        cr_assert(shell("%s -Wall -Wextra -Wpedantic -Werror common/library/example/main.c "
                        "-I$D$P/include -L$D$P/lib -lfive_steps -lm -o $D/main && "
                        "LD_LIBRARY_PATH=$D$P/lib $D/main", compilers[i]) == 0, "%s", said);
        cr_expect(strstr(said, "five_steps 1."), "%s", said);
    }
    if (shell("strings $LIB/libfive_steps.so | grep -q 'no CUDA'") == 0)
        cr_assert(shell("${CC:-cc} -I$D$P/include common/library/example/main.c "
                        "$D$P/lib/libfive_steps.a -lm -lgomp -lpthread -o $D/main && $D/main")
                  == 0, "the archive: %s", said);
    if (shell("command -v pkg-config")) cr_skip_test("no pkg-config");
    cr_assert(shell("PREFIX=$D/there sh common/library/install.sh $LIB '-lm -lgomp -lpthread' "
                    "&& export PKG_CONFIG_PATH=$D/there/lib/pkgconfig && "
                    "${CC:-cc} common/library/example/main.c "
                    "$(pkg-config --cflags --libs five_steps) -lm -o $D/main && $D/main") == 0,
              "%s", said);
}
