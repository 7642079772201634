/* timing.c: how long one call takes. */
#include "measurement/timing.h"

#include <stdlib.h>
#include <time.h>

#include "gpu/gpu.h"

enum { LEAST = 3, ENOUGH = 20, MOST = 400 };

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double one_call(struct execution *e, int on_gpu)
{
    if (on_gpu) return gpu_time(execution_run_nowait, e, 1);
    double begin = seconds_now();
    execution_run(e);
    return seconds_now() - begin;
}

struct timing timing_of(double *t, int n)
{
    qsort(t, (size_t)n, sizeof t[0], by_size);
    double median = n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
    return (struct timing){.median_s = median, .min_s = t[0], .reps = n,
                           .spread = (t[n - 1 - n / 10] - t[n / 10]) / median};
}

struct timing time_execution(struct execution *e, int on_gpu, double seconds)
{
    double t[MOST], begin = seconds_now();
    int n = 0;
    execution_run(e);
    double first = seconds_now() - begin;
    begin = seconds_now();
    while (n < MOST) {
        /* Twenty are enough, unless they took less than a twentieth of the time. */
        double limit = n < ENOUGH ? seconds : seconds / 20;
        if (n >= LEAST && seconds_now() - begin + first > limit) break;
        t[n++] = one_call(e, on_gpu);
    }
    return timing_of(t, n);
}
