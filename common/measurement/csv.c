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

static const char header[] =
    "stage,variant,op,device,dtype,rows,cols,batch,heads_q,heads_kv,seqlen_q,seqlen_k,"
    "head_dim,head_dim_v,causal,threads,median_s,min_s,reps,bytes_predicted,bytes_measured,"
    "flops,gbps,gflops,ceiling_kind,ceiling,pct_ceiling,peak_bytes,max_err,allowed_err,date,"
    "commit,machine,compiler,flags";

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
    char line[2048] = "";
    struct stat status;
    if (stat(path, &status) || !S_ISREG(status.st_mode)) return 0;
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    char *got = fgets(line, sizeof line, f);
    fclose(f);
    if (!got) return 0;
    line[strcspn(line, "\r\n")] = '\0';
    if (strcmp(line, header)) *why = "it is not a CSV file of this project; name another";
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

static void put_text(FILE *f, const char *text)
{
    if (!strpbrk(text, ",\"\n")) {
        fprintf(f, ",%s", text);
        return;
    }
    fputs(",\"", f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text == '\n' ? ' ' : *text, f);
    }
    fputc('"', f);
}

static void put_number(FILE *f, double x)
{
    if (isnan(x)) fputc(',', f);
    else fprintf(f, ",%.6g", x);
}

/* Bytes and flops to the last digit: a checker computes them anew. */
static void put_count(FILE *f, double x)
{
    if (isnan(x)) fputc(',', f);
    else fprintf(f, ",%.15g", x);
}

static void put_size(FILE *f, size_t n) { fprintf(f, ",%zu", n); }

const char *machine_name(void)
{
    static char name[200];
    if (name[0]) return name;
    char line[256], model[128] = "unknown processor";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!strncmp(line, "model name", 10) && colon) {
            snprintf(model, sizeof model, "%s", colon + 2);
            model[strcspn(model, "\n")] = '\0';
            break;
        }
    }
    if (f) fclose(f);
    snprintf(name, sizeof name, "%s; %ld cores", model, sysconf(_SC_NPROCESSORS_ONLN));
    return name;
}

/* The commit that is measured: $COMMIT, or what git says, with + when files differ. */
static const char *commit_name(void)
{
    static char name[64];
    if (name[0]) return name;
    const char *given = getenv("COMMIT");
    if (given && *given) {
        snprintf(name, sizeof name, "%s", given);
        return name;
    }
    snprintf(name, sizeof name, "unknown");
    FILE *f = popen("git rev-parse --short=10 HEAD 2>/dev/null && "
                    "git diff --quiet HEAD -- ':!*.md' ':!notes' 2>/dev/null || echo +", "r");
    char line[64] = "", dirty[8] = "";
    if (f && fgets(line, sizeof line, f) && line[0] != '+') {
        line[strcspn(line, "\n")] = '\0';
        int changed = fgets(dirty, sizeof dirty, f) && dirty[0] == '+';
        snprintf(name, sizeof name, "%.40s%s", line, changed ? "+" : "");
    }
    if (f) pclose(f);
    return name;
}

static void put_shape(FILE *f, const struct problem *p)
{
    put_size(f, p->rows), put_size(f, p->cols), put_size(f, p->batch);
    put_size(f, p->heads_q), put_size(f, p->heads_kv);
    put_size(f, p->seqlen_q), put_size(f, p->seqlen_k);
    put_size(f, p->head_dim), put_size(f, p->head_dim_v);
    fprintf(f, ",%d", p->causal);
}

static void put_line(FILE *f, const struct measurement *m)
{
    char date[32];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    fputs(m->stage, f);
    put_text(f, m->variant);
    put_text(f, op_name(m->p.op));
    put_text(f, device_name(m->device));
    put_text(f, dtype_name(m->p.dtype));
    put_shape(f, &m->p);
    fprintf(f, ",%d", m->threads);
    put_number(f, m->median_s), put_number(f, m->min_s);
    fprintf(f, ",%d", m->reps);
    put_count(f, m->bytes_predicted), put_count(f, m->bytes_measured);
    put_count(f, m->flops), put_number(f, m->gbps), put_number(f, m->gflops);
    put_text(f, m->ceiling_kind);
    put_number(f, m->ceiling), put_number(f, m->pct_ceiling);
    put_count(f, m->peak_bytes), put_number(f, m->max_err), put_number(f, m->allowed_err);
    put_text(f, date);
    put_text(f, commit_name());
    put_text(f, m->device == ON_GPU ? gpu_name() : machine_name());
    put_text(f, m->device == ON_GPU && *CUDA_COMPILER ? CUDA_COMPILER : COMPILER);
    put_text(f, COMPILER_FLAGS);
    fputc('\n', f);
}

const char *csv_write(struct csv *c, const struct measurement *m)
{
    char *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n);
    if (!f) return strerror(errno);
    if (c->is_new) fprintf(f, "%s\n", header);
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
