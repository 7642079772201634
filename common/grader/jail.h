/* jail.h: a process that can compute and little else. */
#ifndef JAIL_H
#define JAIL_H

#include <stddef.h>
#include <sys/types.h>

struct limits {
    double cpu_s;      /* processor time of one request; the process gets 20 times that */
    double wall_s;     /* waiting time of one request */
    size_t memory;     /* bytes of address space.  CUDA reserves terabytes of addresses: so with gpu,
                        * bytes that the process may write and does not share */
    int one_core;      /* the process has one core and cannot choose another */
    int hide_files;    /* files outside the system's libraries cannot be read */
    int any_call;      /* no filter of system calls: only to find out what a driver needs */
    int gpu;           /* the process may use the GPU's devices */
};

/* In the child, before exec: limits of memory, time, file size and core dumps, an own
 * process group, death with its parent, no rights of root, and a system-call filter that
 * lets through what a computation needs: no new processes or programs, no signals to
 * others, no sockets, no files opened for writing, nothing that outlives the process.
 *   program  absolute path; on return, what to give to exec, which is allowed that alone
 * Returns 0 when the filter could not be put in force, 1 when it is, 2 when files are
 * hidden too (Landlock, Linux 5.13). */
int jail_enter(const struct limits *limits, const char **program);

/* In the child, before it executes a compiler or a linker: limits of processor time,
 * memory and the size of a file, death with its parent, no rights of root; where the kernel
 * has Landlock it reads only the system's tools, headers and libraries and what lies below
 * the paths in `readable` (up to NULL), and writes only below `writable`.
 * Returns whether files are hidden. */
int jail_compiler(const struct limits *limits, size_t file_bytes,
                  const char *const *readable, const char *writable);

#endif
