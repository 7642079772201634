/* jail.c: runs a program that may compute, and little else.
 *
 *     jail [--compiler | --gpu] [--cpu S] [--memory MiB] [--core] [--read PATH]...
 *          --write FOLDER -- COMMAND ARGUMENTS
 *     jail --complete
 *
 * The program reads the libraries of the system, itself and each PATH, and writes below FOLDER
 * (Landlock, Linux 5.13).  It starts no thread, no process and no connection, sends no signal and
 * changes no limit (seccomp).  Both work without root and inside a container, where namespaces
 * (bubblewrap, unshare) are often forbidden.
 *
 *   --compiler  a compiler on somebody else's source: it reads the system's tools and headers
 *               too, and starts its parts
 *   --gpu       it reaches the GPU's devices and starts threads, as CUDA does.  CUDA reserves
 *               terabytes of addresses: --memory then counts what is written
 *   --memory    of addresses; a sixteenth of it is the largest file it may write
 *   --core      it has one core and cannot choose another
 *   --complete  is all of that in force on this machine?  Exit status: 0 yes; 1 no filter of
 *               system calls; 2 files cannot be hidden
 *
 * Other exit statuses are the program's; 127: there is none. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif

enum { MOST_PATHS = 64, COMPILED_MIB = 16, OPEN_FILES = 1024 };

struct jail {
    int compiler, gpu, one_core;
    double cpu_s;
    size_t memory_mib;
    const char *read[MOST_PATHS], *write, *program;
    int n_read;
};

static void limit(int what, size_t value)
{
    setrlimit(what, &(struct rlimit){(rlim_t)value, (rlim_t)value});
}

/* At the end of the processor time comes a signal that says so, then one that cannot be caught. */
static void limit_all(const struct jail *j)
{
    rlim_t seconds = (rlim_t)j->cpu_s + 1;
    setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds + 1});
    limit(RLIMIT_FSIZE, (j->compiler ? COMPILED_MIB : j->memory_mib / 16) << 20);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, OPEN_FILES);
    limit(j->gpu ? RLIMIT_DATA : RLIMIT_AS, j->memory_mib << 20);
}

/* The last core that we may use: the judge is free to use the others. */
static void take_one_core(void)
{
    cpu_set_t may, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof may, &may)) return;
    for (int i = CPU_SETSIZE - 1; i >= 0 && !CPU_COUNT(&one); i--)
        if (CPU_ISSET(i, &may)) CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* Root's rights but those of opening files. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &head, data)) return;
    uint32_t keep = data[0].permitted & (1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    memset(data, 0, sizeof data);
    data[0].permitted = data[0].effective = keep;
    syscall(SYS_capset, &head, data);
}

/* --- files --- */

#ifdef LANDLOCK_ACCESS_FS_EXECUTE
#define TO_READ                                                                            \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define TO_WRITE ((uint64_t)(LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) /* all of version 1 */
#define OF_FILES                                                                           \
    ((uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |                \
                LANDLOCK_ACCESS_FS_WRITE_FILE))

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

static void may_all(int rules, const char *const *paths, uint64_t access)
{
    for (; *paths; paths++) may(rules, *paths, access);
}

/* Where libraries lie.  Not all of /usr: a course may lie in /usr/src. */
static const char *const libraries[] = {
    "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib",
    "/usr/local/lib64", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/nix/store",
    "/gnu/store", "/sys/devices/system/cpu", NULL};
static const char *const tools[] = {
    "/usr/bin", "/usr/libexec", "/usr/include", "/usr/share/locale", "/usr/local/bin",
    "/usr/local/libexec", "/usr/local/include", "/bin", "/dev/urandom", NULL};
static const char *const driver[] = {
    "/proc/self", "/proc/driver", "/proc/devices", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/modules", "/proc/stat", "/proc/filesystems", "/proc/sys/vm", "/sys",
    "/usr/local/cuda", "/usr/local/nvidia", "/run/opengl-driver", "/etc/nvidia", NULL};
static const char *const devices[] = {
    "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia4",
    "/dev/nvidia5", "/dev/nvidia6", "/dev/nvidia7", "/dev/nvidiactl", "/dev/nvidia-uvm",
    "/dev/nvidia-caps", NULL};

static int hide_files(const struct jail *j)
{
    struct landlock_ruleset_attr all = {TO_WRITE};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return 0;
    may_all(rules, libraries, TO_READ);
    if (j->compiler) may_all(rules, tools, TO_READ);
    if (j->gpu) {
        may_all(rules, driver, TO_READ);
        may_all(rules, devices, OF_FILES);
        may(rules, "/proc/self/task", LANDLOCK_ACCESS_FS_WRITE_FILE); /* names of threads */
    }
    may(rules, "/dev/null", OF_FILES);
    for (int i = 0; i < j->n_read; i++) may(rules, j->read[i], TO_READ);
    if (j->program) may(rules, j->program, TO_READ);
    int hidden = !j->write || may(rules, j->write, TO_WRITE);
    hidden = hidden && syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return hidden;
}
#else
static int hide_files(const struct jail *j) { return (void)j, 0; }
#endif

/* --- system calls --- */

