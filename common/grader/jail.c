/* jail.c: see jail.h. */
#include "jail.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __linux__
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

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

#ifdef THIS_ARCH
#define LOAD(field) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define LOAD_ARGUMENT(i) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, args[i]))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(error) RETURN(SECCOMP_RET_ERRNO | (error))
#define DENY(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), REFUSE(EPERM)

/* Threads may be made, processes not.  clone3 hides its flags from a filter: "not there"
 * makes the C library use clone.  Files may be opened to be read. */
static const struct sock_filter filter[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
#ifdef __x86_64__
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), /* the x32 numbers */
    REFUSE(ENOSYS),
    DENY(fork),
    DENY(vfork),
    DENY(creat),
    DENY(unlink),
    DENY(rename),
    DENY(mkdir),
    DENY(rmdir),
    DENY(link),
    DENY(symlink),
    DENY(chmod),
    DENY(truncate),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 0, 4),
    LOAD_ARGUMENT(1),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1),
    REFUSE(EACCES),
    RETURN(SECCOMP_RET_ALLOW),
#endif
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4),
    LOAD_ARGUMENT(2),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1),
    REFUSE(EACCES),
    RETURN(SECCOMP_RET_ALLOW),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
    LOAD_ARGUMENT(0),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
    REFUSE(EPERM),
    RETURN(SECCOMP_RET_ALLOW),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
    REFUSE(ENOSYS),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 437 /* openat2 */, 0, 1),
    REFUSE(ENOSYS),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 4), /* its own limits only */
    LOAD_ARGUMENT(0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
    REFUSE(EPERM),
    RETURN(SECCOMP_RET_ALLOW),
    DENY(kill),
    DENY(tkill),
    DENY(tgkill),
    DENY(rt_sigqueueinfo),
    DENY(rt_tgsigqueueinfo),
    DENY(pidfd_send_signal),
    DENY(ptrace),
    DENY(process_vm_readv),
    DENY(process_vm_writev),
    DENY(setpgid),
    DENY(setsid),
    DENY(socket),
    DENY(unlinkat),
    DENY(renameat2),
    DENY(mkdirat),
    DENY(linkat),
    DENY(symlinkat),
    DENY(fchmodat),
    DENY(mount),
    DENY(unshare),
    DENY(io_uring_setup),
    RETURN(SECCOMP_RET_ALLOW),
};

static int filter_calls(void)
{
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter};
    program.filter = (struct sock_filter *)filter;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
static int filter_calls(void) { return 0; }
#endif

int jail_enter(const struct limits *limits)
{
    setpgid(0, 0);
    limit(RLIMIT_CPU, (rlim_t)(20 * limits->cpu_s) + 1);
    limit(RLIMIT_AS, limits->memory);
    limit(RLIMIT_FSIZE, 1 << 20);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, 64);
    return filter_calls();
}
