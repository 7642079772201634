/* jail.c: what limits a student's code.
 *
 *     jail [--threads] [--order O] [--cpu S] [--memory MiB] PROGRAM
 *     jail --compiler [--read PATH]... --write FOLDER -- COMMAND ARGUMENTS
 *     jail --complete
 *
 * The first runs a statically linked program without arguments or environment.  Before it begins, a
 * filter of system calls (seccomp) leaves it memory and the descriptors that it has; the time stamp
 * counter is off.  --threads: it may start threads.  --order: of the
 * threads of kernels, for the executor.  It finds no files: it cannot open any.
 *
 * The second runs a compiler on somebody else's source: of all files it sees the system's tools and
 * headers and each PATH, and writes below FOLDER (Landlock, Linux 5.13).  Neither needs root.
 *
 * --complete: are both in force on this machine?  Exit status 0: yes; 1: no filter; 2: no Landlock.
 * Other exit statuses are the program's; 127: there is none. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif

enum { MOST_PATHS = 64, PRINTED_BYTES = 1 << 20, COMPILED_BYTES = 32 << 20 };

struct jail {
    int compiler, threads, complete, n_read;
    size_t cpu_s, memory_mib;
    const char *read[MOST_PATHS], *write, *order;
};

static void limit(int what, size_t value)
{
    setrlimit(what, &(struct rlimit){(rlim_t)value, (rlim_t)value});
}

static void limit_all(const struct jail *j)
{
    limit(RLIMIT_CPU, j->cpu_s);
    limit(RLIMIT_FSIZE, j->compiler ? COMPILED_BYTES : PRINTED_BYTES);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_AS, j->memory_mib << 20);
}

/* --- the compiler: files --- */

#ifdef LANDLOCK_ACCESS_FS_EXECUTE
#define TO_READ                                                                            \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define TO_WRITE ((uint64_t)(LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) /* all of version 1 */
#define OF_FILES                                                                           \
    ((uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |                \
                LANDLOCK_ACCESS_FS_WRITE_FILE))
/* Not all of /usr: a course may lie in /usr/src. */
static const char *const tools[] = {
    "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib", "/usr/local/lib64", "/lib",
    "/lib32", "/lib64", "/etc/ld.so.cache", "/nix/store", "/gnu/store", "/usr/bin", "/usr/libexec",
    "/usr/include", "/usr/local/bin", "/usr/local/libexec", "/usr/local/include", "/bin",
    "/dev/urandom", NULL};

static int may(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access};
    struct stat s;
    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) return 0;
    if (fstat(rule.parent_fd, &s) == 0 && !S_ISDIR(s.st_mode)) rule.allowed_access &= OF_FILES;
    long failed = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(rule.parent_fd);
    return !failed;
}

static int hide_files(const struct jail *j)
{
    struct landlock_ruleset_attr all = {TO_WRITE};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return 0;
    for (const char *const *path = tools; *path; path++) may(rules, *path, TO_READ);
    may(rules, "/dev/null", OF_FILES);
    for (int i = 0; i < j->n_read; i++) may(rules, j->read[i], TO_READ);
    int hidden = !j->write || may(rules, j->write, TO_WRITE);
    hidden = hidden && syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return hidden;
}
#else
static int hide_files(const struct jail *j) { return (void)j, 0; }
#endif

/* --- the student's program: system calls --- */

#ifdef __x86_64__
#define THIS_ARCH AUDIT_ARCH_X86_64
#define OF_THIS_ARCH SYS_arch_prctl,
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#define OF_THIS_ARCH
#endif

#ifdef THIS_ARCH
/* Memory, the descriptors that are open, signals to itself, its own end.  All else is refused. */
static const int allowed[] = {
    OF_THIS_ARCH SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap,
    SYS_mremap, SYS_mprotect, SYS_madvise, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_sigaltstack, SYS_futex, SYS_set_tid_address, SYS_set_robust_list, SYS_rseq, SYS_sched_yield,
    SYS_sched_getaffinity, SYS_execve /* of the program; another finds nothing either */};

#define N_OF(a) (sizeof(a) / sizeof *(a))
#define LOAD(field)                                                                        \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define REFUSE(error) RETURN(SECCOMP_RET_ERRNO | (error))
/* Skips n instructions when what was loaded is not the value. */
#define UNLESS(value, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), 0, n)

static int filter_calls(const struct jail *j)
{
    const struct sock_filter first[] = {
        LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr),
        UNLESS(SYS_clone3, 1), REFUSE(ENOSYS), /* the C library then takes clone */
    }, last[] = {
        UNLESS(j->threads ? SYS_clone : -1, 4), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1), ALLOW, REFUSE(EPERM),
        REFUSE(EPERM),
    };
    struct sock_filter f[N_OF(first) + N_OF(last) + 2 * N_OF(allowed)];
    size_t n = N_OF(first);
    memcpy(f, first, sizeof first);
    for (size_t i = 0; i < N_OF(allowed); i++) {
        f[n++] = (struct sock_filter)UNLESS(allowed[i], 1);
        f[n++] = (struct sock_filter)ALLOW;
    }
    memcpy(f + n, last, sizeof last);
    struct sock_fprog rules = {.len = (unsigned short)N_OF(f), .filter = f};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &rules) == 0;
}
#else
static int filter_calls(const struct jail *j) { return (void)j, 0; }
#endif

/* The command behind the options, or NULL. */
static char **read_options(struct jail *j, char **word)
{
    for (; *word && !strncmp(*word, "--", 2); word++) {
        int has = word[1] != NULL;
        if (!strcmp(*word, "--")) return word[1] ? word + 1 : NULL;
        if (!strcmp(*word, "--compiler")) j->compiler = 1;
        else if (!strcmp(*word, "--complete")) j->complete = 1;
        else if (!strcmp(*word, "--threads")) j->threads = 1;
        else if (!strcmp(*word, "--cpu") && has) j->cpu_s = strtoull(*++word, NULL, 10);
        else if (!strcmp(*word, "--memory") && has) j->memory_mib = strtoull(*++word, NULL, 10);
        else if (!strcmp(*word, "--order") && has) j->order = *++word;
        else if (!strcmp(*word, "--write") && has) j->write = *++word;
        else if (!strcmp(*word, "--read") && has && j->n_read < MOST_PATHS)
            j->read[j->n_read++] = *++word;
        else return NULL;
    }
    return *word ? word : NULL;
}

int main(int argc, char **argv)
{
    struct jail j = {.cpu_s = 30, .memory_mib = 3072};
    char **command = argc ? read_options(&j, argv + 1) : NULL;
    if (!command && !j.complete) {
        fprintf(stderr, "usage: jail [--threads] [--order O] [--cpu S] [--memory MiB] PROGRAM | jail --compiler "
                        "[--read PATH]... --write FOLDER -- COMMAND | jail --complete\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (j.complete) return !hide_files(&j) ? 2 : !filter_calls(&j);
    limit_all(&j); /* before the filter, which lets nobody set limits */
    if (j.compiler) {
        hide_files(&j);
        execvp(*command, command);
    } else {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
        if (!filter_calls(&j)) return 127;
        char order[64];
        snprintf(order, sizeof order, "CUDA_ON_CPU_ORDER=%s", j.order ? j.order : "");
        execve(*command, (char *[]){"answer", NULL}, (char *[]){"OMP_NUM_THREADS=1", order, NULL});
    }
    fprintf(stderr, "jail: %s: %s\n", *command, strerror(errno));
    return 127;
}
