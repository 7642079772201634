/* worker.c: the other main loop of an exercise: linked in place of the harness, it does
 * what the judge asks and knows nothing about right and wrong. */
#include "worker_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A copy of n bytes that ends at a page that cannot be accessed (up to 15 bytes before
 * it, so that vectors of 4 floats stay aligned): reading behind an array is a crash. */
struct fenced { char *map, *data; size_t map_bytes; };

static struct fenced fenced_new(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (n + 15) / 16 * 16;
    size_t pages = (room + page - 1) / page * page;
    struct fenced f = {.map_bytes = pages + page};
    f.map = mmap(NULL, f.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    if (f.map == MAP_FAILED || mprotect(f.map + pages, page, PROT_NONE)) _exit(3);
    f.data = f.map + pages - room;
    return f;
}

static struct reply describe(const struct variant *v)
{
    struct reply r = {.ok = 1, .device = v->device, .types = v->types,
                      .supports = v->supports};
    r.max_score = v->max_score;
    r.masked_rows = v->masked_rows;
    r.isolates_v = v->isolates_v;
    for (int op = 0; op < N_OPS; op++)
        if (variant_does(v, (enum op)op)) r.ops |= 1u << op;
    return r;
}

static void bind(struct arrays *a, char *const at[N_ARRAYS])
{
    a->x = at[AT_X];
    a->w = at[AT_W];
    a->q = at[AT_Q];
    a->k = at[AT_K];
    a->v = at[AT_V];
    a->bias = (const float *)at[AT_BIAS];
    a->index = (const size_t *)at[AT_INDEX];
    a->k_new = at[AT_K_NEW];
    a->v_new = at[AT_V_NEW];
    a->y = at[AT_Y];
    a->o = at[AT_O];
    a->lse = (float *)at[AT_LSE];
}

/* Computes, and waits until the device has done it. */
static void call(const struct variant *v, const struct problem *p,
                 char *const at[N_ARRAYS])
{
    struct arrays a = {0};
    bind(&a, at);
    size_t scratch = variant_scratch(v, p);
    if (scratch) a.workspace = memory_for_work(scratch);
    variant_call(v, p, &a);
    memory_wait();
    if (scratch) memory_free_work(a.workspace);
}

/* Copies the arrays in, computes, copies the outputs with their guards back, and the
 * inputs too: the judge sees one that was overwritten.  `index` stays on the host. */
static void compute(const struct variant *v, const struct request *q, char *region)
{
    struct fenced f[N_ARRAYS];
    char *there[N_ARRAYS] = {0}, *at[N_ARRAYS] = {0};
    if (!variant_does(v, q->problem.op)) _exit(3);
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!q->span[i].bytes) continue;
        f[i] = fenced_new(q->span[i].bytes);
        memcpy(f[i].data, region + q->span[i].offset, q->span[i].bytes);
        there[i] = i == AT_INDEX ? f[i].data : memory_to_device(f[i].data, q->span[i].bytes);
        at[i] = there[i] + (i >= AT_Y ? q->guard : 0);
    }
    call(v, &q->problem, at);
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!q->span[i].bytes) continue;
        if (i != AT_INDEX) memory_from_device(f[i].data, there[i], q->span[i].bytes);
        memcpy(region + q->span[i].offset, f[i].data, q->span[i].bytes);
        munmap(f[i].map, f[i].map_bytes);
    }
}

/* The same where the arrays lie, for the clock: nothing is copied. */
static void compute_in_place(const struct variant *v, const struct request *q, char *region)
{
    char *at[N_ARRAYS] = {0};
    if (!variant_does(v, q->problem.op)) _exit(3);
    char *place = memory_of_judge(q->gpu_bytes, region);
    for (int i = 0; i < N_ARRAYS; i++)
        if (q->span[i].bytes) at[i] = place + q->span[i].offset + (i >= AT_Y ? q->guard : 0);
    call(v, &q->problem, at);
}

int stage_main(int argc, char **argv, const struct stage *stage)
{
    const struct variant *v = stage->variants[0];
    struct request q;
    struct stat file;
    (void)argc, (void)argv;
    if (fstat(REGION_FD, &file)) return 3;
    char *region = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                        REGION_FD, 0);
    if (region == MAP_FAILED) return 3;
    while (read(SOCKET_FD, &q, sizeof q) == sizeof q) {
        struct reply r = describe(v);
        if (q.kind == REFUSES) r.ok = !v->refuses || !v->refuses(&q.problem);
        if (q.kind == COMPUTE) compute(v, &q, region);
        if (q.kind == TIMED) compute_in_place(v, &q, region);
        if (write(SOCKET_FD, &r, sizeof r) != sizeof r) return 3;
    }
    return 0;
}

/* The OpenMP of clang registers itself in a shared-memory file, and gives up when it may not
 * make one.  It gets the page that the judge left. */
int shm_open(const char *name, int flags, mode_t mode)
{
    (void)name, (void)flags, (void)mode;
    return PAGE_FD;
}

int ftruncate(int fd, off_t size)
{
    (void)size;
    return fd == PAGE_FD ? 0 : -1;
}

/* An exercise may be traced by the harness; here nobody looks. */
void trace_state(struct trace *t, const char *step, size_t index, float x, float m,
                 float l, const float *o, size_t n_o, float correction)
{
    (void)t, (void)step, (void)index, (void)x, (void)m, (void)l, (void)o, (void)n_o;
    (void)correction;
}

void trace_note(struct trace *t, const char *format, ...) { (void)t, (void)format; }
