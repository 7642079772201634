/* test_npy_file.c: .npy files on a disk and in a pipe, read and written. */
#include "npy_place.h"

TestSuite(npy_file, .init = make_place, .fini = remove_place);

Test(npy_file, what_is_no_readable_file_is_refused)
{
    const char *const names[] = { "missing.npy", ".", "/dev/null", "", "missing/a.npy" };
    struct npy a;
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        const char *error = npy_read(names[t], &a);
        cr_assert(error && !a.data, "'%s' was accepted", names[t]);
        const char *shown = *names[t] ? names[t] : "''";
        cr_expect(!strncmp(error, shown, strlen(shown)), "%s", error);
    }
    const char *error = npy_read("line\nbreak.npy", &a);
    cr_assert(error && !strchr(error, '\n'), "%s", error);
}

/* A sparse file whose data would not fit into memory. */
Test(npy_file, array_beyond_memory_is_refused_before_it_is_read)
{
    unsigned char file[512];
    size_t n = make(file, 1, DICT("'<f4'", "False", "(4398046511104,)"), "", 0);
    struct npy a;
    write_bytes("big.npy", file, n);
    if (truncate("big.npy", (off_t)n + ((off_t)1 << 44)))
        cr_skip("the file system has no sparse file of 16 TiB");
    const char *error = npy_read("big.npy", &a);
    cr_assert(error && strstr(error, "memory"), "%s", error);
}

Test(npy_file, pipe_is_read_and_its_lies_cost_nothing)
{
    unsigned char file[512];
    struct npy a;
    for (int lie = 0; lie < 3; lie++) { /* right, too short, too long */
        const char *header = lie == 1 ? DICT("'<f4'", "False", "(1000000000000,)") : F4;
        size_t n = make(file, 1, header, six, sizeof six);
        if (lie == 2) n++;
        int ends[2];
        cr_assert(!pipe(ends));
        cr_assert(write(ends[1], file, n) == (ssize_t)n);
        close(ends[1]);
        char name[32];
        sprintf(name, "/dev/fd/%d", ends[0]);
        const char *error = npy_read(name, &a);
        cr_assert(lie ? error != NULL : !error, "%d: %s", lie, error);
        close(ends[0]);
        npy_free(&a);
    }
}

Test(npy_file, written_array_comes_back)
{
    for (size_t ndim = 0; ndim <= 6; ndim++) {
        const size_t shape[6] = { 2, 1, 3, 1, 1, 1 };
        size_t count = ndim == 0 ? 1 : ndim < 3 ? 2 : 6;
        const char *error = npy_write_f32("a.npy", ndim, shape, six);
        cr_assert(!error, "%s", error);
        struct npy a;
        error = npy_read("a.npy", &a);
        cr_assert(!error, "%s", error);
        cr_assert(a.ndim == ndim && a.count == count && a.version == 1 && a.dtype == F32);
        cr_assert(!memcmp(a.shape, shape, ndim * sizeof *shape));
        cr_assert(!memcmp(a.data, six, count * sizeof *six));
        npy_free(&a);
    }
    cr_assert(n_files() == 1, "temporaries were left");
}

Test(npy_file, header_is_what_numpy_writes)
{
    const size_t shape[2] = { 2, 3 };
    char bytes[256] = "", want[129] = "";
    cr_assert(!npy_write_f32("a.npy", 2, shape, six));
    FILE *f = fopen("a.npy", "rb");
    cr_assert(fread(bytes, 1, sizeof bytes, f) == 128 + sizeof six && !fclose(f));
    memcpy(want, "\x93NUMPY\x01\x00\x76\x00", 10);
    sprintf(want + 10, "%-117s\n", F4);
    cr_assert(!memcmp(bytes, want, 128));
    cr_assert(!memcmp(bytes + 128, six, sizeof six));
}

Test(npy_file, existing_file_keeps_its_permissions_and_links)
{
    const size_t shape[1] = { 6 };
    struct stat about;
    write_bytes("real.npy", "old", 3);
    cr_assert(!chmod("real.npy", 0640) && !symlink("real.npy", "link.npy"));
    cr_assert(!npy_write_f32("link.npy", 1, shape, six));
    cr_assert(!lstat("link.npy", &about) && S_ISLNK(about.st_mode), "the link is gone");
    cr_assert(!stat("real.npy", &about) && (about.st_mode & 0777) == 0640);
    cr_assert(about.st_size == 128 + 24);
}

Test(npy_file, begin_refuses_what_cannot_be_written_and_leaves_nothing)
{
    const char *const names[] = { "missing/o.npy", "directory", "directory/", "",
                                  "old.npy/o.npy", "new/" };
    struct npy_writer w;
    cr_assert(!mkdir("directory", 0755));
    write_bytes("old.npy", "old", 3);
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        const char *error = npy_writer_begin(&w, names[t]);
        cr_expect(error && !strchr(error, '\n'), "'%s' was accepted", names[t]);
        if (!error) npy_writer_abort(&w, 1);
    }
    char longest[400];
    memset(longest, 'a', sizeof longest);
    longest[399] = 0;
    cr_expect(npy_writer_begin(&w, longest), "a name of 399 letters was accepted");
    cr_expect(n_files() == 2);
}

Test(npy_file, begin_and_abort_touch_nothing)
{
    struct npy_writer w[2];
    write_bytes("o.npy", "old", 3);
    cr_assert(!npy_writer_begin(&w[0], "o.npy") && !npy_writer_begin(&w[1], "lse.npy"));
    cr_assert(n_files() == 1, "a temporary lies about while the program computes");
    npy_writer_abort(w, 2);
    struct stat about;
    cr_assert(!stat("o.npy", &about) && about.st_size == 3 && n_files() == 1);
}
