/* jail.c: see jail.h. */
#include "jail.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#if __has_include(<linux/landlock.h>) && defined(SYS_landlock_create_ruleset)
#include <linux/landlock.h>
#define HAVE_LANDLOCK 1
#endif

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif
#endif

static void limit(int what, rlim_t value)
{
    struct rlimit r = {value, value};
    setrlimit(what, &r);
}

/* At its end comes a signal that says so; a second later one that cannot be caught. */
static void limit_cpu(double seconds)
{
    struct rlimit r = {(rlim_t)seconds + 1, (rlim_t)seconds + 2};
    setrlimit(RLIMIT_CPU, &r);
}

#ifdef THIS_ARCH
#define ARGUMENT(i) ((unsigned)offsetof(struct seccomp_data, args[i]))
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define REFUSE(error) RETURN(SECCOMP_RET_ERRNO | (error))
/* Of the next instructions: skips n when what was loaded is not the value. */
#define UNLESS(value, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n)
#define CALL(name) UNLESS(SYS_##name, 1), ALLOW
#define OPEN_TO_READ(name, flags)                                                          \
    UNLESS(SYS_##name, 4), LOAD(ARGUMENT(flags)),                                          \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1), \
        REFUSE(EACCES), ALLOW
/* One argument, of 64 bits, must be this. */
#define WITH(name, i, value)                                                               \
    UNLESS(SYS_##name, 6), LOAD(ARGUMENT(i)), UNLESS((uint32_t)(value), 3),                \
        LOAD(ARGUMENT(i) + 4), UNLESS((uint32_t)((uint64_t)(value) >> 32), 1), ALLOW,      \
        REFUSE(EPERM)

/* The calls that a computation needs: memory, threads, clocks, reading files, the
 * protocol's descriptors.  All others are refused.  Threads may be made, processes not;
 * clone3 hides its flags from a filter: "not there" makes the C library use clone.  Only
 * `program`, at the address where it lies here, may be executed. */
static int filter_calls(const char *program, int one_core)
{
    const struct sock_filter filter[] = {
        LOAD((unsigned)offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD((unsigned)offsetof(struct seccomp_data, nr)),
        CALL(futex), CALL(read), CALL(write), CALL(mmap), CALL(munmap), CALL(mprotect),
        CALL(madvise), CALL(mremap), CALL(brk), CALL(exit), CALL(exit_group),
        CALL(clock_gettime), CALL(clock_getres), CALL(clock_nanosleep), CALL(nanosleep),
        CALL(gettimeofday), CALL(times), CALL(getrusage), CALL(sysinfo), CALL(uname),
        CALL(sched_yield), CALL(sched_getaffinity), CALL(getcpu), CALL(membarrier),
        CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(sigaltstack),
        CALL(restart_syscall), CALL(set_tid_address), CALL(set_robust_list),
        CALL(get_robust_list), CALL(getpid), CALL(getppid), CALL(gettid), CALL(getuid),
        CALL(geteuid), CALL(getgid), CALL(getegid), CALL(getrandom), CALL(close),
        CALL(writev), CALL(lseek), CALL(pread64), CALL(fstat), CALL(newfstatat),
        CALL(statx), CALL(faccessat), CALL(readlinkat), CALL(getdents64), CALL(getcwd),
#ifdef SYS_rseq
        CALL(rseq),
#endif
#ifdef __x86_64__
        CALL(arch_prctl), CALL(access), CALL(stat), CALL(lstat), CALL(readlink), CALL(time),
        CALL(getrlimit), OPEN_TO_READ(open, 1),
#endif
        OPEN_TO_READ(openat, 2),
        UNLESS(SYS_clone, 3), LOAD(ARGUMENT(0)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1), ALLOW,
        LOAD((unsigned)offsetof(struct seccomp_data, nr)),
        UNLESS(SYS_clone3, 1), REFUSE(ENOSYS),
        /* abort(), but not kill -9 of oneself: that is what the system does to whom it has
         * no memory for */
        UNLESS(SYS_tgkill, 6), LOAD(ARGUMENT(0)), UNLESS((uint32_t)getpid(), 3),
        LOAD(ARGUMENT(2)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGKILL, 1, 0), ALLOW,
        REFUSE(EPERM),
        /* ask for a limit of one's own, not set it: under one too small to live, an exec
         * looks like a kill by the system */
        UNLESS(SYS_prlimit64, 8), LOAD(ARGUMENT(0)), UNLESS(0, 5), LOAD(ARGUMENT(2)),
        UNLESS(0, 3), LOAD(ARGUMENT(2) + 4), UNLESS(0, 1), ALLOW, REFUSE(EPERM),
        WITH(sched_setaffinity, 0, one_core ? -1 : 0),
        WITH(prctl, 0, PR_SET_NAME),
        WITH(execve, 0, (uintptr_t)program),
        REFUSE(EPERM),
    };
    struct sock_fprog rules = {.len = sizeof filter / sizeof *filter};
    rules.filter = (struct sock_filter *)filter;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &rules) == 0;
}

/* A copy of the path at an address that nobody can guess. */
static const char *hidden_copy(const char *path)
{
    uint64_t r = 0;
    size_t n = strlen(path) + 1;
    if (syscall(SYS_getrandom, &r, sizeof r, 0) != sizeof r || n > 4096) return path;
    char *page = mmap((void *)(r & 0x3ffffffff000), 8192, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? path : memcpy(page + (r & 0xfff), path, n);
}

/* The last core that we may use; the judge is free to use the others. */
static void take_one_core(void)
{
    cpu_set_t may, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof may, &may)) return;
    for (int i = CPU_SETSIZE - 1; i >= 0 && !CPU_COUNT(&one); i--)
        if (CPU_ISSET(i, &may)) CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* Root's rights but those of opening files: not needed, and they would reach into the
 * judge. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &head, data)) return;
    uint32_t keep = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
    data[0].permitted &= keep;
    data[0].effective &= keep;
    data[0].inheritable = data[1].permitted = data[1].effective = data[1].inheritable = 0;
    syscall(SYS_capset, &head, data);
}
#endif

