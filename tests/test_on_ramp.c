/* The on-ramp: its four programs are right, say so when they are not, and stay small. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RAMP "01_naive/gpu/on_ramp"
enum { MOST_KERNEL_LINES = 40 };

/* Exit status of a command; what it prints is in text. */
static int run(const char *command, char *text, size_t size)
{
    FILE *f = popen(command, "r");
    cr_assert(f);
    size_t n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

Test(on_ramp, every_program_is_right)
{
    static const char *const names[] = {"1_threads", "2_block", "3_warp", "4_coalescing"};
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char command[256], text[4096];
        snprintf(command, sizeof command, "%s/on_ramp/%s 2>&1", build, names[i]);
        int status = run(command, text, sizeof text);
        cr_expect(status == 0 && strstr(text, "right: all") && !strstr(text, "WRONG"),
                  "%s: exit status %d: %s", names[i], status, text);
    }
}

/* A program with one line changed, compiled and run. */
static void expect_wrong(const char *name, const char *sed)
{
    char place[] = "/tmp/test_on_ramp.XXXXXX", command[1024], text[4096];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    cr_assert(mkdtemp(place));
    snprintf(command, sizeof command,
             "sed '%s' " RAMP "/%s.cu > %s/x.cu && ! cmp -s " RAMP "/%s.cu %s/x.cu && "
             "c++ -x c++ -std=c++20 -D_GNU_SOURCE -w -O1 -fopenmp -Icommon -I" RAMP
             " %s/x.cu -x none %s/obj/common/cuda_on_cpu/executor.o -lm -lpthread -o %s/x "
             "2>&1", sed, name, place, name, place, place, build, place);
    int status = run(command, text, sizeof text);
    cr_expect(status == 0, "%s with '%s' does not compile: %s", name, sed, text);
    snprintf(command, sizeof command, "%s/x 2>&1", place);
    status = run(command, text, sizeof text);
    cr_expect(status == 1, "%s with '%s': exit status %d: %s", name, sed, status, text);
    snprintf(command, sizeof command, "rm -rf %s", place);
    run(command, text, sizeof text);
}

Test(on_ramp, a_mistake_in_a_kernel_is_seen, .timeout = 900)
{
    /* an executor built for a sanitizer links with that sanitizer only */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip("the executor is built for a sanitizer");
#endif
    expect_wrong("1_threads", "s/y\\[i\\] = expf(x\\[i\\])/y[i] = x[i]/");
    expect_wrong("2_block", "/__syncthreads(); .. all 256/d");
    expect_wrong("3_warp", "s|away = WARP / 2|away = WARP / 4|");
    expect_wrong("4_coalescing", "s/(size_t)i \\* stride;/(size_t)i;/");
}

/* A newcomer reads a kernel at one glance. */
Test(on_ramp, a_kernel_has_at_most_40_lines)
{
    glob_t list;
    cr_assert(glob(RAMP "/*.cu", 0, NULL, &list) == 0 && list.gl_pathc == 4);
    for (size_t i = 0; i < list.gl_pathc; i++) {
        FILE *f = fopen(list.gl_pathv[i], "r");
        char line[256];
        int lines = 0, kernels = 0, inside = 0;
        while (fgets(line, sizeof line, f)) {
            if (strstr(line, "__global__ void")) kernels++, inside = 1;
            lines += inside;
            if (line[0] == '}') inside = 0;
        }
        fclose(f);
        cr_expect(kernels == 1 && lines <= MOST_KERNEL_LINES, "%s: %d kernels, %d lines",
                  list.gl_pathv[i], kernels, lines);
    }
    globfree(&list);
}

Test(on_ramp, the_first_lesson_names_it_before_the_first_gpu_file)
{
    static char text[1 << 16];
    FILE *f = fopen("01_naive/README.md", "r");
    cr_assert(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    const char *page = strstr(text, "notes/gpu_on_ramp.md"), *file = strstr(text, ".cu");
    cr_expect(page && file && page < file, "01_naive/README.md: link the on-ramp before a .cu");
}
