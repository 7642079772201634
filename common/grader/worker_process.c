/* worker_process.c: a worker's life: it is started in its jail, asked, waited for, and ended. */
#include "worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CRASHES = 16, HANGS = 2, SAID = 2000, THREADS = 1000 };

struct limits worker_limits = {
    .cpu_s = 10, .wall_s = 60, .memory = (size_t)2 << 30, .hide_files = 1};
size_t region_bytes = REGION;

static double now(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) ? 0 : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

_Noreturn void machine_fails(const char *what, const char *why)
{
    fprintf(stderr, "judge: %s: %s: this machine lacks memory, processes or time\n", what,
            why);
    exit(3);
}

/* Closes this descriptor and all above. */
static void close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
    for (int fd = first; fd < 1024; fd++) close(fd);
}

/* In the child: the descriptors of the protocol, nothing to read, nobody who listens. */
static void become(const struct worker *w, int socket, int said, int report)
{
    int null = open("/dev/null", O_RDWR);
    int region = fcntl(w->region_fd, F_DUPFD, 20);
    int page = memfd_create("page", 0);
    page = page < 0 || ftruncate(page, PAGE_BYTES) ? null : fcntl(page, F_DUPFD, 20);
    int gpu = fcntl(w->gpu_fd < 0 ? null : w->gpu_fd, F_DUPFD, 20);
    socket = fcntl(socket, F_DUPFD, 20);
    said = fcntl(said, F_DUPFD, 20);
    report = fcntl(report, F_DUPFD, 20);
    dup2(null, 0);
    dup2(null, 1);
    dup2(said, 2);
    dup2(region, REGION_FD);
    dup2(socket, SOCKET_FD);
    dup2(page, PAGE_FD);
    dup2(gpu, GPU_FD);
    report = dup2(report, GPU_FD + 1);
    fcntl(report, F_SETFD, FD_CLOEXEC);
    close_from(GPU_FD + 2);
    const char *program = w->program;
    char jailed = (char)jail_enter(&worker_limits, &program);
    if (write(report, &jailed, 1) != 1) _exit(127);
    char *const arguments[] = {(char *)"worker", NULL};
    execve(program, arguments, environ);
    _exit(127);
}

static void start(struct worker *w)
{
    int pair[2], said[2], report[2];
    char jailed = 0;
    w->pid = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || pipe(said) || pipe(report))
        machine_fails("no connection to a worker", strerror(errno));
    fcntl(pair[0], F_SETFL, O_NONBLOCK); /* a worker that does not read holds nobody up */
    fcntl(said[0], F_SETFL, O_NONBLOCK);
    fcntl(said[1], F_SETFL, O_NONBLOCK); /* a worker that shouts is not held up */
    w->pid = fork();
    if (w->pid < 0) machine_fails("no process for a worker", strerror(errno));
    if (w->pid == 0) become(w, pair[1], said[1], report[1]);
    close(pair[1]);
    close(said[1]);
    close(report[1]);
    w->jailed = read(report[0], &jailed, 1) == 1 ? jailed : 0;
    close(report[0]);
    w->socket = pair[0];
    w->said = said[0];
}

/* Keeps what the worker has written to stderr, until the first failure.  Not longer than
 * a full pipe: who writes faster than we read would be listened to for ever. */
static void listen_to(struct worker *w, int keep)
{
    char text[4096];
    ssize_t n;
    for (int pages = 0; pages < 16 && (n = read(w->said, text, sizeof text)) > 0; pages++)
        for (ssize_t i = 0; keep && i < n && w->n_words < SAID; i++)
            w->words[w->n_words++] = text[i];
}

/* Has the worker ended, or does it soon?  It stays to be waited for. */
static int ends_by_itself(const struct worker *w)
{
    for (int i = 0; i < 100; i++) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT)) return 0;
        if (info.si_pid) return 1;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return 0;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

