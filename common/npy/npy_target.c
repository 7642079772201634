/* npy_target.c: the file behind the path of an output, and the temporaries beside it.
 *
 * The temporaries of o.npy are named .o.npy.PID-N.tmp.  Their writer holds a lock on them
 * as long as it lives, so that the next writer of o.npy knows which ones a killed run left
 * behind, and removes those. */
#include "npy/npy_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy_text.h"

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

void target_remove_stale(const struct npy_writer *w)
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

char *target_beside(const struct npy_writer *w, int try)
{
    size_t directory = directory_length(w);
    char *name = malloc(directory + NAME_LENGTH + 48);
    if (name)
        sprintf(name, "%.*s.%.*s.%ld-%d.tmp", (int)directory, w->target, (int)NAME_LENGTH,
                w->target + directory, (long)getpid(), try);
    return name;
}

int temporary_create(struct npy_writer *w)
{
    struct stat about;
    for (int try = 0; try < 1000 && (w->temporary = target_beside(w, try)); try++) {
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

void temporary_remove(struct npy_writer *w)
{
    if (w->temporary) unlink(w->temporary);
    free(w->temporary);
    w->temporary = NULL;
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

const char *target_find(struct npy_writer *w)
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
