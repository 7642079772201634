/* test_npy_failure.c: a .npy file appears complete or not at all, whatever stops the writer. */
#include "npy_place.h"

TestSuite(npy_failure, .init = make_place, .fini = remove_place);

/* Runs part() as another user where the tests run as root, who may write anywhere. */
static int as_user(int (*part)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (!getuid() && (chown(place, 65534, 65534) || setgid(65534) || setuid(65534)))
            _exit(99);
        _exit(part());
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int read_only_part(void)
{
    struct npy_writer w;
    write_bytes("old.npy", "old", 3);
    if (chmod("old.npy", 0444)) return 1;
    if (!npy_writer_begin(&w, "old.npy")) return 2; /* a read-only file is not replaced */
    if (chmod(".", 0555)) return 3;
    const char *error = npy_writer_begin(&w, "new.npy");
    return error && strstr(error, "new.npy") ? 0 : 4;
}

Test(npy_failure, read_only_directory_and_file_are_refused)
{
    int status = as_user(read_only_part);
    cr_assert(status == 0, "part %d", status);
}

/* The disk is full: here, a limit on the size of files, which gives EFBIG instead of a
 * signal.  Of two outputs the second does not fit; both old files must survive. */
static int full_disk_part(void)
{
    const size_t small[1] = { 6 }, big[1] = { 1 << 16 };
    static float data[1 << 16];
    struct rlimit limit = { 4096, 4096 };
    struct npy_writer w[2];
    write_bytes("o.npy", "old", 3);
    write_bytes("lse.npy", "older", 5);
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 1;
    if (npy_writer_begin(&w[0], "o.npy") || npy_writer_begin(&w[1], "lse.npy")) return 2;
    npy_writer_set(&w[0], 1, small, six);
    npy_writer_set(&w[1], 1, big, data);
    const char *error = npy_writer_commit(w, 2);
    if (!error || !strstr(error, "lse.npy")) return 3;
    struct stat about;
    if (stat("o.npy", &about) || about.st_size != 3) return 4;
    if (stat("lse.npy", &about) || about.st_size != 5) return 5;
    return n_files() == 2 ? 0 : 6;
}

Test(npy_failure, full_disk_leaves_old_files_and_no_temporaries)
{
    int status = as_user(full_disk_part);
    cr_assert(status == 0, "part %d", status);
    const size_t shape[1] = { 6 };
    const char *error = npy_write_f32("/dev/full", 1, shape, six);
    cr_assert(error && strstr(error, "/dev/full"), "%s", error);
}

/* Ctrl-C while the outputs are written into a pipe that nobody empties. */
Test(npy_failure, interrupt_while_writing_leaves_nothing)
{
    const size_t shape[1] = { 1 << 20 };
    write_bytes("o.npy", "old", 3);
    cr_assert(!mkfifo("stuck", 0600));
    pid_t child = fork();
    if (child == 0) {
        static float data[1 << 20];
        struct npy_writer w[2];
        signal(SIGINT, SIG_DFL);
        if (npy_writer_begin(&w[0], "o.npy") || npy_writer_begin(&w[1], "stuck"))
            _exit(1);
        npy_writer_set(&w[0], 1, shape, data);
        npy_writer_set(&w[1], 1, shape, data);
        npy_writer_commit(w, 2);
        _exit(2);
    }
    int fd = open("stuck", O_RDONLY), status;
    char byte;
    cr_assert(read(fd, &byte, 1) == 1); /* o.npy's temporary is complete by now */
    cr_expect(n_files() == 3, "no temporary: the test tests nothing");
    kill(child, SIGINT);
    waitpid(child, &status, 0);
    close(fd);
    struct stat about;
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "status %x", status);
    cr_assert(n_files() == 2 && !stat("o.npy", &about) && about.st_size == 3);
}

Test(npy_failure, two_outputs_in_one_file_are_refused)
{
    const size_t shape[1] = { 6 };
    struct npy_writer w[2];
    cr_assert(!npy_writer_begin(&w[0], "o.npy") && !npy_writer_begin(&w[1], "./o.npy"));
    npy_writer_set(&w[0], 1, shape, six);
    npy_writer_set(&w[1], 1, shape, six);
    cr_assert(npy_writer_commit(w, 2) && n_files() == 0);
}

/* open(path, O_CREAT) creates the file that a link names, and so do we. */
Test(npy_failure, dangling_links_are_followed)
{
    const size_t shape[1] = { 6 };
    struct stat about;
    cr_assert(!mkdir("directory", 0755) && !symlink("directory/real.npy", "first.npy") &&
              !symlink("first.npy", "second.npy") && !symlink("loop.npy", "loop.npy") &&
              !symlink("missing/real.npy", "lost.npy"));
    const char *error = npy_write_f32("second.npy", 1, shape, six);
    cr_assert(!error, "%s", error);
    cr_expect(!lstat("second.npy", &about) && S_ISLNK(about.st_mode), "a link is gone");
    cr_expect(!lstat("first.npy", &about) && S_ISLNK(about.st_mode), "a link is gone");
    cr_expect(!lstat("directory/real.npy", &about) && about.st_size == 128 + 24);
    cr_expect(npy_write_f32("loop.npy", 1, shape, six) != NULL);
    cr_expect(npy_write_f32("lost.npy", 1, shape, six) != NULL);
    cr_expect(n_files() == 5);
}

