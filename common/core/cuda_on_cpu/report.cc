/* report.cc: what a mistake in a kernel is reported with, and the end of the program. */
#include "cuda_on_cpu/executor.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>

namespace cuda_on_cpu
{

/* The kernel's name: told by dynamic_shared(), else the function where the error arose,
 * else as the launch writes it. */
static void kernel_name(char *name, size_t size, const char *function)
{
    if (self->function) function = self->function;
    if (function) {
        snprintf(name, size, "%s", function);
        return;
    }
    const char *text = self->launch->text; /* "&config, kernel<64>, arguments" */
    const char *start = strchr(text, ',');
    start = start ? start + 1 + strspn(start + 1, " ") : text;
    snprintf(name, size, "%.*s", (int)strcspn(start, ", "), start);
}

int describe(char *text, size_t size, const struct fibre *f,
                    const struct caller *where)
{
    char name[128];
    kernel_name(name, sizeof name, where ? where->function : NULL);
    const struct uint3 *b = &self->block.index, *t = &f->index;
    return snprintf(text, size, "%s:%u: %s, block (%u,%u,%u), thread (%u,%u,%u): ",
                    where ? where->file : self->launch->file,
                    where ? where->line : (unsigned)self->launch->line, name, b->x, b->y,
                    b->z, t->x, t->y, t->z);
}

[[noreturn]] void stop(char *text, size_t used)
{
    static std::atomic_flag taken = ATOMIC_FLAG_INIT;
    while (taken.test_and_set()) pause(); /* another CPU thread is reporting and ends us */
    text[used++] = '\n';
    fflush(stdout);
    ssize_t ignored = write(2, text, used);
    (void)ignored;
    _exit(1);
}

[[noreturn]] static void fail_of(const struct fibre *f, const struct caller &where,
                                 const char *format, va_list list)
{
    char text[1024];
    int n = describe(text, sizeof text, f, &where);
    n += vsnprintf(text + n, sizeof text - 1 - n, format, list);
    stop(text, (size_t)n < sizeof text - 1 ? n : sizeof text - 2);
}

void fail(const struct caller &where, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_of(self->current, where, format, list);
}

void fail_at(const struct fibre *f, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail_of(f, f->where, format, list);
}

[[noreturn]] void report_overflow(const struct fibre *f)
{
    char text[1024];
    int n = describe(text, sizeof text, f, NULL);
    n += snprintf(text + n, sizeof text - n, "its stack of %zu bytes overflows", STACK_BYTES);
    stop(text, n);
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
        if (at >= guard && at < guard + sysconf(_SC_PAGESIZE)) report_overflow(f);
    char text[1024];
    int n = describe(text, sizeof text, f, NULL);
    if (low && at >= high && at < high + SHARED_MOST)
        n += snprintf(text + n, sizeof text - n,
                      "access %zu bytes past the end of its %zu bytes of shared memory",
                      (size_t)(at - high), self->launch->shared_bytes);
    else if (low && at < low && at > low - SHARED_MOST)
        n += snprintf(text + n, sizeof text - n,
                      "access %zu bytes before the start of its shared memory",
                      (size_t)(low - at));
    else
        n += snprintf(text + n, sizeof text - n,
                      "access to an address that is in no array, "
                      "or not aligned (%p)",
                      (const void *)at);
    stop(text, n);
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
    if ((f->state != AT_ADDRESS && f->state != AT_COUNT) || !f->describe) return f->waits_in;
    f->describe(f->what, detail, sizeof detail);
    snprintf(text, size, "%s (%s)", f->waits_in, detail);
    return text;
}

[[noreturn]] void report_deadlock(const struct worker *w)
{
    const struct fibre *first = NULL, *other = NULL;
    char text[2][160];
    for (unsigned i = 0; i < w->n_fibres; i++) {
        const struct fibre *f = &w->fibres[i];
        if (f->state == DONE) continue;
        if (!first)
            first = f;
        else if (!other &&
                 (f->state != first->state || f->where.line != first->where.line))
            other = f;
    }
    if (!other)
        for (unsigned i = 0; i < w->n_fibres && !other; i++)
            if (w->fibres[i].state == DONE) other = &w->fibres[i];
    const char *in = waits_in(first, text[0], sizeof text[0]);
    if (!other) fail_at(first, "deadlock: waits in %s, as do all others", in);
    const struct uint3 *o = &other->index;
    if (other->state == DONE)
        fail_at(first, "deadlock: waits in %s, but thread (%u,%u,%u) has left the kernel", in,
                o->x, o->y, o->z);
    fail_at(first, "deadlock: waits in %s, while thread (%u,%u,%u) waits in %s, line %u", in,
            o->x, o->y, o->z, waits_in(other, text[1], sizeof text[1]), other->where.line);
}

} // namespace cuda_on_cpu
