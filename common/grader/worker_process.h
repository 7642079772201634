/* worker_process.h: a worker as the judge sees it: a process that is asked and answers. */
#ifndef WORKER_PROCESS_H
#define WORKER_PROCESS_H

#include <sys/types.h>

#include "jail.h"
#include "protocol.h"

struct worker {
    const char *program;    /* absolute path */
    pid_t pid;              /* 0: not running */
    int socket, said;       /* said: what it writes to stderr */
    char *region;           /* region_bytes, shared */
    int region_fd, gpu_fd;  /* gpu_fd: of the judge's memory on the GPU; -1: none */
    int jailed, crashes, hangs;
    int waited;             /* the last request took too long by the clock on the wall */
    char failure[120];      /* why the last request was not answered, or "" */
    char *words;            /* from stderr, of the first failure */
    size_t n_words;
};

/* Of every worker.  Set before the first worker_new(). */
extern struct limits worker_limits;
extern size_t region_bytes;

/* Prepares a worker and its shared file: memory of a size that cannot be changed and that
 * is there, so that nobody is killed for touching it.  The first request starts the process.
 * Returns 0 when there is no such memory (errno). */
int worker_new(struct worker *w, const char *program);

/* One request.  Returns whether it was answered; if not, w->failure says why.  A worker
 * that crashed or took too long is started again by the next request, CRASHES and HANGS
 * times in all. */
int worker_ask(struct worker *w, const struct request *q, struct reply *r);

/* Ends the worker, with all that is in its group; notes why. */
void worker_stop(struct worker *w, const char *why);

/* Ends the judge: what failed is not the submission. */
__attribute__((noreturn)) void machine_fails(const char *what, const char *why);

#endif
