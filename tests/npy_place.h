/* npy_place.h: .npy files in memory and in a directory of the test's own. */
#ifndef NPY_PLACE_H
#define NPY_PLACE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "problem/half.h"
#include "npy/npy.h"

/* A file in memory: magic, version, header with its length, n_data bytes of data. */
static inline size_t make(unsigned char *to, int major, const char *header, const void *data,
                   size_t n_data)
{
    size_t length = strlen(header), n = major == 1 ? 10 : 12;
    memcpy(to, "\x93NUMPY", 6);
    to[6] = (unsigned char)major, to[7] = 0;
    for (size_t t = 8; t < n; t++) to[t] = (unsigned char)(length >> 8 * (t - 8));
    memcpy(to + n, header, length);
    if (n_data) memcpy(to + n + length, data, n_data);
    return n + length + n_data;
}

static const float six[6] = { 0, 1, 2, 3, 4, 5 };

#define DICT(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}"
#define F4 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"

static char place[64]; /* a directory of this test's own */

static inline void make_place(void)
{
    strcpy(place, "/tmp/test_npy.XXXXXX");
    cr_assert(mkdtemp(place));
    cr_assert(!chdir(place));
}

static inline void remove_place(void)
{
    char command[192];
    snprintf(command, sizeof command, "chmod -R u+w %s && rm -rf %s", place, place);
    cr_assert(!chdir("/") && !system(command));
}

/* Entries of the test's directory, . and .. left out. */
static inline int n_files(void)
{
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static inline void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

#endif
