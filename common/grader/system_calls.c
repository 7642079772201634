/* system_calls.c: see system_calls.h. */
#include "system_calls.h"

#ifdef THIS_ARCH
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

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
#define DENY(name) UNLESS(SYS_##name, 1), REFUSE(EPERM)
/* One argument, of 64 bits, must be this. */
#define WITH(name, i, value)                                                               \
    UNLESS(SYS_##name, 6), LOAD(ARGUMENT(i)), UNLESS((uint32_t)(value), 3),                \
        LOAD(ARGUMENT(i) + 4), UNLESS((uint32_t)((uint64_t)(value) >> 32), 1), ALLOW,      \
        REFUSE(EPERM)

/* A socket within this machine whose two ends are connected before anything is sent.  CUDA binds one
 * when it starts, and fails if it may not.  Nobody may connect. */
#define LOCAL(name)                                                                        \
    UNLESS(SYS_##name, 8), LOAD(ARGUMENT(0)), UNLESS(AF_UNIX, 5), LOAD(ARGUMENT(1)),       \
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),                                          \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0), UNLESS(SOCK_SEQPACKET, 1), \
        ALLOW, REFUSE(EAFNOSUPPORT)

/* See system_calls.h. */
int filter_calls(const char *program, int one_core)
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

int filter_calls_of_gpu(const char *program)
{
    const struct sock_filter filter[] = {
        LOAD((unsigned)offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD((unsigned)offsetof(struct seccomp_data, nr)),
        /* numbers of another calling convention, x32 */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), REFUSE(ENOSYS),
        DENY(ptrace), DENY(process_vm_readv), DENY(process_vm_writev), DENY(kill), DENY(tkill),
        DENY(rt_sigqueueinfo), DENY(rt_tgsigqueueinfo), DENY(connect), DENY(accept), DENY(accept4),
        DENY(execveat), DENY(setsid),
        DENY(setpgid), DENY(unshare), DENY(setns), DENY(mount), DENY(umount2), DENY(pivot_root),
        DENY(chroot), DENY(bpf), DENY(perf_event_open), DENY(userfaultfd), DENY(keyctl),
        DENY(add_key), DENY(request_key), DENY(setrlimit), DENY(shmget), DENY(msgget),
        DENY(semget), DENY(mq_open), DENY(truncate), DENY(chmod), DENY(fchmodat), DENY(chown),
        DENY(fchownat), DENY(setxattr), DENY(utimensat), DENY(sched_setaffinity),
#ifdef SYS_io_uring_setup
        DENY(io_uring_setup), DENY(pidfd_open), DENY(pidfd_send_signal),
#endif
#ifdef SYS_pidfd_getfd
        DENY(pidfd_getfd),
#endif
#ifdef __x86_64__
        DENY(fork), DENY(vfork),
#endif
        UNLESS(SYS_clone3, 1), REFUSE(ENOSYS),
        UNLESS(SYS_clone, 4), LOAD(ARGUMENT(0)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1), ALLOW, REFUSE(EPERM),
        UNLESS(SYS_tgkill, 6), LOAD(ARGUMENT(0)), UNLESS((uint32_t)getpid(), 3),
        LOAD(ARGUMENT(2)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGKILL, 1, 0), ALLOW,
        REFUSE(EPERM),
        UNLESS(SYS_prlimit64, 8), LOAD(ARGUMENT(0)), UNLESS(0, 5), LOAD(ARGUMENT(2)),
        UNLESS(0, 3), LOAD(ARGUMENT(2) + 4), UNLESS(0, 1), ALLOW, REFUSE(EPERM),
        WITH(execve, 0, (uintptr_t)program),
        LOCAL(socket), LOCAL(socketpair),
        ALLOW,
    };
    struct sock_fprog rules = {.len = sizeof filter / sizeof *filter};
    rules.filter = (struct sock_filter *)filter;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &rules) == 0;
}
#endif
