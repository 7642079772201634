/* test_npy.c: every valid kind of .npy file is read, every malformed one refused. */
#include "npy_place.h"

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
