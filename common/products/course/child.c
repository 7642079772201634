/* child.c: the process in which a student's code runs.  jail.c started it: it has memory, the judge on
 * descriptor 0 and its own words on descriptor 1, and nothing else.  It gets the arguments of one call
 * at a time, calls answer(), which ends every exercise, and sends what came out.  The right answers are
 * in another process.
 *
 * Every array ends at a page that cannot be accessed, so an index behind its end is a crash.  Outputs
 * hold 0xff00dead, a large number, before the call. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "course/exercise.h"

enum { READY = 'r', DONE = 'd', PAGE = 4096 }; /* what it says by itself; an exercise has other letters */
static const uint32_t UNWRITTEN = 0xff00dead;

static void receive(void *to, size_t bytes)
{
    for (char *p = to; bytes;) {
        ssize_t n = read(0, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0); /* the judge has no more calls */
        p += n, bytes -= (size_t)n;
    }
}

static void put(const void *from, size_t bytes)
{
    for (const char *p = from; bytes;) {
        ssize_t n = write(0, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0);
        p += n, bytes -= (size_t)n;
    }
}

/* Memory of an array of n floats: whole pages, the last of which cannot be accessed. */
struct memory { char *pages; size_t bytes; };

static float *array(struct memory *m, size_t n)
{
    size_t used = (n * sizeof(float) + PAGE - 1) / PAGE * PAGE;
    m->bytes = used + PAGE;
    m->pages = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->pages == MAP_FAILED || mprotect(m->pages + used, PAGE, PROT_NONE)) abort();
    return (float *)(m->pages + used) - n;
}

/* Every message: what, two numbers, how many floats, the floats. */
static void say(int what, long a, long b, size_t n)
{
    put((int64_t[]){what, a, b, (int64_t)n}, 4 * sizeof(int64_t));
}

int ask(int what, long a, long b, const float *send, size_t n_send, float *to, size_t n_to)
{
    int64_t n;
    say(what, a, b, n_send);
    put(send, n_send * sizeof *send);
    receive(&n, sizeof n);
    if (n < 0) return 0;
    if ((size_t)n != n_to) abort();
    receive(to, n_to * sizeof *to);
    return 1;
}

/* One call.  The judge sends how many numbers, inputs and outputs there are, the numbers, the lengths of all
 * arrays, and the inputs; the first of them when all is READY, so that nothing is computed before. */
static void serve(const int64_t *head)
{
    int64_t numbers[MOST_NUMBERS], lengths[2 * MOST_ARRAYS];
    size_t n_in = (size_t)head[1], n_arrays = n_in + (size_t)head[2], n_out = 0;
    struct memory memory[2 * MOST_ARRAYS];
    float *arrays[2 * MOST_ARRAYS];
    struct call c = {0};
    receive(numbers, (size_t)head[0] * sizeof *numbers);
    receive(lengths, n_arrays * sizeof *lengths);
    for (int i = 0; i < head[0]; i++) c.n[i] = (long)numbers[i];
    for (size_t t = 0; t < n_arrays; t++) {
        size_t n = (size_t)lengths[t];
        arrays[t] = array(&memory[t], n);
        for (size_t i = 0; i < n; i++) memcpy(arrays[t] + i, &UNWRITTEN, sizeof UNWRITTEN);
        if (t < n_in) c.x[t] = arrays[t];
        else c.y[t - n_in] = arrays[t], n_out += n;
        if (t && t < n_in) receive(arrays[t], n * sizeof(float));
    }
    ask(READY, 0, 0, NULL, 0, n_in ? arrays[0] : NULL, n_in ? (size_t)lengths[0] : 0);
    answer(&c);
    say(DONE, 0, 0, n_out);
    for (size_t t = n_in; t < n_arrays; t++) put(arrays[t], (size_t)lengths[t] * sizeof(float));
    for (size_t t = 0; t < n_arrays; t++) munmap(memory[t].pages, memory[t].bytes);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    for (;;) {
        int64_t head[3];
        receive(head, sizeof head);
        serve(head);
    }
}
