/* csv.c: measurements, one line each, with their provenance. */
#include "measurement/csv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "problem/variant.h"

#ifndef COMPILER_FLAGS
#define COMPILER_FLAGS ""
#endif
#ifndef CUDA_COMPILER
#define CUDA_COMPILER ""
#endif
#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* One line: what was measured, and where and when. */
struct line {
    struct measurement m;
    const char *op, *device, *dtype, *date, *commit, *machine, *compiler, *flags;
};

/* SHARE: a measured number; COUNT: one that a checker computes anew, to its last digit.  A NaN is
 * an empty field. */
enum kind { TEXT, INTEGER, EXTENT, SHARE, COUNT };

/* The columns: a new one is a line here. */
#define OF(field) offsetof(struct line, field)
static const char *const kind_names[] = {"TEXT", "INTEGER", "EXTENT", "SHARE", "COUNT"};
static const struct column { const char *name; enum kind kind; size_t at; } columns[] = {
    {"stage", TEXT, OF(m.stage)},
    {"variant", TEXT, OF(m.variant)},
    {"op", TEXT, OF(op)},
    {"device", TEXT, OF(device)},
    {"dtype", TEXT, OF(dtype)},
    {"rows", EXTENT, OF(m.p.rows)},
    {"cols", EXTENT, OF(m.p.cols)},
    {"batch", EXTENT, OF(m.p.batch)},
    {"heads_q", EXTENT, OF(m.p.heads_q)},
    {"heads_kv", EXTENT, OF(m.p.heads_kv)},
    {"seqlen_q", EXTENT, OF(m.p.seqlen_q)},
    {"seqlen_k", EXTENT, OF(m.p.seqlen_k)},
    {"head_dim", EXTENT, OF(m.p.head_dim)},
    {"head_dim_v", EXTENT, OF(m.p.head_dim_v)},
    {"causal", INTEGER, OF(m.p.causal)},
    {"threads", INTEGER, OF(m.threads)},
    {"median_s", SHARE, OF(m.median_s)},
    {"min_s", SHARE, OF(m.min_s)},
    {"reps", INTEGER, OF(m.reps)},
    {"bytes_predicted", COUNT, OF(m.bytes_predicted)},
    {"bytes_measured", COUNT, OF(m.bytes_measured)},
    {"flops", COUNT, OF(m.flops)},
    {"gbps", SHARE, OF(m.gbps)},
    {"gflops", SHARE, OF(m.gflops)},
    {"ceiling_kind", TEXT, OF(m.ceiling_kind)},
    {"ceiling", SHARE, OF(m.ceiling)},
    {"pct_ceiling", SHARE, OF(m.pct_ceiling)},
    {"peak_bytes", COUNT, OF(m.peak_bytes)},
    {"max_err", SHARE, OF(m.max_err)},
    {"allowed_err", SHARE, OF(m.allowed_err)},
    {"date", TEXT, OF(date)},
    {"commit", TEXT, OF(commit)},
    {"machine", TEXT, OF(machine)},
    {"compiler", TEXT, OF(compiler)},
    {"flags", TEXT, OF(flags)},
};
enum { N_COLUMNS = sizeof columns / sizeof columns[0] };

static void put_header(FILE *f)
{
    for (int c = 0; c < N_COLUMNS; c++) fprintf(f, "%s%s", c ? "," : "", columns[c].name);
    fputc('\n', f);
}

void csv_columns(FILE *f)
{
    for (int c = 0; c < N_COLUMNS; c++)
        fprintf(f, "%s,%s\n", columns[c].name, kind_names[columns[c].kind]);
}

/* Each line goes out in one write, so that a signal cannot cut it. */
struct csv {
    int fd;
    const char *path;
    int created; /* there was no such file */
    int is_new;  /* nothing is in it yet, not even the header */
};

/* Appends n bytes, or takes back what a full disk cut off.  NULL or why not. */
static const char *append(int fd, const char *text, size_t n)
{
    struct stat before;
    int known = !fstat(fd, &before) && S_ISREG(before.st_mode);
    ssize_t written;
    do written = write(fd, text, n);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)n) return NULL;
    const char *why = strerror(written < 0 ? errno : ENOSPC);
    if (written > 0 && known && ftruncate(fd, before.st_size))
        return "the disk is full, and the last line is cut off";
    return why;
}

