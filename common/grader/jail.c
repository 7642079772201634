/* jail.c: see jail.h. */
#include "jail.h"

#include "system_calls.h"

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
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#if __has_include(<linux/landlock.h>) && defined(SYS_landlock_create_ruleset)
#include <linux/landlock.h>
#define HAVE_LANDLOCK 1
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

/* What the driver of a GPU needs beyond libraries, to read and to write. */
static const char *const devices_read[] = {
    "/proc/self", "/proc/driver", "/proc/devices", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/modules", "/proc/stat", "/proc/filesystems", "/proc/sys/vm", "/sys",
    "/usr/local/cuda", "/usr/local/nvidia", "/run/opengl-driver", "/etc/nvidia", NULL};
static const char *const devices[] = {
    "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia4",
    "/dev/nvidia5", "/dev/nvidia6", "/dev/nvidia7", "/dev/nvidiactl", "/dev/nvidia-uvm",
    "/dev/nvidia-caps", "/dev/null", NULL};
/* The driver gives its threads names, in task/NUMBER/comm, and fails if it may not.  What is
 * written here ends with the process. */
static const char own_threads[] = "/proc/self/task";

static void may_use_gpu(int rules)
{
    may_all(rules, devices_read, TO_READ);
    may_all(rules, devices, OF_FILES);
    may(rules, own_threads, LANDLOCK_ACCESS_FS_WRITE_FILE);
}

/* From here on only the program and the libraries can be read. */
static int hide_files(const char *program, int gpu)
{
    int rules = new_rules();
    if (rules < 0) return 0;
    int hidden = may(rules, program, TO_READ);
    may_all(rules, libraries, TO_READ);
    if (gpu) may_use_gpu(rules);
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
static int hide_files(const char *program, int gpu) { return (void)program, (void)gpu, 0; }
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
    limit(RLIMIT_NOFILE, limits->gpu ? 1024 : 64); /* CUDA opens its devices many times */
#ifdef THIS_ARCH
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (limits->one_core) take_one_core();
    drop_capabilities();
    *program = hidden_copy(*program);
    limit(limits->gpu ? RLIMIT_DATA : RLIMIT_AS, limits->memory);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
        hidden = limits->hide_files && hide_files(*program, limits->gpu);
        filtered = limits->any_call ? 0
                   : limits->gpu    ? filter_calls_of_gpu(*program)
                                    : filter_calls(*program, limits->one_core);
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
