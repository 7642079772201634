/* npy_write.c: writes NumPy's .npy files so that each appears complete or not at all: under
 * another name in the same directory, and renamed when all files of the run are complete.  A
 * full disk, a limit on the size of files or Ctrl-C removes the temporaries and leaves the
 * old files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy.h"

enum { MOST_FILES = 16 };
static char *volatile temporaries[MOST_FILES]; /* that a signal must remove */

static void remove_temporaries(int number)
{
    for (int i = 0; i < MOST_FILES; i++)
        if (temporaries[i]) unlink(temporaries[i]);
    signal(number, SIG_DFL);
    raise(number);
}

/* Creates a new empty file beside w->target; its descriptor or -1 (errno). */
static int temporary_create(struct npy_writer *w)
{
    const char *name = strrchr(w->target, '/') + 1;
    if (asprintf(&w->temporary, "%.*s.%.200s.%ld.tmp", (int)(name - w->target), w->target, name,
                 (long)getpid()) < 0) {
        w->temporary = NULL;
        return -1;
    }
    unlink(w->temporary); /* of a process of this number that was killed */
    for (int i = 0; i < MOST_FILES; i++)
        if (!temporaries[i]) {
            temporaries[i] = w->temporary;
            break;
        }
    return open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static void temporary_forget(struct npy_writer *w)
{
    for (int i = 0; i < MOST_FILES; i++)
        if (temporaries[i] && temporaries[i] == w->temporary) temporaries[i] = NULL;
    free(w->temporary);
    w->temporary = NULL;
}

void npy_writer_abort(struct npy_writer *w, size_t n)
{
    for (size_t t = 0; t < n; t++) {
        if (w[t].temporary) unlink(w[t].temporary);
        temporary_forget(&w[t]);
        free(w[t].target);
        memset(&w[t], 0, sizeof w[t]);
    }
}

/* The file behind path, with its directory resolved so that two names of one file are equal;
 * NULL (errno) when there is no such directory. */
static char *resolve(const char *path)
{
    char *real = realpath(path, NULL), *out = NULL;
    if (real || errno != ENOENT) return real;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *directory = slash ? strndup(path, (size_t)(name - path)) : strdup(".");
    real = directory && *name ? realpath(directory, NULL) : NULL;
    if (real && asprintf(&out, "%s/%s", real, name) < 0) out = NULL;
    free(directory);
    free(real);
    return out;
}

/* Fills in w->target, mode and direct. */
static const char *find_target(struct npy_writer *w)
{
    struct stat about;
    int exists = !stat(w->path, &about);
    if (!*w->path) return npy_error("'': an output needs a file name, such as o.npy");
    if (exists && S_ISDIR(about.st_mode))
        return npy_error("%s: is a directory; give the name of a file in it", w->path);
    if (!exists && !lstat(w->path, &about))
        return npy_error("%s: is a link to nothing; give the name of a file", w->path);
    if (exists && access(w->path, W_OK))
        return npy_error("%s: exists and cannot be replaced (%s)", w->path, strerror(errno));
    w->direct = exists && !S_ISREG(about.st_mode);
    w->mode = exists ? (int)(about.st_mode & 07777) : -1;
    w->target = w->direct ? strdup(w->path) : resolve(w->path);
    if (w->target) return NULL;
    return npy_error("%s: cannot be written (%s); give a file in a directory that exists",
                     w->path, strerror(errno));
}

const char *npy_writer_begin(struct npy_writer *w, const char *path)
{
    *w = (struct npy_writer){.path = path};
    const char *error = find_target(w);
    if (!error && !w->direct) {
        int fd = temporary_create(w);
        if (fd < 0)
            error = npy_error("%s: its directory cannot be written to (%s)", path,
                              strerror(errno));
        else close(fd);
        if (w->temporary) unlink(w->temporary);
        temporary_forget(w);
    }
    if (error) npy_writer_abort(w, 1);
    return error;
}

void npy_writer_set(struct npy_writer *w, size_t ndim, const size_t *shape, const float *data)
{
    w->ndim = ndim;
    w->data = data;
    if (ndim) memcpy(w->shape, shape, ndim * sizeof *shape);
}

void npy_writer_stream(struct npy_writer *w, size_t ndim, const size_t *shape,
                       size_t (*next)(void *context, const float **data), void *context)
{
    npy_writer_set(w, ndim, shape, NULL);
    w->next = next;
    w->context = context;
}

/* Writes all n bytes.  Returns 0 or an errno. */
static int write_bytes(int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        size_t step = n - done < (size_t)16 << 20 ? n - done : (size_t)16 << 20;
        ssize_t got = write(fd, (const char *)bytes + done, step);
        if (got < 0 && errno != EINTR) return errno;
        if (got > 0) done += (size_t)got;
    }
    return 0;
}

