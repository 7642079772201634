/* system_calls.h: which calls of the system a jailed process may make (Linux, seccomp). */
#ifndef SYSTEM_CALLS_H
#define SYSTEM_CALLS_H

#ifdef __linux__
#include <linux/audit.h>
#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif
#endif

/* What a computation needs: memory, threads, clocks, reading files, the protocol's descriptors.
 * All others are refused.  Threads may be made, processes not; clone3 hides its flags from a
 * filter: "not there" makes the C library use clone.  Only `program`, at the address where it
 * lies here, may be executed.  Returns whether the filter is in force. */
int filter_calls(const char *program, int one_core);

/* What the driver of a GPU calls is no short list, and changes.  So here all is allowed but what
 * makes processes, reaches into others, connects, or changes the jail. */
int filter_calls_of_gpu(const char *program);

#endif