/* Renames o.npy, then cannot rename lse.npy, which has become a directory. */
static void fail_the_second_rename(void)
{
    const size_t shape[1] = { 6 };
    struct npy_writer w[2];
    cr_assert(!npy_writer_begin(&w[0], "o.npy") && !npy_writer_begin(&w[1], "lse.npy"));
    npy_writer_set(&w[0], 1, shape, six);
    npy_writer_set(&w[1], 1, shape, six);
    cr_assert(!mkdir("lse.npy", 0755));
    const char *error = npy_writer_commit(w, 2);
    cr_assert(error && strstr(error, "lse.npy"), "%s", error);
    cr_assert(!rmdir("lse.npy"));
}

Test(npy_failure, failure_of_the_second_rename_undoes_the_first)
{
    struct stat about;
    fail_the_second_rename();
    cr_expect(n_files() == 0, "o.npy appeared without lse.npy");
    write_bytes("o.npy", "old", 3);
    fail_the_second_rename();
    cr_expect(!stat("o.npy", &about) && about.st_size == 3, "the old o.npy is gone");
    cr_expect(about.st_nlink == 1 && n_files() == 1, "a second name of it is left");
}

/* In a sticky directory only its owner replaces a file. */
Test(npy_failure, another_users_file_in_a_sticky_directory_is_refused)
{
    if (geteuid()) cr_skip_test("only root can make another user's file");
    cr_assert(!mkdir("sticky", 0777) && !chmod("sticky", 01777) && !chmod(".", 0777));
    write_bytes("sticky/root.npy", "old", 3);
    cr_assert(!chmod("sticky/root.npy", 0666));
    pid_t child = fork();
    if (child == 0) {
        struct npy_writer w;
        if (setgid(65534) || setuid(65534)) _exit(2);
        const char *error = npy_writer_begin(&w, "sticky/root.npy");
        _exit(error && strstr(error, "sticky/root.npy") ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

/* What a killed run leaves has no lock; what a living one writes has. */
Test(npy_failure, temporaries_of_killed_runs_are_removed_and_no_others)
{
    static const struct { const char *name; int stays; } files[] = {
        { ".o.npy.999999999-0.tmp", 0 }, { ".o.npy.7-12.tmp", 0 },
        { ".o.npy.8-0.tmp", 1 },         /* locked below */
        { ".lse.npy.7-0.tmp", 1 },       { ".o.npy.7-0.tmp.npy", 1 },
        { ".o.npy.x-0.tmp", 1 },         { ".o.npy..tmp", 1 },
        { "o.npy.7-0.tmp", 1 },          { ".oo.npy.7-0.tmp", 1 },
    };
    enum { N = sizeof files / sizeof *files };
    const size_t shape[1] = { 6 };
    for (size_t t = 0; t < N; t++) write_bytes(files[t].name, "left", 4);
    int fd = open(".o.npy.8-0.tmp", O_RDWR);
    cr_assert(fd >= 0 && !flock(fd, LOCK_EX));
    cr_assert(!npy_write_f32("o.npy", 1, shape, six));
    for (size_t t = 0; t < N; t++)
        cr_expect((access(files[t].name, F_OK) == 0) == files[t].stays, "%s",
                  files[t].name);
    close(fd);
}

/* Killed while it writes: the file is there, without a lock. */
Test(npy_failure, a_killed_writer_loses_its_lock)
{
    const size_t shape[1] = { 1 << 20 }, small[1] = { 6 };
    cr_assert(!mkfifo("stuck", 0600));
    pid_t child = fork();
    if (child == 0) {
        static float data[1 << 20];
        struct npy_writer w[2];
        if (npy_writer_begin(&w[0], "o.npy") || npy_writer_begin(&w[1], "stuck"))
            _exit(1);
        npy_writer_set(&w[0], 1, shape, data);
        npy_writer_set(&w[1], 1, shape, data);
        npy_writer_commit(w, 2);
        _exit(2);
    }
    int fd = open("stuck", O_RDONLY), status;
    char byte;
    cr_assert(read(fd, &byte, 1) == 1);
    cr_assert(n_files() == 2, "no temporary: the test tests nothing");
    cr_assert(!npy_write_f32("o.npy", 1, small, six) && n_files() == 3,
              "the temporary of a living run is gone");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(fd);
    cr_assert(n_files() == 3, "%d files", n_files());
    cr_assert(!npy_write_f32("o.npy", 1, small, six) && n_files() == 2,
              "the temporary of the killed run is still there");
}
