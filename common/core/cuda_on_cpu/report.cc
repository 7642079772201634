/* report.cc: what a mistake in a kernel is reported with, and the end of the program. */
#include "cuda_on_cpu/executor.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>

namespace cuda_on_cpu
{

/* "file:line: kernel, block, thread: ", the words, and the end.  The kernel's name is told by
 * dynamic_shared(), else it is the function where the error arose, else as the launch writes it:
 * "&config, kernel<64>, arguments". */
[[noreturn]] static void fail_of(const struct fibre *f, const struct caller &where,
                                 const char *format, va_list list)
{
    static std::atomic_flag taken = ATOMIC_FLAG_INIT;
    char text[1024];
    const struct launch *l = self->launch;
    const char *start = strchr(l->text, ','), *name = self->function ? self->function : where.function;
    if (!name) name = start ? start + 1 + strspn(start + 1, " ") : l->text;
    const struct uint3 *b = &self->block.index, *t = &f->index;
    int n = snprintf(text, sizeof text, "%s:%u: %.*s, block (%u,%u,%u), thread (%u,%u,%u): ",
                     where.file ? where.file : l->file, where.file ? where.line : (unsigned)l->line,
                     (int)strcspn(name, ", "), name, b->x, b->y, b->z, t->x, t->y, t->z);
    n += vsnprintf(text + n, sizeof text - n, format, list);
    if (n > (int)sizeof text - 1) n = sizeof text - 1;
    text[n++] = '\n';
    while (taken.test_and_set()) pause(); /* another CPU thread is reporting and ends us */
    fflush(stdout);
    ssize_t ignored = write(2, text, n);
    (void)ignored;
    _exit(1);
}

void fail(const struct caller &where, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_of(self->current, where, format, list);
}

void fail_at(const struct fibre *f, const struct caller &where, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_of(f, where, format, list);
}

/* An access that the machine refuses: next to the shared memory or anywhere else. */
static struct sigaction before_us[2]; /* SIGSEGV, SIGBUS */
static void on_fault(int signal, siginfo_t *info, void *)
{
    if (!self || !self->current) { /* not in a kernel: as if we were not here */
        sigaction(signal, &before_us[signal == SIGBUS], NULL);
        return;
    }
    const struct fibre *f = self->current;
    const char *at = (const char *)info->si_addr;
    const char *low = self->block.shared, *high = low + self->launch->shared_bytes;
    for (const char *guard : self->stacks)
        if (at >= guard && at < guard + sysconf(_SC_PAGESIZE)) fail_at(f, {}, OVERFLOWS, STACK_BYTES);
    if (low && at >= high && at < high + SHARED_MOST)
        fail_at(f, {}, "access %zu bytes past the end of its %zu bytes of shared memory",
                (size_t)(at - high), self->launch->shared_bytes);
    if (low && at < low && at > low - SHARED_MOST)
        fail_at(f, {}, "access %zu bytes before the start of its shared memory", (size_t)(low - at));
    fail_at(f, {}, "access to an address that is in no array, or not aligned (%p)", (const void *)at);
}

void catch_faults(void)
{
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &ours, &before_us[0]);
    sigaction(SIGBUS, &ours, &before_us[1]);
}

/* "a barrier", "mbarrier_wait (2 arrivals are missing)". */
static const char *waits_in(const struct fibre *f, char *text, size_t size)
{
    char detail[100] = "";
    if (!f->describe) return f->waits_in;
    f->describe(f->what, detail, sizeof detail);
    snprintf(text, size, "%s (%s)", f->waits_in, detail);
    return text;
}

/* Names one thread that waits, and another that waits elsewhere or has left. */
[[noreturn]] void report_deadlock(const struct worker *w)
{
    const struct fibre *first = NULL, *elsewhere = NULL, *gone = NULL;
    char text[2][160];
    for (unsigned i = 0; i < w->n_fibres; i++) {
        const struct fibre *f = &w->fibres[i];
        if (f->state == DONE) gone = gone ? gone : f;
        else if (!first) first = f;
        else if (!elsewhere && (f->state != first->state || f->where.line != first->where.line))
            elsewhere = f;
    }
    const char *in = waits_in(first, text[0], sizeof text[0]);
    const struct uint3 o = elsewhere ? elsewhere->index : gone ? gone->index : first->index;
    if (elsewhere)
        fail_at(first, first->where, "deadlock: waits in %s, while thread (%u,%u,%u) waits in %s, line %u",
                in, o.x, o.y, o.z, waits_in(elsewhere, text[1], sizeof text[1]), elsewhere->where.line);
    if (gone)
        fail_at(first, first->where, "deadlock: waits in %s, but thread (%u,%u,%u) has left the kernel",
                in, o.x, o.y, o.z);
    fail_at(first, first->where, "deadlock: waits in %s, as do all others", in);
}

} // namespace cuda_on_cpu