#if defined(THIS_ARCH) && defined(HAVE_LANDLOCK)
#define TO_READ                                                                            \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |                           \
     LANDLOCK_ACCESS_FS_READ_DIR)
/* the rights of the first version: up to making links */
#define ALL_RIGHTS ((uint64_t)(LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)
#define OF_FILES                                                                           \
    ((uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |                \
                LANDLOCK_ACCESS_FS_WRITE_FILE))

static int new_rules(void)
{
    struct landlock_ruleset_attr all = {ALL_RIGHTS};
    return (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
}

static int may(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access};
    struct stat s;
    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) return 0;
    if (fstat(rule.parent_fd, &s) == 0 && !S_ISDIR(s.st_mode))
        rule.allowed_access &= OF_FILES;
    int failed = (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH,
                              &rule, 0);
    close(rule.parent_fd);
    return !failed;
}

static void may_all(int rules, const char *const *paths, uint64_t access)
{
    for (; *paths; paths++) may(rules, *paths, access);
}

/* Where libraries lie.  Not all of /usr: a course may lie in /usr/src. */
static const char *const libraries[] = {
    "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib",
    "/usr/local/lib64", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/nix/store",
    "/gnu/store", "/sys/devices/system/cpu", NULL};

/* What a compiler needs beyond libraries. */
static const char *const tools[] = {
    "/usr/bin", "/usr/libexec", "/usr/include", "/usr/share/locale", "/usr/local/bin",
    "/usr/local/libexec", "/usr/local/include", "/bin", NULL};

/* From here on only the program and the libraries can be read. */
static int hide_files(const char *program)
{
    int rules = new_rules();
    if (rules < 0) return 0;
    int hidden = may(rules, program, TO_READ);
    may_all(rules, libraries, TO_READ);
    hidden = hidden && syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return hidden;
}

/* From here on only the system's tools, headers and libraries and `readable` can be read,
 * and only below `writable` can be written. */
static int hide_files_from_compiler(const char *const *readable, const char *writable)
{
    int rules = new_rules();
    if (rules < 0) return 0;
    may_all(rules, libraries, TO_READ);
    may_all(rules, tools, TO_READ);
    may_all(rules, readable, TO_READ);
    may(rules, "/dev/null", OF_FILES);
    may(rules, "/dev/urandom", LANDLOCK_ACCESS_FS_READ_FILE);
    int hidden = may(rules, writable, ALL_RIGHTS) &&
                 syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return hidden;
}
#else
static int hide_files(const char *program) { return (void)program, 0; }
static int hide_files_from_compiler(const char *const *readable, const char *writable)
{
    return (void)readable, (void)writable, 0;
}
#endif

int jail_enter(const struct limits *limits, const char **program)
{
    int hidden = 0, filtered = 0;
    setpgid(0, 0);
    if (chdir("/")) return 0;
    limit_cpu(20 * limits->cpu_s);
    limit(RLIMIT_FSIZE, 1 << 20);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, 64);
#ifdef THIS_ARCH
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (limits->one_core) take_one_core();
    drop_capabilities();
    *program = hidden_copy(*program);
    limit(RLIMIT_AS, limits->memory);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
        hidden = limits->hide_files && hide_files(*program);
        filtered = filter_calls(*program, limits->one_core);
    }
#else
    (void)program;
    limit(RLIMIT_AS, limits->memory);
#endif
    return filtered ? 1 + hidden : 0;
}

int jail_compiler(const struct limits *limits, size_t file_bytes,
                  const char *const *readable, const char *writable)
{
    int hidden = 0;
    limit_cpu(limits->cpu_s);
    limit(RLIMIT_FSIZE, file_bytes);
    limit(RLIMIT_CORE, 0);
#ifdef THIS_ARCH
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    drop_capabilities();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        hidden = hide_files_from_compiler(readable, writable);
#else
    (void)readable, (void)writable;
#endif
    limit(RLIMIT_AS, limits->memory);
    return hidden;
}