void worker_stop(struct worker *w, const char *why)
{
    int status = 0;
    struct rusage used = {0};
    if (!w->pid) return;
    int by_itself = !*why && ends_by_itself(w);
    kill(-w->pid, SIGKILL);
    kill(w->pid, SIGKILL);
    listen_to(w, !w->crashes && !w->hangs);
    while (wait4(w->pid, &status, 0, &used) < 0 && errno == EINTR) continue;
    int used_up = seconds(used.ru_utime) + seconds(used.ru_stime) >= 20 * worker_limits.cpu_s;
    if (by_itself && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !used_up)
        machine_fails(w->program, "killed by the system");
    if (*why) snprintf(w->failure, sizeof w->failure, "%s", why);
    else if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || used_up))
        snprintf(w->failure, sizeof w->failure, "used up its processor time");
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        snprintf(w->failure, sizeof w->failure, "closed its connection");
    else if (WIFSIGNALED(status))
        snprintf(w->failure, sizeof w->failure, "crashed: %s",
                 strsignal(WTERMSIG(status)));
    else
        snprintf(w->failure, sizeof w->failure, "ended by itself, exit status %d",
                 WEXITSTATUS(status));
    close(w->socket);
    close(w->said);
    w->pid = 0;
}

/* Threads of a process; 0 where that is not known. */
static long threads_of(pid_t pid)
{
    char path[40];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    return stat(path, &s) ? 0 : (long)s.st_nlink - 2;
}

/* Bytes of memory that a process holds, with what it shares; 0 where that is not known. */
static size_t memory_of(pid_t pid)
{
    char path[40];
    size_t pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*u %zu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Waits for n bytes.  Returns 1; 0 when the worker ended; else minus the failure. */
enum { TOO_LONG = 1, TOO_MANY, TOO_LARGE };
static const char *const too[] = {"", "took too long", "started too many threads",
                                  "took too much memory"};
static int await(struct worker *w, void *to, size_t n)
{
    clockid_t clock;
    int has_clock = !clock_getcpuclockid(w->pid, &clock);
    double wall = now(CLOCK_MONOTONIC), cpu = has_clock ? now(clock) : 0;
    for (size_t got = 0; got < n;) {
        struct pollfd p = {.fd = w->socket, .events = POLLIN};
        /* on a GPU its limit (jail.c) does not count memory that can be shared */
        if (worker_limits.gpu && memory_of(w->pid) > worker_limits.memory) return -TOO_LARGE;
        int ready = poll(&p, 1, 50);
        if (ready > 0) {
            ssize_t r = read(w->socket, (char *)to + got, n - got);
            if (r <= 0) return 0;
            got += (size_t)r;
            continue;
        }
        w->waited = now(CLOCK_MONOTONIC) - wall > worker_limits.wall_s;
        if (w->waited) return -TOO_LONG;
        if (has_clock && now(clock) - cpu > worker_limits.cpu_s) return -TOO_LONG;
        if (threads_of(w->pid) > THREADS) return -TOO_MANY;
    }
    return 1;
}

int worker_ask(struct worker *w, const struct request *q, struct reply *r)
{
    w->failure[0] = 0;
    w->waited = 0;
    if (w->hangs >= HANGS || w->crashes >= CRASHES) {
        snprintf(w->failure, sizeof w->failure, "not run, after so many that %s",
                 w->hangs >= HANGS ? "took too long" : "crashed");
        return 0;
    }
    if (!w->pid) start(w);
    listen_to(w, 0);
    int done = write(w->socket, q, sizeof *q) == sizeof *q ? await(w, r, sizeof *r) : 0;
    if (done == 1) return 1;
    worker_stop(w, too[-done]);
    if (done < 0) w->hangs++;
    else w->crashes++;
    return 0;
}

int worker_new(struct worker *w, const char *program)
{
    *w = (struct worker){.program = realpath(program, NULL), .words = calloc(1, SAID + 1),
                         .gpu_fd = -1};
    if (!w->program || !w->words) {
        fprintf(stderr, "judge: %s: %s\n", program, strerror(errno));
        exit(3);
    }
    w->region_fd = memfd_create("judge", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (w->region_fd < 0 || ftruncate(w->region_fd, (off_t)region_bytes)) return 0;
    errno = posix_fallocate(w->region_fd, 0, (off_t)region_bytes);
    if (errno || fcntl(w->region_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return 0;
    w->region = mmap(NULL, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->region_fd, 0);
    return w->region != MAP_FAILED;
}