/* Writes magic, version 1.0, header, padded to a multiple of 64 bytes, and the data. */
static int write_array(int fd, const struct npy_writer *w)
{
    const char order = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? '>' : '<';
    char head[64 + 24 * (NPY_MAX_DIMS + 2)];
    size_t count = 1, n = 10;
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    n += (size_t)sprintf(head + n, "{'descr': '%cf4', 'fortran_order': False, 'shape': (", order);
    for (size_t t = 0; t < w->ndim; t++) {
        n += (size_t)sprintf(head + n, "%s%zu", t ? ", " : "", w->shape[t]);
        count *= w->shape[t];
    }
    n += (size_t)sprintf(head + n, "%s), }", w->ndim == 1 ? "," : "");
    while (n % 64 != 63) head[n++] = ' ';
    head[n++] = '\n';
    head[8] = (char)((n - 10) & 0xff);
    head[9] = (char)((n - 10) >> 8);
    int error = write_bytes(fd, head, n);
    if (!w->next) return error ? error : write_bytes(fd, w->data, count * sizeof(float));
    const float *data;
    while (!error && (n = w->next(w->context, &data)))
        error = write_bytes(fd, data, n * sizeof(float));
    return error;
}

/* Puts the array into a temporary, or straight into a device. */
static const char *write_file(struct npy_writer *w)
{
    int fd = w->direct ? open(w->target, O_WRONLY | O_CLOEXEC) : temporary_create(w);
    if (fd < 0) return npy_error("%s: cannot be written (%s)", w->path, strerror(errno));
    int error = w->mode >= 0 && !w->direct && fchmod(fd, (mode_t)w->mode) ? errno : 0;
    if (!error) error = write_array(fd, w);
    if (close(fd) && !error) error = errno;
    if (!error) return NULL;
    return npy_error("%s: cannot be written (%s); nothing was changed", w->path, strerror(error));
}

const char *npy_writer_commit(struct npy_writer *w, size_t n)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    enum { N_CAUGHT = sizeof caught / sizeof *caught, N_STOPS = 3 }; /* others fail a write */
    struct sigaction before[N_CAUGHT], with = {.sa_handler = remove_temporaries};
    const char *error = NULL;
    for (size_t t = 1; t < n && !error; t++)
        for (size_t k = 0; k < t && !w[t].direct; k++)
            if (!strcmp(w[t].target, w[k].target))
                error = npy_error("%s and %s: two outputs in one file", w[k].path, w[t].path);
    for (int i = 0; i < N_CAUGHT; i++) {
        if (i == N_STOPS) with.sa_handler = SIG_IGN;
        sigaction(caught[i], &with, &before[i]);
        if (before[i].sa_handler == SIG_IGN) sigaction(caught[i], &before[i], NULL);
    }
    for (size_t t = 0; t < n && !error; t++) error = write_file(&w[t]);
    for (size_t t = 0; t < n && !error; t++) {
        if (w[t].direct) continue;
        if (rename(w[t].temporary, w[t].target))
            error = npy_error("%s: cannot be replaced (%s)", w[t].path, strerror(errno));
        else temporary_forget(&w[t]);
    }
    npy_writer_abort(w, n);
    for (int i = 0; i < N_CAUGHT; i++) sigaction(caught[i], &before[i], NULL);
    return error;
}

const char *npy_write_f32(const char *path, size_t ndim, const size_t *shape, const float *data)
{
    struct npy_writer w;
    const char *error = npy_writer_begin(&w, path);
    if (error) return error;
    npy_writer_set(&w, ndim, shape, data);
    return npy_writer_commit(&w, 1);
}
