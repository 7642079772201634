/* npy_write.c: writes NumPy's .npy files so that they appear complete or not at all.
 *
 * Each file is written under another name in the same directory and renamed when all
 * files of the run are complete; rename() replaces the old file in one step.  A full
 * disk, a file size limit or Ctrl-C removes the temporaries and leaves the old files.
 * When a later rename fails, the earlier ones are undone: until the last rename the old
 * file keeps a second name.
 *
 * The temporaries of o.npy are named .o.npy.PID-N.tmp.  Their writer holds a lock on them
 * as long as it lives, so that the next writer of o.npy knows which ones a killed run left
 * behind, and removes those. */
#include "npy/npy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

/* The file that path names when symbolic links that lead nowhere yet are followed too: what
 * open(path, O_CREAT) would create.  NULL with errno when it has no directory. */
static char *follow(const char *path)
{
    char *at = strdup(path), link[4096];
    for (int hops = 0; at; hops++) {
        char *file = resolve(at);
        free(at);
        ssize_t n = file ? readlink(file, link, sizeof link - 1) : -1;
        if (!file || n < 0) return file;
        link[n] = 0;
        errno = ELOOP;
        size_t directory = link[0] == '/' ? 0 : (size_t)(strrchr(file, '/') - file) + 1;
        at = hops < 40 ? malloc(directory + (size_t)n + 1) : NULL;
        if (at) sprintf(at, "%.*s%s", (int)directory, file, link);
        free(file);
    }
    return NULL;
}

enum { NAME_LENGTH = 200 }; /* of the target in a temporary's name, so that it stays a name */

/* The directory of w->target, with its slash, and the target's name in it. */
static size_t directory_length(const struct npy_writer *w)
{
    return (size_t)(strrchr(w->target, '/') - w->target) + 1;
}

/* Is this the name of a temporary of w->target: .NAME.PID-N.tmp? */
static int is_temporary(const struct npy_writer *w, const char *name)
{
    const char *target = w->target + directory_length(w);
    size_t n = strlen(target) < NAME_LENGTH ? strlen(target) : NAME_LENGTH;
    int digits = 0;
    if (name[0] != '.' || strncmp(name + 1, target, n)) return 0;
    sscanf(name + 1 + n, ".%*[0-9]-%*[0-9].tmp%n", &digits);
    return digits > 0 && !name[1 + n + (size_t)digits];
}

/* Removes the temporaries that killed runs of this user left for this target: those that
 * no process holds a lock on. */
static void remove_stale(const struct npy_writer *w)
{
    char *directory = strndup(w->target, directory_length(w));
    DIR *all = directory ? opendir(directory) : NULL;
    for (struct dirent *e; all && (e = readdir(all));) {
        struct stat about;
        if (!is_temporary(w, e->d_name)) continue;
        int fd = openat(dirfd(all), e->d_name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
            !flock(fd, LOCK_EX | LOCK_NB))
            unlinkat(dirfd(all), e->d_name, 0);
        close(fd);
    }
    if (all) closedir(all);
    free(directory);
}

/* A name beside w->target that no file has yet, for try number `try`. */
static char *beside(const struct npy_writer *w, int try)
{
    size_t directory = directory_length(w);
    char *name = malloc(directory + NAME_LENGTH + 48);
    if (name)
        sprintf(name, "%.*s.%.*s.%ld-%d.tmp", (int)directory, w->target, (int)NAME_LENGTH,
                w->target + directory, (long)getpid(), try);
    return name;
}

/* Creates a new empty file beside w->target, named in w->temporary and locked.  Returns its
 * descriptor or -1 (errno). */
static int create_temporary(struct npy_writer *w)
{
    struct stat about;
    for (int try = 0; try < 1000 && (w->temporary = beside(w, try)); try++) {
        int fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        /* Before the lock another run may have taken the file for a stale one. */
        if (fd >= 0 && (flock(fd, LOCK_EX) || (!fstat(fd, &about) && about.st_nlink)))
            return fd;
        int error = errno;
        if (fd >= 0) close(fd);
        free(w->temporary);
        w->temporary = NULL;
        errno = error;
        if (fd < 0 && error != EEXIST) break;
    }
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

/* May a file of this directory that is not ours be replaced? */
static int sticky_forbids(const struct npy_writer *w, const struct stat *file)
{
    struct stat about;
    char *directory = strndup(w->target, directory_length(w));
    int forbids = directory && !stat(directory, &about) && about.st_mode & S_ISVTX &&
                  geteuid() != 0 && geteuid() != file->st_uid && geteuid() != about.st_uid;
    free(directory);
    return forbids;
}

/* Fills in w->target, mode and direct. */
static const char *find_target(struct npy_writer *w)
{
    struct stat about;
    if (!*w->path) return npy_error("'': an output needs a file name, such as o.npy");
    if (stat(w->path, &about)) {
        if (errno == ENOENT) w->target = follow(w->path);
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
    if (!w->target) return npy_error("%s: cannot be resolved (%s)", w->path, strerror(errno));
    if (!w->direct && sticky_forbids(w, &about))
        return npy_error("%s: exists and cannot be replaced (its directory is sticky and the "
                         "file is another user's)", w->path);
    return NULL;
}

const char *npy_writer_begin(struct npy_writer *w, const char *path)
{
    memset(w, 0, sizeof *w);
    w->path = path;
    w->mode = -1;
    const char *error = find_target(w);
    if (!error && !w->direct) {
        remove_stale(w);
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

/* Puts the array into a temporary, or straight into a device.  *lock is a descriptor of
 * the temporary that stays open, and the lock with it. */
static const char *write_file(struct npy_writer *w, int *lock)
{
    int fd = w->direct ? open(w->target, O_WRONLY | O_CLOEXEC) : create_temporary(w);
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
        char *name = beside(w, try);
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
