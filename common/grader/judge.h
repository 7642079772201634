/* judge.h: a worker as the judge's files see it. */
#ifndef JUDGE_H
#define JUDGE_H

#include <sys/types.h>

#include "jail.h"
#include "protocol.h"

struct worker {
    const char *program;    /* absolute path */
    pid_t pid;              /* 0: not running */
    int socket, said;       /* said: what it writes to stderr */
    char *region;           /* region_bytes, shared */
    int region_fd;
    int jailed, crashes, hangs;
    int waited;             /* the last request took too long by the clock on the wall */
    char failure[120];      /* why the last request was not answered, or "" */
    char *words;            /* from stderr, of the first failure */
    size_t n_words;
};

extern size_t region_bytes;

/* One request.  Returns whether it was answered; if not, w->failure says why. */
int ask(struct worker *w, const struct request *q, struct reply *r);

/* Ends the judge: what failed is not the submission. */
_Noreturn void machine_fails(const char *what, const char *why);

/* How fast is a worker, in turn with the solution (NULL: there is none)?  `work` is softmax:ROWSxCOLS or attention:HEADSxSEQLENxDIM.  Prints
 * a line `timed` or `untimed` (judge.c).  Returns 2 when `work` means nothing. */
int time_worker(struct worker *w, struct worker *solution, const char *work, int runs);
enum { TIMED_BYTES = 1 << 28 }; /* of the shared file; more work than fits in is refused */

#endif
