/* npy_write.c: writes NumPy's .npy files so that each appears complete or not at all: under
 * another name in the same directory, and renamed when all files of the run are complete.  A
 * full disk, a limit on the size of files or Ctrl-C removes the temporaries and leaves the
 * old files. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy.h"

/* The files that are being written: a signal must remove their temporaries. */
static struct npy_writer *volatile writing;
static volatile size_t n_writing;

static void remove_temporaries(int number)
{
    for (size_t i = 0; i < n_writing; i++)
        if (writing[i].temporary) unlink(writing[i].temporary);
    signal(number, SIG_DFL);
    raise(number);
}

void npy_writer_abort(struct npy_writer *w, size_t n)
{
    for (size_t t = 0; t < n; t++) {
        free(w[t].temporary);
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

/* Fills in the target, and the temporary beside it. */
static const char *find_target(struct npy_writer *w)
{
    static unsigned n_targets;
    struct stat about;
    int exists = !stat(w->path, &about);
    if (!*w->path) return npy_error("'': an output needs a file name, such as o.npy");
    if (exists && S_ISDIR(about.st_mode))
        return npy_error("%s: is a directory; give the name of a file in it", w->path);
    if (!exists && !lstat(w->path, &about))
        return npy_error("%s: is a link to nothing; give the name of a file", w->path);
    if (exists && access(w->path, W_OK))
        return npy_error("%s: exists and cannot be replaced (%s)", w->path, strerror(errno));
    int direct = exists && !S_ISREG(about.st_mode);
    w->mode = exists ? (int)(about.st_mode & 07777) : -1;
    w->target = direct ? strdup(w->path) : resolve(w->path);
    if (!w->target)
        return npy_error("%s: cannot be written (%s); give a file in a directory that exists",
                         w->path, strerror(errno));
    const char *name = strrchr(w->target, '/') + 1;
    int length = (int)(name - w->target);
    if (direct || asprintf(&w->temporary, "%.*s.%.200s.%ld.%u.tmp", length, w->target, name,
                           (long)getpid(), n_targets++) > 0)
        return NULL;
    w->temporary = NULL;
    return npy_error("%s: no memory for its name", w->path);
}

/* Creates the temporary, or opens a device or pipe; its descriptor or -1 (errno). */
static int create(const struct npy_writer *w)
{
    if (!w->temporary) return open(w->target, O_WRONLY | O_CLOEXEC);
    unlink(w->temporary); /* of a process of this number that was killed */
    return open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

const char *npy_writer_begin(struct npy_writer *w, const char *path)
{
    *w = (struct npy_writer){.path = path};
    const char *error = find_target(w);
    int fd = error || !w->temporary ? 0 : create(w);
    if (fd < 0)
        error = npy_error("%s: its directory cannot be written to (%s)", path, strerror(errno));
    if (fd > 0) close(fd), unlink(w->temporary);
    if (error) npy_writer_abort(w, 1);
    return error;
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
    char head[64 + 24 * (NPY_MAX_DIMS + 2)];
    size_t count = 1, n = 10;
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    n += (size_t)sprintf(head + n, "{'descr': '%cf4', 'fortran_order': False, 'shape': (",
                         IS_BIG_ENDIAN ? '>' : '<');
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
    return error ? error : write_bytes(fd, w->data, count * sizeof(float));
}

static const char *write_file(const struct npy_writer *w)
{
    int fd = create(w);
    if (fd < 0) return npy_error("%s: cannot be written (%s)", w->path, strerror(errno));
    int error = w->mode >= 0 && w->temporary && fchmod(fd, (mode_t)w->mode) ? errno : 0;
    if (!error) error = write_array(fd, w);
    if (close(fd) && !error) error = errno;
    if (!error) return NULL;
    return npy_error("%s: cannot be written (%s); nothing was changed", w->path, strerror(error));
}

const char *npy_writer_commit(struct npy_writer *w, size_t n)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    const char *error = NULL;
    writing = w, n_writing = n;
    signal(SIGXFSZ, SIG_IGN); /* it fails a write */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (signal(ends[i], remove_temporaries) == SIG_IGN) signal(ends[i], SIG_IGN);
    for (size_t t = 0; t < n && !error; t++)
        if (w[t].path) error = write_file(&w[t]);
    for (size_t t = 0; t < n && !error; t++)
        if (w[t].temporary && rename(w[t].temporary, w[t].target))
            error = npy_error("%s: cannot be replaced (%s)", w[t].path, strerror(errno));
    for (size_t t = 0; t < n; t++)
        if (w[t].temporary) unlink(w[t].temporary); /* what has not become the target */
    n_writing = 0;
    npy_writer_abort(w, n);
    return error;
}
