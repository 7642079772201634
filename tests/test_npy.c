/* test_npy.c: reading every valid kind of .npy file, refusing every malformed one, and
 * writing files that appear complete or not at all. */
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
static size_t make(unsigned char *to, int major, const char *header, const void *data,
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

#define F4 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"

Test(npy, header_spellings_that_numpy_accepts_are_read)
{
    static const char *const headers[] = {
        F4 "                \n",
        F4,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n",
        "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
        "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, 3,), }\n",
        "  {\t'descr' : '<f4' , 'fortran_order' :\nFalse , 'shape' : ( 2 , 3 ) , }  \n\n",
        "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3), }\n",
    };
    unsigned char file[512];
    for (size_t t = 0; t < sizeof headers / sizeof *headers; t++)
        for (int version = 1; version <= 3; version++) {
            struct npy a;
            size_t n = make(file, version, headers[t], six, sizeof six);
            const char *error = npy_parse("a.npy", file, n, &a);
            cr_assert(!error, "%s: %s", headers[t], error);
            cr_assert(a.ndim == 2 && a.shape[0] == 2 && a.shape[1] == 3 && a.count == 6);
            cr_assert(a.dtype == F32 && a.version == version && !a.was_f64);
            cr_assert(!a.was_fortran && !memcmp(a.data, six, sizeof six));
            npy_free(&a);
        }
}

Test(npy, ranks_from_zero_to_32_are_read)
{
    unsigned char file[512];
    char header[256] = "{'descr': '<f4', 'fortran_order': False, 'shape': ()}";
    for (size_t ndim = 0; ndim <= NPY_MAX_DIMS; ndim++) {
        struct npy a;
        const char *error = npy_parse("a.npy", file, make(file, 1, header, six, 4), &a);
        cr_assert(!error && a.ndim == ndim && a.count == 1, "%zu: %s", ndim, error);
        npy_free(&a);
        strcpy(header + strlen(header) - 2, "1,)}");
    }
    struct npy a;
    cr_assert(npy_parse("a.npy", file, make(file, 1, header, six, 4), &a) != NULL);
}

Test(npy, empty_array_is_read)
{
    unsigned char file[512];
    struct npy a;
    const char *header = "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 4)}";
    size_t n = make(file, 1, header, "", 0);
    cr_assert(!npy_parse("a.npy", file, n, &a));
    cr_assert(a.count == 0 && a.ndim == 2 && a.data);
    npy_free(&a);
}

/* The n bytes of one element, reversed. */
static void reversed(unsigned char *to, const void *from, size_t n)
{
    for (size_t t = 0; t < n; t++) to[t] = ((const unsigned char *)from)[n - 1 - t];
}

Test(npy, byte_orders_and_types_give_the_same_numbers)
{
    const double values[4] = { 1.5, -2.25, INFINITY, 0x1p-24 }; /* last: f16 denormal */
    for (int size = 2; size <= 8; size *= 2)
        for (int big = 0; big < 2; big++) {
            unsigned char data[32], file[512];
            char header[128];
            for (int t = 0; t < 4; t++) {
                float f = (float)values[t];
                uint16_t h = float_to_half(f);
                const void *one = size == 2 ? (void *)&h : size == 4 ? (void *)&f
                                : (const void *)&values[t];
                if (big) reversed(data + t * size, one, (size_t)size);
                else memcpy(data + t * size, one, (size_t)size);
            }
            sprintf(header, "{'descr': '%cf%d', 'fortran_order': False, 'shape': (4,)}",
                    big ? '>' : '<', size);
            struct npy a;
            size_t n = make(file, 1, header, data, 4 * (size_t)size);
            const char *error = npy_parse("a.npy", file, n, &a);
            cr_assert(!error, "%s", error);
            cr_assert(a.dtype == (size == 2 ? F16 : F32) && a.was_f64 == (size == 8));
            cr_assert(a.was_big_endian == big && a.n_overflowed == 0);
            for (int t = 0; t < 4; t++) {
                float got = size == 2 ? half_to_float(((uint16_t *)a.data)[t])
                          : ((float *)a.data)[t];
                cr_assert(got == (float)values[t], "f%d element %d: got %g, want %g",
                          size, t, got, values[t]);
            }
            npy_free(&a);
        }
}

Test(npy, f64_beyond_float_is_counted)
{
    const double values[5] = { 1e39, -1e300, INFINITY, 3e38, NAN };
    unsigned char file[512];
    struct npy a;
    size_t n = make(file, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (5,)}",
                    values, sizeof values);
    cr_assert(!npy_parse("a.npy", file, n, &a));
    const float *f = a.data;
    cr_assert(a.n_overflowed == 2, "got %zu", a.n_overflowed);
    cr_assert(f[0] == INFINITY && f[1] == -INFINITY && f[3] == 3e38f && isnan(f[4]));
    npy_free(&a);
}

