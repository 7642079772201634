/* jail.c: what limits a student's code.
 *
 *     jail [-t] PROGRAM                                  -t: it may start threads
 *     jail -c [-s SECONDS] [-r PATH]... [-w FOLDER] COMMAND ARGUMENTS
 *     jail -k
 *
 * The first runs a statically linked program without arguments.  Before it begins, a filter of system
 * calls (seccomp) leaves it memory and the descriptors that it has; the time stamp counter is off.  It
 * finds no files: it cannot open any.
 *
 * The second runs a compiler on somebody else's source: of all files it sees the system's tools and
 * headers and each PATH, and writes below FOLDER (Landlock, Linux 5.13).  Neither needs root.
 *
 * -k: are both in force on this machine?  Exit status 0: yes; 1: no filter; 2: no Landlock.
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

static void limit(int what, size_t value)
{
    setrlimit(what, &(struct rlimit){(rlim_t)value, (rlim_t)value});
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

/* From now on only what may() adds to these rules can be reached, once they are in force; -1: no Landlock. */
static int new_rules(void)
{
    struct landlock_ruleset_attr all = {TO_WRITE};
    return (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
}

static void may(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access};
    struct stat s;
    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) return;
    if (fstat(rule.parent_fd, &s) == 0 && !S_ISDIR(s.st_mode)) rule.allowed_access &= OF_FILES;
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(rule.parent_fd);
}

static int hide_files(int rules)
{
    for (const char *const *path = tools; *path; path++) may(rules, *path, TO_READ);
    may(rules, "/dev/null", OF_FILES);
    return syscall(SYS_landlock_restrict_self, rules, 0) == 0;
}
#else
enum { TO_READ, TO_WRITE };
static int new_rules(void) { return -1; }
static void may(int rules, const char *path, int access) { (void)rules, (void)path, (void)access; }
static int hide_files(int rules) { return (void)rules, 0; }
#endif

/* --- the student's program: system calls --- */

#ifdef __x86_64__
#define THIS_ARCH AUDIT_ARCH_X86_64
#define OF_THIS_ARCH SYS_arch_prctl
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#define OF_THIS_ARCH SYS_brk
#endif

#ifdef THIS_ARCH
#define LOAD(field)                                                                        \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(error) RETURN(SECCOMP_RET_ERRNO | (error))
/* Skips n instructions when what was loaded is not the value. */
#define UNLESS(value, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), 0, n)
#define MAY(call) UNLESS(call, 1), RETURN(SECCOMP_RET_ALLOW)

/* Memory, the descriptors that are open, signals to itself, its own end.  All else is refused. */
static int filter_calls(int threads)
{
    struct sock_filter f[] = {
        LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr),
        MAY(SYS_read), MAY(SYS_write), MAY(SYS_exit), MAY(SYS_exit_group), MAY(SYS_brk), MAY(SYS_mmap),
        MAY(SYS_munmap), MAY(SYS_mremap), MAY(SYS_mprotect), MAY(SYS_madvise), MAY(SYS_rt_sigaction),
        MAY(SYS_rt_sigprocmask), MAY(SYS_rt_sigreturn), MAY(SYS_sigaltstack), MAY(SYS_futex),
        MAY(SYS_set_tid_address), MAY(SYS_set_robust_list), MAY(SYS_rseq), MAY(SYS_sched_yield),
        MAY(SYS_sched_getaffinity), MAY(OF_THIS_ARCH), MAY(SYS_execve), /* another program finds nothing either */
        UNLESS(SYS_clone3, 1), REFUSE(ENOSYS), /* the C library then takes clone */
        UNLESS(threads ? SYS_clone : -1, 3), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1), RETURN(SECCOMP_RET_ALLOW),
        REFUSE(EPERM),
    };
    struct sock_fprog rules = {.len = sizeof f / sizeof *f, .filter = f};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &rules) == 0;
}
#else
static int filter_calls(int threads) { return (void)threads, 0; }
#endif

int main(int argc, char **argv)
{
    int compiler = 0, threads = 0, complete = 0, rules = new_rules();
    size_t cpu_s = 600;
    for (int option; (option = getopt(argc, argv, "+ctks:r:w:")) != -1;)
        switch (option) {
        case 'c': compiler = 1; break;
        case 't': threads = 1; break;
        case 'k': complete = 1; break;
        case 's': cpu_s = strtoull(optarg, NULL, 10); break;
        case 'r': may(rules, optarg, TO_READ); break;
        case 'w': may(rules, optarg, TO_WRITE); break;
        default: return 2;
        }
    char **command = argv + optind;
    if (optind >= argc && !complete)
        return fprintf(stderr, "usage: jail [-t] PROGRAM | jail -c ... COMMAND | jail -k\n"), 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (complete) return !hide_files(rules) ? 2 : !filter_calls(0);
    limit(RLIMIT_CPU, cpu_s); /* before the filter, which lets nobody set limits */
    limit(RLIMIT_FSIZE, compiler ? 32 << 20 : 1 << 20);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_AS, (compiler ? 3072UL : 1024UL) << 20);
    if (compiler) {
        hide_files(rules);
        execvp(*command, command);
    } else {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
        if (!filter_calls(threads)) return 127;
        execv(*command, (char *[]){"answer", NULL});
    }
    fprintf(stderr, "jail: %s: %s\n", *command, strerror(errno));
    return 127;
}
