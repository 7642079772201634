/* npy_source.c: reads the bytes of an array, all of them or some rows. */
#define _XOPEN_SOURCE 700
#include "npy/npy_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy/npy_text.h"

#define CHUNK ((size_t)64 << 20) /* bytes by which an array of unknown size grows */

size_t source_read(struct source *s, void *to, size_t n)
{
    size_t done = 0;
    if (s->fd < 0) {
        done = n < s->left ? n : s->left;
        if (done) memcpy(to, s->bytes, done);
        s->bytes += done;
    }
    while (s->fd >= 0 && done < n) {
        size_t want = n - done < CHUNK ? n - done : CHUNK;
        ssize_t got = read(s->fd, (char *)to + done, want);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) s->error = errno;
        if (got <= 0) break;
        done += (size_t)got;
    }
    if (s->left != SIZE_MAX) s->left -= done < s->left ? done : s->left;
    return done;
}

/* Bytes of memory that this process can hope for; SIZE_MAX if unknown. */
static size_t memory_there(void)
{
    size_t best = SIZE_MAX;
    unsigned long long n;
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &n) == 1) best = (size_t)n * 1024;
    if (f) fclose(f);
    f = fopen("/sys/fs/cgroup/memory.max", "r");
    if (f && fscanf(f, "%llu", &n) == 1 && n < best) best = (size_t)n;
    if (f) fclose(f);
    return best;
}

const char *source_data(struct source *s, size_t bytes, unsigned char **out)
{
    int known = s->left != SIZE_MAX;
    if (known && s->left != bytes)
        return npy_error("%s: shape needs %zu bytes of data, the file has %zu%s", s->name,
                         bytes, s->left,
                         s->left < bytes ? " (cut off?)" : " (more than one array?)");
    size_t done = 0, room = 0, there = bytes < CHUNK ? SIZE_MAX : memory_there();
    unsigned char *data = NULL;
    while (done < bytes || !data) {
        size_t step = room ? room : CHUNK;
        room = known || bytes - room < step ? bytes : room + step;
        unsigned char *bigger = room > there ? NULL : realloc(data, room ? room : 1);
        if (!bigger) {
            free(data);
            return npy_error("%s: needs %.1f GiB of memory, more than there is", s->name,
                             (double)bytes / (1 << 30));
        }
        data = bigger;
        size_t got = source_read(s, data + done, room - done);
        if (got < room - done) {
            free(data);
            if (s->error) return npy_error("%s: %s", s->name, strerror(s->error));
            return npy_error("%s: shape needs %zu bytes of data, the file has %zu "
                             "(cut off?)", s->name, bytes, done + got);
        }
        done += got;
    }
    unsigned char beyond;
    if (source_read(s, &beyond, 1)) {
        free(data);
        return npy_error("%s: has more data than its shape needs (more than one array?)",
                         s->name);
    }
    *out = data;
    return NULL;
}

const char *source_rows(struct source *s, struct header *h, unsigned char **out)
{
    struct rows rows = *s->rows;
    size_t n = h->ndim < 2 ? 0 : h->shape[h->ndim - 2], count, bytes, done = 0;
    off_t at = lseek(s->fd, 0, SEEK_CUR);
    if (h->ndim < 2 || rows.end > n || rows.first > rows.end)
        return npy_error("%s: has no rows %zu to %zu", s->name, rows.first, rows.end);
    if (h->fortran || at < 0 || s->left == SIZE_MAX)
        return npy_error("%s: is %s; to read a part of it, a file in C order is needed",
                         s->name, h->fortran ? "in Fortran order" : "no regular file");
    const char *error = header_measure(s->name, h, &count, &bytes);
    if (!error && s->left != bytes)
        error = npy_error("%s: shape needs %zu bytes of data, the file has %zu", s->name,
                          bytes, s->left);
    if (error) return error;
    size_t row = n && count ? bytes / (count / h->shape[h->ndim - 1]) : 0;
    size_t planes = row ? bytes / row / n : 0, part = (rows.end - rows.first) * row;
    h->shape[h->ndim - 2] = rows.end - rows.first;
    s->rows_there = n;
    unsigned char *data = malloc(planes * part > 0 ? planes * part : 1);
    if (!data) return npy_error("%s: no memory for rows %zu to %zu", s->name, rows.first,
                                rows.end);
    while (done < planes * part) {
        size_t plane = done / part, within = done % part;
        off_t from = at + (off_t)(plane * n * row + rows.first * row + within);
        ssize_t got = pread(s->fd, data + done, part - within, from);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            free(data);
            return npy_error("%s: %s", s->name, got ? strerror(errno) : "cut off?");
        }
        done += (size_t)got;
    }
    *out = data;
    return NULL;
}