Test(npy, fortran_order_is_rearranged)
{
    /* element (i, j, k) of shape (2, 3, 4) is 100 i + 10 j + k, first index fastest */
    float data[24];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                data[i + 2 * j + 6 * k] = (float)(100 * i + 10 * j + k);
    unsigned char file[512];
    struct npy a;
    const char *header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4)}";
    size_t n = make(file, 1, header, data, sizeof data);
    cr_assert(!npy_parse("a.npy", file, n, &a) && a.was_fortran);
    for (int t = 0; t < 24; t++) {
        float want = (float)(100 * (t / 12) + 10 * (t / 4 % 3) + t % 4);
        cr_assert(((float *)a.data)[t] == want, "element %d: got %g, want %g", t,
                  ((float *)a.data)[t], want);
    }
    npy_free(&a);
}

/* A malformed file: version, header, bytes of data, and a word of the message. */
struct malformed { int version; const char *header; size_t n_data; const char *word; };

#define DICT(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}"

static const struct malformed malformed[] = {
    { 0, F4, 24, "version 0.0" },
    { 4, F4, 24, "version 4.0" },
    { 255, F4, 24, "version 255.0" },
    { 1, F4, 23, "23" },
    { 1, F4, 0, "24 bytes" },
    { 1, F4, 25, "more than one array" },
    { 1, "", 0, "begins with" },
    { 1, "not a dictionary", 24, "begins with" },
    { 1, "{", 24, "quoted string" },
    { 1, "{}", 24, "lacks the key 'descr'" },
    { 1, "{'descr': '<f4', 'fortran_order': False}", 24, "lacks the key 'shape'" },
    { 1, "{'descr': '<f4', 'shape': (2, 3)}", 24, "lacks the key 'fortran_order'" },
    { 1, "{'fortran_order': False, 'shape': (2, 3)}", 24, "lacks the key 'descr'" },
    { 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", 24, "'x'" },
    { 1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24,
      "twice" },
    { 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'shape': (2, 3)}", 24,
      "twice" },
    { 1, "{'descr' '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24, "':'" },
    { 1, "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}", 24, "','" },
    { 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)", 24, "',' or '}'" },
    { 1, "{descr: '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24, "quoted string" },
    { 1, "{'descr: '<f4", 24, "':'" },
    { 1, "{'descr", 24, "does not end" },
    { 1, F4 " x", 24, "after '}'" },
    { 1, F4 F4, 24, "after '}'" },
    { 1, DICT("'<f4'", "0", "(2, 3)"), 24, "'0" },
    { 1, DICT("'<f4'", "false", "(2, 3)"), 24, "not True or False" },
    { 1, DICT("'<f4'", "Falsehood", "(2, 3)"), 24, "not True or False" },
    { 1, DICT("'<f4'", "None", "(2, 3)"), 24, "not True or False" },
    { 1, DICT("'<f4'", "False", "[2, 3]"), 24, "tuple" },
    { 1, DICT("'<f4'", "False", "6"), 24, "tuple" },
    { 1, DICT("'<f4'", "False", "(6)"), 24, "tuple" },
    { 1, DICT("'<f4'", "False", "(2, -3)"), 24, "'-3" },
    { 1, DICT("'<f4'", "False", "(2, +3)"), 24, "'+3" },
    { 1, DICT("'<f4'", "False", "(2.0, 3)"), 24, "comma" },
    { 1, DICT("'<f4'", "False", "(2, 3.5)"), 24, "comma" },
    { 1, DICT("'<f4'", "False", "(2, 0x3)"), 24, "comma" },
    { 1, DICT("'<f4'", "False", "(02, 3)"), 24, "'02" },
    { 1, DICT("'<f4'", "False", "(2 3)"), 24, "comma" },
    { 1, DICT("'<f4'", "False", "(2,, 3)"), 24, "number" },
    { 1, DICT("'<f4'", "False", "(, 2, 3)"), 24, "number" },
    { 1, DICT("'<f4'", "False", "(,)"), 24, "number" },
    { 1, DICT("'<f4'", "False", "(2L, 3)"), 24, "comma" },
    { 1, DICT("'<f4'", "False", "(2, 3"), 24, "parenthesis" },
    { 1, DICT("'<f4'", "False", "('2', 3)"), 24, "number" },
    { 1, DICT("'<f4'", "False", "(2147483648, 2147483648)"), 24, "more elements" },
    { 1, DICT("'<f4'", "False", "(4294967296, 4294967296)"), 24, "more elements" },
    { 1, DICT("'<f8'", "False", "(2305843009213693952,)"), 24, "more elements" },
    { 1, DICT("'<f4'", "False", "(0, 4294967296, 4294967296)"), 0, "more elements" },
    { 1, DICT("'<f4'", "False", "(18446744073709551617, 3)"), 24, "largest" },
    { 1, DICT("'<f4'", "False", "(99999999999999999999999999, 3)"), 24, "largest" },
    { 1, DICT("'<f4'", "False", "(9223372036854775808,)"), 24, "largest" },
    { 1, DICT("'<f4'", "False", "(1000000000000,)"), 24, "4000000000000 bytes" },
    { 1, DICT("'|b1'", "False", "(2, 3)"), 6, "truth values" },
    { 1, DICT("'<i4'", "False", "(2, 3)"), 24, "integers" },
    { 1, DICT("'|u1'", "False", "(2, 3)"), 6, "integers" },
    { 1, DICT("'<c8'", "False", "(2, 3)"), 48, "complex" },
    { 1, DICT("'|V2'", "False", "(2, 3)"), 12, "bfloat16" },
    { 1, DICT("'|O'", "False", "(2, 3)"), 24, "pickled" },
    { 1, DICT("'O'", "False", "(2, 3)"), 24, "cannot be read" },
    { 1, DICT("'<U4'", "False", "(2, 3)"), 96, "text" },
    { 1, DICT("'<f3'", "False", "(2, 3)"), 18, "'<f3'" },
    { 1, DICT("'<f16'", "False", "(2, 3)"), 96, "'<f16'" },
    { 1, DICT("'<f44'", "False", "(2, 3)"), 24, "'<f44'" },
    { 1, DICT("'float32'", "False", "(2, 3)"), 24, "'float32'" },
    { 1, DICT("'f4'", "False", "(2, 3)"), 24, "'f4'" },
    { 1, DICT("'|f4'", "False", "(2, 3)"), 24, "'|f4'" },
    { 1, DICT("''", "False", "(2, 3)"), 24, "''" },
    { 1, DICT("'<f\\x34'", "False", "(2, 3)"), 24, "does not end" },
    { 1, DICT("[('a', '<f4')]", "False", "(2, 3)"), 24, "records" },
    { 1, DICT("4", "False", "(2, 3)"), 24, "quoted string" },
};

Test(npy, malformed_headers_are_refused_with_their_reason)
{
    unsigned char file[1024], data[128] = { 0 };
    for (size_t t = 0; t < sizeof malformed / sizeof *malformed; t++) {
        const struct malformed *m = &malformed[t];
        struct npy a;
        size_t n = make(file, m->version, m->header, data, m->n_data);
        const char *error = npy_parse("bad.npy", file, n, &a);
        cr_assert(error, "accepted: version %d %s", m->version, m->header);
        cr_expect(strstr(error, m->word) && !strncmp(error, "bad.npy: ", 9) &&
                  !strchr(error, '\n'), "%s: got '%s', want '%s' in it", m->header, error,
                  m->word);
        cr_expect(!a.data && !a.count && !a.ndim, "%s: leaves something", m->header);
    }
}

Test(npy, every_truncation_is_refused)
{
    for (int version = 1; version <= 3; version++) {
        unsigned char file[512];
        size_t n = make(file, version, F4, six, sizeof six);
        for (size_t cut = 0; cut < n; cut++) {
            unsigned char *exact = malloc(cut ? cut : 1); /* sanitizers see its end */
            memcpy(exact, file, cut);
            struct npy a;
            cr_assert(npy_parse("cut.npy", exact, cut, &a), "version %d cut at %zu",
                      version, cut);
            free(exact);
        }
    }
}

Test(npy, header_length_beyond_the_file_or_the_cap_is_refused)
{
    unsigned char file[512];
    struct npy a;
    size_t n = make(file, 1, F4, six, sizeof six);
    file[8] = file[9] = 0xff; /* 65535 */
    const char *error = npy_parse("a.npy", file, n, &a);
    cr_assert(error && strstr(error, "ends inside its header"), "%s", error);
    n = make(file, 2, F4, six, sizeof six);
    file[8] = file[9] = file[10] = file[11] = 0xff; /* 4 GiB: never allocated */
    error = npy_parse("a.npy", file, n, &a);
    cr_assert(error && strstr(error, "at most 65536"), "%s", error);
    n = make(file, 2, F4, six, sizeof six);
    file[6] = 1; /* version 2 read as version 1: the length's upper half joins the text */
    error = npy_parse("a.npy", file, n, &a);
    cr_assert(error && strstr(error, "begins with"), "%s", error);
}

Test(npy, other_formats_are_named)
{
    struct npy a;
    const char *error = npy_parse("a.npz", "PK\3\4abcdefghijk", 15, &a);
    cr_assert(error && strstr(error, "zip"), "%s", error);
    error = npy_parse("a.txt", "1.0 2.0 3.0 4.0", 15, &a);
    cr_assert(error && strstr(error, "not a .npy file"), "%s", error);
    error = npy_parse("a.npy", "", 0, &a);
    cr_assert(error && strstr(error, "0 bytes"), "%s", error);
}

static char place[64]; /* a directory of this test's own */

static void make_place(void)
{
    strcpy(place, "/tmp/test_npy.XXXXXX");
    cr_assert(mkdtemp(place));
    cr_assert(!chdir(place));
}

static void remove_place(void)
{
    char command[192];
    snprintf(command, sizeof command, "chmod -R u+w %s && rm -rf %s", place, place);
    cr_assert(!chdir("/") && !system(command));
}

TestSuite(npy_file, .init = make_place, .fini = remove_place);

/* Entries of the test's directory, . and .. left out. */
static int n_files(void)
{
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

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

Test(npy_file, read_only_directory_and_file_are_refused)
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

Test(npy_file, full_disk_leaves_old_files_and_no_temporaries)
{
    int status = as_user(full_disk_part);
    cr_assert(status == 0, "part %d", status);
    const size_t shape[1] = { 6 };
    const char *error = npy_write_f32("/dev/full", 1, shape, six);
    cr_assert(error && strstr(error, "/dev/full"), "%s", error);
}

/* Ctrl-C while the outputs are written into a pipe that nobody empties. */
Test(npy_file, interrupt_while_writing_leaves_nothing)
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

Test(npy_file, two_outputs_in_one_file_are_refused)
{
    const size_t shape[1] = { 6 };
    struct npy_writer w[2];
    cr_assert(!npy_writer_begin(&w[0], "o.npy") && !npy_writer_begin(&w[1], "./o.npy"));
    npy_writer_set(&w[0], 1, shape, six);
    npy_writer_set(&w[1], 1, shape, six);
    cr_assert(npy_writer_commit(w, 2) && n_files() == 0);
}

/* open(path, O_CREAT) creates the file that a link names, and so do we. */
Test(npy_file, dangling_links_are_followed)
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

Test(npy_file, failure_of_the_second_rename_undoes_the_first)
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
Test(npy_file, another_users_file_in_a_sticky_directory_is_refused)
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
Test(npy_file, temporaries_of_killed_runs_are_removed_and_no_others)
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
Test(npy_file, a_killed_writer_loses_its_lock)
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
