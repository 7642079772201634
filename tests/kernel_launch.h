/* kernel_launch.h: a launch in one line, for tests of the CPU execution of CUDA kernels, and how
 * a misuse is tried: it ends the program, so in a child process, whose exit status must be 1 and
 * whose last words must name kernel, block and thread. */
#pragma once

#include <criterion/criterion.h>

#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "harness.h"

#include "gpu/cuda_check.h"

/* Launches kernel(arguments...) with `blocks` blocks of `threads` threads. */
template <class... P, class... A>
static void launch(unsigned blocks, unsigned threads, size_t shared, void (*kernel)(P...),
                   A... arguments)
{
    const cudaLaunchConfig_t config = {.gridDim = dim3(blocks), .blockDim = dim3(threads),
                                       .dynamicSmemBytes = shared};
    if (shared > 48 << 10)
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)shared));
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

/* Runs f in a child process; expects exit status 1 and each of `words` on stderr. */
template <class F> static void expect_report(F f, std::vector<const char *> words)
{
    int ends[2];
    cr_assert(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        f();
        _exit(0);
    }
    close(ends[1]);
    char text[2048];
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) n += got;
    text[n] = '\0';
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d, said: %s",
              status, text);
    for (const char *word : words)
        cr_expect(strstr(text, word), "'%s' is missing in: %s", word, text);
}

struct numbers {
    float x[256];
};
