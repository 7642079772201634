/* npy_write.c: writes NumPy's .npy files so that they appear complete or not at all.
 *
 * Each file is written under another name in the same directory and renamed when all
 * files of the run are complete; rename() replaces the old file in one step.  A full
 * disk, a file size limit or Ctrl-C removes the temporaries and leaves the old files.
 * When a later rename fails, the earlier ones are undone: until the last rename the old
 * file keeps a second name. */
#include "npy/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy_target.h"
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

void npy_writer_abort(struct npy_writer *w, size_t n)
{
    for (size_t t = 0; t < n; t++) {
        temporary_remove(&w[t]);
        free(w[t].target);
        memset(&w[t], 0, sizeof w[t]);
    }
}

const char *npy_writer_begin(struct npy_writer *w, const char *path)
{
    memset(w, 0, sizeof *w);
    w->path = path;
    w->mode = -1;
    const char *error = target_find(w);
    if (!error && !w->direct) {
        target_remove_stale(w);
        int fd = temporary_create(w);
        if (fd < 0)
            error = npy_error("%s: its directory cannot be written to (%s)", path,
                              strerror(errno));
        else close(fd);
        temporary_remove(w);
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
    if (!w->next) return error ? error : write_bytes(fd, w->data, count * sizeof(float));
    const float *data;
    while (!error && (n = w->next(w->context, &data)))
        error = write_bytes(fd, data, n * sizeof(float));
    return error;
}

/* Puts the array into a temporary, or straight into a device.  *lock is a descriptor of
 * the temporary that stays open, and the lock with it. */
static const char *write_file(struct npy_writer *w, int *lock)
{
    int fd = w->direct ? open(w->target, O_WRONLY | O_CLOEXEC) : temporary_create(w);
    if (fd < 0) return npy_error("%s: cannot be written (%s)", w->path, strerror(errno));
    if (!w->direct) *lock = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int error = w->mode >= 0 && !w->direct && fchmod(fd, (mode_t)w->mode) ? errno : 0;
    if (!error) error = write_array(fd, w);
    if (close(fd) && !error) error = errno;
    if (error)
        return npy_error("%s: cannot be written (%s); nothing was changed", w->path,
                         strerror(error));
    return NULL;
}

/* Gives the old file behind w->target a second name, *old; NULL where there is none.
 * Returns 0 or an errno. */
static int keep_old(const struct npy_writer *w, char **old)
{
    *old = NULL;
    for (int try = 0; try < 1000; try++) {
        char *name = target_beside(w, try);
        if (!name) return ENOMEM;
        if (!link(w->target, name)) {
            *old = name;
            return 0;
        }
        int error = errno;
        /* A file system without links, or a file that one may not link to: move it. */
        if (error != EEXIST && error != ENOENT && access(name, F_OK) &&
            !rename(w->target, name)) {
            *old = name;
            return 0;
        }
        free(name);
        if (error != EEXIST) return error == ENOENT ? 0 : error;
    }
    return EEXIST;
}

/* The old file again, or none where none was.  Renaming does nothing where both names are
 * the old file's, hence the unlink. */
static void put_back(const struct npy_writer *w, const char *old)
{
    if (!old || !rename(old, w->target)) unlink(old ? old : w->target);
}

/* Renames the n temporaries in turn; when one fails, undoes those before it. */
static const char *replace(struct npy_writer *w, size_t n)
{
    if (n == 0) return NULL;
    if (w->direct) return replace(w + 1, n - 1);
    char *old = NULL;
    int error = n > 1 ? keep_old(w, &old) : 0;
    if (!error && rename(w->temporary, w->target)) error = errno;
    if (error) {
        if (old) put_back(w, old);
        free(old);
        return npy_error("%s: cannot be replaced (%s); nothing was changed", w->path,
                         strerror(error));
    }
    free(w->temporary);
    w->temporary = NULL;
    const char *why = replace(w + 1, n - 1);
    if (why) put_back(w, old);
    else if (old) unlink(old);
    free(old);
    return why;
}

const char *npy_writer_commit(struct npy_writer *w, size_t n)
{
    struct sigaction before[N_CAUGHT];
    const char *error = NULL;
    int *locks = malloc((n ? n : 1) * sizeof *locks);
    if (!locks) error = npy_error("no memory to write the outputs");
    for (size_t t = 0; locks && t < n; t++) locks[t] = -1;
    for (size_t t = 1; t < n; t++)
        for (size_t other = 0; other < t && !error; other++)
            if (!w[t].direct && !strcmp(w[t].target, w[other].target))
                error = npy_error("%s and %s: two outputs in one file", w[other].path,
                                  w[t].path);
    catch_signals(before);
    for (size_t t = 0; t < n && !error; t++) error = write_file(&w[t], &locks[t]);
    if (!error) error = replace(w, n);
    npy_writer_abort(w, n);
    for (size_t t = 0; locks && t < n; t++)
        if (locks[t] >= 0) close(locks[t]);
    free(locks);
    release_signals(before);
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