#ifdef __x86_64__
#define THIS_ARCH AUDIT_ARCH_X86_64
#define OF_THIS_ARCH                                                                       \
    SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_mknod, SYS_utime, SYS_symlink,
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#define OF_THIS_ARCH
#endif

#ifdef THIS_ARCH
/* What reaches out of the process, or changes the jail. */
static const int denied[] = {
    OF_THIS_ARCH SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kill, SYS_tkill,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_connect, SYS_accept, SYS_accept4,
    SYS_execveat, SYS_setsid, SYS_setpgid, SYS_setpriority, SYS_unshare, SYS_setns, SYS_mount,
    SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_setrlimit, SYS_shmget, SYS_shmat, SYS_msgget,
    SYS_semget, SYS_mq_open, SYS_symlinkat, SYS_truncate, SYS_fchmodat, SYS_fchown,
    SYS_fchownat, SYS_mknodat, SYS_setxattr, SYS_utimensat, SYS_sched_setaffinity, SYS_sched_setscheduler,
    SYS_sched_setparam, SYS_io_uring_setup, SYS_pidfd_open, SYS_pidfd_send_signal,
    SYS_inotify_init1, SYS_fanotify_init, SYS_prctl /* its own is over */};
static const int without_gpu[] = {SYS_socket, SYS_socketpair, SYS_clone, SYS_memfd_create};

#define LOAD(field)                                                                        \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(error) RETURN(SECCOMP_RET_ERRNO | (error))
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
/* Skips n instructions when what was loaded is not the value. */
#define UNLESS(value, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), 0, n)

static size_t deny(struct sock_filter *f, const int *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        f[2 * i] = (struct sock_filter)UNLESS(calls[i], 1);
        f[2 * i + 1] = (struct sock_filter)REFUSE(EPERM);
    }
    return 2 * n;
}

#define N_OF(a) (sizeof(a) / sizeof *(a))
static int filter_calls(const struct jail *j)
{
    const struct sock_filter first[] = {
        LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr),
        /* numbers of another calling convention, x32 */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), REFUSE(ENOSYS),
        UNLESS(SYS_clone3, 1), REFUSE(ENOSYS), /* the C library then takes clone */
    }, last[] = {
        /* of CUDA: threads, not processes */
        UNLESS(SYS_clone, 4), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1), ALLOW, REFUSE(EPERM),
        UNLESS(SYS_tgkill, 4), LOAD(args[0]), UNLESS(getpid(), 1), ALLOW, REFUSE(EPERM),
        UNLESS(SYS_prlimit64, 4), LOAD(args[2]), UNLESS(0, 1), ALLOW, REFUSE(EPERM),
        ALLOW,
    };
    static struct sock_filter f[N_OF(first) + N_OF(last) + 2 * N_OF(denied) +
                                2 * N_OF(without_gpu)];
    size_t n = N_OF(first);
    memcpy(f, first, sizeof first);
    n += deny(f + n, denied, N_OF(denied) - (size_t)j->gpu);
    if (!j->gpu) n += deny(f + n, without_gpu, N_OF(without_gpu));
    memcpy(f + n, last, sizeof last);
    struct sock_fprog rules = {.len = (unsigned short)(n + N_OF(last)), .filter = f};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &rules) == 0;
}
#else
static int filter_calls(const struct jail *j) { return (void)j, 0; }
#endif

/* The command behind the options, or NULL. */
static char **read_options(struct jail *j, char **word)
{
    for (; *word && strcmp(*word, "--"); word++) {
        int has = word[1] != NULL;
        if (!strcmp(*word, "--compiler")) j->compiler = 1;
        else if (!strcmp(*word, "--gpu")) j->gpu = 1;
        else if (!strcmp(*word, "--core")) j->one_core = 1;
        else if (!strcmp(*word, "--cpu") && has) j->cpu_s = atof(*++word);
        else if (!strcmp(*word, "--memory") && has)
            j->memory_mib = strtoull(*++word, NULL, 10);
        else if (!strcmp(*word, "--write") && has) j->write = *++word;
        else if (!strcmp(*word, "--read") && has && j->n_read < MOST_PATHS)
            j->read[j->n_read++] = *++word;
        else return NULL;
    }
    int right = *word && word[1] && j->write && j->cpu_s > 0 && j->memory_mib > 0;
    return right ? word + 1 : NULL;
}

int main(int argc, char **argv)
{
    struct jail j = {.cpu_s = 30, .memory_mib = 2048};
    int ask = argc == 2 && !strcmp(argv[1], "--complete");
    char **command = ask ? NULL : read_options(&j, argv + 1);
    if (!ask && !command) {
        fprintf(stderr, "usage: jail [--compiler|--gpu] [--cpu S] [--memory MiB] [--core] "
                        "[--read PATH]... --write FOLDER -- COMMAND ARGUMENTS\n");
        return 2;
    }
    if (!ask && !j.compiler) j.program = *command;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (j.one_core) take_one_core();
    drop_capabilities();
    if (!ask) limit_all(&j); /* before the filter, which lets nobody set limits */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int hidden = hide_files(&j), filtered = j.compiler || filter_calls(&j);
    if (ask) return !filtered ? 1 : !hidden ? 2 : 0;
    execvp(*command, command);
    fprintf(stderr, "jail: %s: %s\n", *command, strerror(errno));
    return 127;
}
