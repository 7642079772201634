/* npy_write.c: writes NumPy's .npy files so that they appear complete or not at all.
 *
 * Each file is written under another name in the same directory and renamed when all
 * files of the run are complete; rename() replaces the old file in one step.  A full
 * disk, a file size limit or Ctrl-C removes the temporaries and leaves the old files. */
#define _XOPEN_SOURCE 700
#include "npy/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy_text.h"

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define ORDER '>'
#else
#define ORDER '<'
#endif

static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ };
#define N_CAUGHT (sizeof caught / sizeof caught[0])
#define N_STOPS 3 /* the first three end the program; the others fail a write */

static volatile sig_atomic_t stopped_by;

static void note_signal(int number)
{
    for (size_t t = 0; t < N_STOPS; t++)
        if (caught[t] == number) stopped_by = number;
}

/* Catches the signals that would leave a temporary behind.  Ignored ones stay ignored. */
static void catch_signals(struct sigaction *old)
{
    struct sigaction note = { .sa_handler = note_signal };
    stopped_by = 0;
    for (size_t t = 0; t < N_CAUGHT; t++)
        if (!sigaction(caught[t], &note, &old[t]) && old[t].sa_handler == SIG_IGN)
            sigaction(caught[t], &old[t], NULL);
}

/* Undoes catch_signals() and lets a signal that came meanwhile do its work. */
static void release_signals(const struct sigaction *old)
{
    for (size_t t = 0; t < N_CAUGHT; t++) sigaction(caught[t], &old[t], NULL);
    if (stopped_by) raise(stopped_by);
}

/* target with its directory resolved, so that two names of one file are equal; NULL if
 * there is no such directory (errno). */
static char *resolve(const char *target)
{
    const char *slash = strrchr(target, '/');
    const char *file = slash ? slash + 1 : target;
    char *directory = slash ? strdup(target) : strdup(".");
    if (!directory) return NULL;
    if (slash) directory[slash == target ? 1 : slash - target] = 0;
    char *real = realpath(directory, NULL), *out = NULL;
    free(directory);
    if (real && (out = malloc(strlen(real) + strlen(file) + 2)))
        sprintf(out, "%s%s%s", real, strcmp(real, "/") ? "/" : "", file);
    free(real);
    return out;
}

/* Creates a new empty file beside w->target, named in w->temporary.  Returns its
 * descriptor or -1 (errno). */
static int create_temporary(struct npy_writer *w)
{
    size_t directory = (size_t)(strrchr(w->target, '/') - w->target) + 1;
    w->temporary = malloc(directory + 48);
    for (int try = 0; w->temporary && try < 1000; try++) {
        sprintf(w->temporary, "%.*s.npy-%ld-%d.tmp", (int)directory, w->target,
                (long)getpid(), try);
        int fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) return fd;
        if (errno != EEXIST) break;
    }
    int error = errno;
    free(w->temporary);
    w->temporary = NULL;
    errno = error;
    return -1;
}

static void remove_temporary(struct npy_writer *w)
{
    if (w->temporary) unlink(w->temporary);
    free(w->temporary);
    w->temporary = NULL;
}

void npy_writer_abort(struct npy_writer *w, size_t n)
{
    for (size_t t = 0; t < n; t++) {
        remove_temporary(&w[t]);
        free(w[t].target);
        memset(&w[t], 0, sizeof w[t]);
    }
}

/* Fills in w->target, mode and direct. */
static const char *find_target(struct npy_writer *w)
{
    struct stat about;
    if (!*w->path) return npy_error("'': an output needs a file name, such as o.npy");
    if (stat(w->path, &about)) {
        if (errno == ENOENT) w->target = resolve(w->path);
        if (w->target) return NULL;
        return npy_error("%s: cannot be written (%s); give a file in a directory that "
                         "exists", w->path, strerror(errno));
    }
    if (S_ISDIR(about.st_mode))
        return npy_error("%s: is a directory; give the name of a file in it", w->path);
    if (access(w->path, W_OK))
        return npy_error("%s: exists and cannot be replaced (%s)", w->path,
                         strerror(errno));
    w->direct = !S_ISREG(about.st_mode);
    w->mode = (int)(about.st_mode & 07777);
    w->target = w->direct ? strdup(w->path) : realpath(w->path, NULL);
    if (w->target) return NULL;
    return npy_error("%s: cannot be resolved (%s)", w->path, strerror(errno));
}

const char *npy_writer_begin(struct npy_writer *w, const char *path)
{
    memset(w, 0, sizeof *w);
    w->path = path;
    w->mode = -1;
    const char *error = find_target(w);
    if (!error && !w->direct) {
        int fd = create_temporary(w);
        if (fd < 0)
            error = npy_error("%s: its directory cannot be written to (%s)", path,
                              strerror(errno));
        else close(fd);
        remove_temporary(w);
    }
    if (error) npy_writer_abort(w, 1);
    return error;
}

void npy_writer_set(struct npy_writer *w, size_t ndim, const size_t *shape,
                    const float *data)
{
    w->ndim = ndim;
    w->data = data;
    if (ndim) memcpy(w->shape, shape, ndim * sizeof *shape);
}

/* Writes all n bytes.  Returns 0 or an errno. */
static int write_bytes(int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        size_t step = n - done < (size_t)16 << 20 ? n - done : (size_t)16 << 20;
        ssize_t got = stopped_by ? -1 : write(fd, (const char *)bytes + done, step);
        if (stopped_by) return EINTR;
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
                         ORDER);
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

/* Puts the array into a temporary, or straight into a device. */
static const char *write_file(struct npy_writer *w)
{
    int fd = w->direct ? open(w->target, O_WRONLY | O_CLOEXEC) : create_temporary(w);
    if (fd < 0) return npy_error("%s: cannot be written (%s)", w->path, strerror(errno));
    int error = w->mode >= 0 && !w->direct && fchmod(fd, (mode_t)w->mode) ? errno : 0;
    if (!error) error = write_array(fd, w);
    if (close(fd) && !error) error = errno;
    if (error)
        return npy_error("%s: cannot be written (%s); nothing was changed", w->path,
                         strerror(error));
    return NULL;
}

const char *npy_writer_commit(struct npy_writer *w, size_t n)
{
    struct sigaction old[N_CAUGHT];
    const char *error = NULL;
    for (size_t t = 1; t < n; t++)
        for (size_t other = 0; other < t && !error; other++)
            if (!w[t].direct && !strcmp(w[t].target, w[other].target))
                error = npy_error("%s and %s: two outputs in one file", w[other].path,
                                  w[t].path);
    catch_signals(old);
    for (size_t t = 0; t < n && !error; t++) error = write_file(&w[t]);
    for (size_t t = 0; t < n && !error; t++) {
        if (w[t].direct) continue;
        if (rename(w[t].temporary, w[t].target)) {
            error = npy_error("%s: cannot be replaced (%s)", w[t].path, strerror(errno));
            break;
        }
        free(w[t].temporary);
        w[t].temporary = NULL;
    }
    npy_writer_abort(w, n);
    release_signals(old);
    return error;
}

const char *npy_write_f32(const char *path, size_t ndim, const size_t *shape,
                          const float *data)
{
    struct npy_writer w;
    const char *error = npy_writer_begin(&w, path);
    if (error) return error;
    npy_writer_set(&w, ndim, shape, data);
    return npy_writer_commit(&w, 1);
}
