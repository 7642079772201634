/* test_host_memory.c: the peak that `bench` reports counts the arrays, whatever an earlier
 * problem has left behind. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "problem/host_memory.h"

Test(host_memory, peak_counts_what_was_in_use_at_once)
{
    for (size_t n = 100; n < (size_t)64 << 20; n *= 8) {
        char *first = memory_new(n);
        memory_peak_reset();
        size_t before = memory_peak();
        char *second = memory_new(2 * n);
        cr_assert(first && second && (uintptr_t)first % 1024 == 0);
        first[n - 1] = second[2 * n - 1] = 1;
        memory_free(first);
        char *third = memory_new(n / 2); /* fits into what first has left */
        cr_expect(memory_peak() - before == 2 * n, "%zu for %zu", memory_peak() - before, n);
        memory_free(second), memory_free(third);
        cr_expect(memory_peak() - before == 2 * n);
        memory_peak_reset();
        cr_expect(before - memory_peak() == n, "%zu left of %zu", memory_peak(), before);
    }
    memory_free(NULL);
}

/* q, k, v and o of n x 64 floats and lse: never less than that, and twice for twice n. */
Test(host_memory, bench_reports_at_least_its_own_arrays)
{
    const char *build = getenv("BUILD");
    char command[512], line[1024];
    double last = 0;
    for (size_t n = 128; n <= 512; n *= 2) {
        double arrays = 4.0 * (4 * 64 + 1) * (double)n, peak = 0;
        snprintf(command, sizeof command, "rm -f %s/memory.csv && %s/03_online_softmax bench "
                 "--op attention --variant online --seqlen-q %zu --seqlen-k %zu --head-dim 64 "
                 "--head-dim-v 64 --csv %s/memory.csv >/dev/null && tail -n 1 %s/memory.csv | "
                 "cut -d, -f28", build ? build : "build", build ? build : "build", n, n,
                 build ? build : "build", build ? build : "build");
        FILE *f = popen(command, "r");
        cr_assert(f && fgets(line, sizeof line, f), "%s", command);
        pclose(f);
        peak = atof(line);
        cr_expect(peak >= arrays && peak <= 1.02 * arrays + 4096,
                  "%g bytes for arrays of %g, %zu keys", peak, arrays, n);
        cr_expect(peak > 1.9 * last, "%g bytes, at half the length %g", peak, last);
        last = peak;
    }
}
