/* fuzz_npy.c: any bytes as a .npy file (libFuzzer).
 *
 * Whatever the bytes: either an error of one line that names the file, and nothing
 * allocated, or an array whose count is the product of its shape and whose every element
 * can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "problem/half.h"
#include "npy/npy.h"

static void demand(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_npy: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n_bytes)
{
    static int fd = -1;
    static char path[32];
    struct npy a;
    if (fd < 0) fd = memfd_create("fuzz.npy", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    demand(!ftruncate(fd, 0) && pwrite(fd, bytes, n_bytes, 0) == (ssize_t)n_bytes, "no file");
    const char *error = npy_read(path, 0, NULL, &a);
    if (error) {
        demand(!strncmp(error, path, strlen(path)), "the message does not name the file");
        demand(!strchr(error, '\n'), "the message has more than one line");
        demand(!a.data && !a.count, "something is left after an error");
        return 0;
    }
    size_t count = 1;
    volatile float sum = 0;
    for (size_t t = 0; t < a.ndim; t++)
        demand(!a.shape[t] || !__builtin_mul_overflow(count, a.shape[t], &count),
               "the product of shape overflows");
    for (size_t t = 0; t < a.ndim; t++) count *= a.shape[t] != 0;
    demand(count == a.count, "count is not the product of shape");
    for (size_t i = 0; i < count; i++)
        sum += a.dtype == F16 ? half_to_float(((uint16_t *)a.data)[i])
             : ((float *)a.data)[i];
    demand(strlen(npy_describe(&a)) > 4, "no description");
    npy_free(&a);
    return 0;
}