/* The first line of the file at path: 1 if it is the header, 0 if there is none.  A pipe or
 * a device is not asked: it would wait for a line of ours. */
static int has_header(const char *path, const char **why)
{
    char line[2048] = "", header[2048] = "";
    struct stat status;
    if (stat(path, &status) || !S_ISREG(status.st_mode)) return 0;
    FILE *f = fopen(path, "r"), *wanted = fmemopen(header, sizeof header, "w");
    char *got = f ? fgets(line, sizeof line, f) : NULL;
    if (wanted) put_header(wanted), fclose(wanted);
    if (f) fclose(f);
    if (!got) return 0;
    line[strcspn(line, "\r\n")] = header[strcspn(header, "\n")] = '\0';
    if (strcmp(line, header)) *why = "its columns are not those of this program; name another file";
    return 1;
}

struct csv *csv_open(const char *path, const char **why)
{
    *why = NULL;
    int old = has_header(path, why);
    if (*why) return NULL;
    struct csv *c = malloc(sizeof *c);
    int created = access(path, F_OK) != 0;
    int fd = c ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd < 0) {
        *why = strerror(errno);
        free(c);
        return NULL;
    }
    *c = (struct csv){fd, path, created, !old};
    return c;
}

void csv_text(FILE *f, const char *text)
{
    int quoted = strpbrk(text, ",\"\n") != NULL;
    if (quoted) fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text == '\n' ? ' ' : *text, f);
    }
    if (quoted) fputc('"', f);
}

static void put_column(FILE *f, const struct column *c, const struct line *line)
{
    const void *at = (const char *)line + c->at;
    if (c->kind == TEXT) csv_text(f, *(const char *const *)at);
    if (c->kind == INTEGER) fprintf(f, "%d", *(const int *)at);
    if (c->kind == EXTENT) fprintf(f, "%zu", *(const size_t *)at);
    if ((c->kind == SHARE || c->kind == COUNT) && !isnan(*(const double *)at))
        fprintf(f, c->kind == SHARE ? "%.6g" : "%.15g", *(const double *)at);
}

const char *machine_name(void)
{
    static char name[200];
    char line[256], model[128] = "unknown processor";
    FILE *f = name[0] ? NULL : fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "model name%*[ \t]: %127[^\n]", model) != 1) {}
    if (f) fclose(f);
    if (!name[0]) snprintf(name, sizeof name, "%s; %ld cores", model, sysconf(_SC_NPROCESSORS_ONLN));
    return name;
}

/* The commit that is measured: $COMMIT, or what git says, with + when files differ. */
static const char *commit_name(void)
{
    static char name[64];
    const char *given = getenv("COMMIT");
    if (given && *given) return given;
    if (name[0]) return name;
    FILE *f = popen("exec 2>/dev/null; commit=$(git rev-parse --short=10 HEAD) || exit; "
                    "git diff --quiet HEAD -- ':!*.md' ':!notes' || commit=$commit+; echo $commit", "r");
    if (!f || fscanf(f, "%63s", name) != 1) strcpy(name, "unknown");
    if (f) pclose(f);
    return name;
}

static void put_line(FILE *f, const struct measurement *m)
{
    char date[32];
    int on_gpu = m->device == ON_GPU;
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    struct line line = {
        .m = *m, .op = op_name(m->p.op), .device = device_name(m->device),
        .dtype = problem_types(&m->p), .date = date, .commit = commit_name(),
        .machine = on_gpu ? gpu_name() : machine_name(),
        .compiler = on_gpu && *CUDA_COMPILER ? CUDA_COMPILER : COMPILER, .flags = COMPILER_FLAGS};
    for (int c = 0; c < N_COLUMNS; c++) {
        if (c) fputc(',', f);
        put_column(f, &columns[c], &line);
    }
    fputc('\n', f);
}

const char *csv_write(struct csv *c, const struct measurement *m)
{
    char *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n);
    if (!f) return strerror(errno);
    if (c->is_new) put_header(f);
    put_line(f, m);
    const char *why = fclose(f) ? strerror(errno) : append(c->fd, line, n);
    free(line);
    if (!why) c->is_new = 0;
    return why;
}

const char *csv_close(struct csv *c)
{
    int failed = close(c->fd);
    if (c->created && c->is_new) remove(c->path);
    free(c);
    return failed ? strerror(errno) : NULL;
}
