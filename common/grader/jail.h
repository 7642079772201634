/* jail.h: a process that can compute and little else. */
#ifndef JAIL_H
#define JAIL_H

#include <stddef.h>
#include <sys/types.h>

struct limits {
    double cpu_s;      /* processor time of one request; the process gets 20 times that */
    double wall_s;     /* waiting time of one request */
    size_t memory;     /* bytes of address space */
};

/* In the child, before exec: limits of memory, time, file size and core dumps, an own
 * process group, death with its parent, and a system-call filter that refuses new
 * processes, signals, sockets, files opened for writing, and changes of directories.
 * Returns whether the filter is in force. */
int jail_enter(const struct limits *limits);

#endif
